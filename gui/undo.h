#pragma once
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace nanscope::gui {

/// States that can be gone back to. Whoever has the state tells of it now and then; what differs from the state before
/// is a step.
template <typename State>
class UndoStack {
 public:
  static constexpr std::size_t kMostSteps = 100;

  explicit UndoStack(State first) : now_(std::move(first)) {}

  void note(const State& state) {
    if (state == now_) return;
    undone_.clear();
    done_.push_back(std::exchange(now_, state));
    if (done_.size() > kMostSteps) done_.erase(done_.begin());
  }
  /// The state before the last step, and after an undone one; nothing where there is none.
  std::optional<State> undo() { return move(done_, undone_); }
  std::optional<State> redo() { return move(undone_, done_); }

 private:
  std::optional<State> move(std::vector<State>& from, std::vector<State>& to) {
    if (from.empty()) return std::nullopt;
    to.push_back(std::exchange(now_, std::move(from.back())));
    from.pop_back();
    return now_;
  }

  State now_;
  std::vector<State> done_;
  std::vector<State> undone_;
};

}  // namespace nanscope::gui
