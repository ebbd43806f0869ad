#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/place.h"
#include "core/result.h"
#include "core/run/run_view.h"

namespace nanscope::gui {

/// What all views look at.
struct Selection {
  Place place;
  /// Row-major index of the chosen element in the tensor that `place` names, once it is resolved.
  std::optional<std::int64_t> element;
  /// Number of the link of the diagnosis' chain that it was come by: several may be at one place. 0: none.
  int link = 0;
  /// Id of the op that is meant where several calls are at the place. 0: any, which is the first.
  std::int64_t call = 0;

  bool operator==(const Selection&) const = default;
};

/// The place that `text` names, in full, with its element; `text` may be the name that a producer gave a tensor. An op
/// in full whose outputs are several is its main one, as find_subject() has it. Errors as of find_place().
Result<Selection> select(RunView& run, std::string_view text);

/// The selection and the way it was come by. Choosing after going back forgets what was ahead, as in
/// a browser.
class SelectionHistory {
 public:
  static constexpr std::size_t kKept = 256;

  const Selection& current() const { return visited_[at_]; }
  /// Choosing what is chosen already is no new stop.
  void choose(Selection selection);
  /// Replaces the current stop: for moves that nobody wants to go back through, such as playing.
  void move(Selection selection);
  bool can_go_back() const { return at_ > 0; }
  bool can_go_forward() const { return at_ + 1 < visited_.size(); }
  void back();
  void forward();

 private:
  std::vector<Selection> visited_{Selection{}};
  std::size_t at_ = 0;
};

}  // namespace nanscope::gui
