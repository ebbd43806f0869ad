#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/diagnosis/evidence.h"
#include "core/dump/dump.h"

/// What the detectors of a dump ask, computed once. Tensors are spoken of by their index in
/// Dump::tensors, which is the order of execution. docs/adding-a-dump-detector.md shows how to write one.
namespace nanscope {

using TensorIndex = std::size_t;

class DumpFacts;

/// Tokens of a pass that stand for nothing: what a dumped mask hides from every query, and what lies beyond a dumped
/// length. Their NaN harms nobody.
struct Padding {
  std::set<std::int64_t> hidden;
  std::int64_t length = std::numeric_limits<std::int64_t>::max();

  bool has(std::int64_t token) const { return token >= length || hidden.contains(token); }
  bool any() const { return !hidden.empty() || length != std::numeric_limits<std::int64_t>::max(); }
};
Padding padding_of(DumpFacts& facts, std::size_t pass);

/// NaN or Inf in an output though what it was made of was healthy.
struct Birth {
  TensorIndex tensor = 0;
  std::vector<TensorIndex> inputs;  ///< dumped ones, in order; empty when none was dumped
  std::vector<std::int64_t> rows;   ///< rows of the tensor that are bad, and whose inputs were not
};

/// The elements of the tensors that were read last, up to a budget: a dump may be larger than memory. Null for those
/// that cannot be read.
template <class T>
class RecentElements {
 public:
  using Held = std::shared_ptr<const std::vector<T>>;

  /// What is held for a tensor, else what `read` gives, which is then held.
  template <class Read>
  Held get(TensorIndex tensor, const Read& read) {
    const auto known = held_.find(tensor);
    if (known != held_.end()) return known->second;
    Held made = read();
    bytes_ += made ? made->size() * sizeof(T) : 0;
    order_.push_back(tensor);
    held_.emplace(tensor, made);
    while (bytes_ > kBudget && order_.size() > 1) {
      const auto oldest = held_.find(order_.front());
      bytes_ -= oldest->second ? oldest->second->size() * sizeof(T) : 0;
      held_.erase(oldest);
      order_.pop_front();
    }
    return made;
  }

 private:
  static constexpr std::size_t kBudget = std::size_t{96} << 20;
  std::unordered_map<TensorIndex, Held> held_;
  std::deque<TensorIndex> order_;
  std::size_t bytes_ = 0;
};

class DumpFacts {
 public:
  /// Once `stop` is asked for, no elements are read any more: every detector comes to its end at once.
  DumpFacts(const Dump& dump, DumpElements& elements, std::stop_token stop = {});

  const Dump& dump() const { return *dump_; }
  const DumpTensor& tensor(TensorIndex index) const { return dump_->tensors[index]; }
  std::size_t size() const { return dump_->tensors.size(); }

  /// Forward passes (run, request, step, rank) in order of execution; what was dumped outside of any
  /// (weights, scales of a checkpoint) is a pass of its own.
  std::size_t passes() const { return passes_.size(); }
  std::span<const TensorIndex> members(std::size_t pass) const { return passes_[pass]; }
  std::size_t pass_of(TensorIndex index) const { return pass_of_[index]; }
  /// All of a role, in order.
  std::vector<TensorIndex> all(std::string_view role) const;
  /// The tensor called `role` in the same pass, tower and layer as `beside`; without one, that of a pass that holds
  /// no activations (a checkpoint beside the dumps).
  std::optional<TensorIndex> in_layer(TensorIndex beside, std::string_view role) const;
  /// The same of one module: its weight, its scale, its input.
  std::optional<TensorIndex> of_module(TensorIndex beside, std::string_view role) const;
  std::optional<TensorIndex> input_of(TensorIndex output, int which = 0) const;
  /// The tensor of the same module and role in the passes before (or of all passes), oldest first.
  std::vector<TensorIndex> history(TensorIndex index) const;
  /// What the output was made of, as far as it was dumped: its module's inputs, weights and scales; without
  /// those, what executes right before it in its pass.
  std::vector<TensorIndex> inputs_of(TensorIndex index);

  /// The last output before an input that is the same tensor, told by its health and its first elements: what it was
  /// made of has a name.
  std::optional<TensorIndex> same_content_before(TensorIndex input);

  /// All elements as numbers, unscaled; null when they cannot be read or are more than `kMostElements`.
  std::shared_ptr<const std::vector<float>> values(TensorIndex index);
  /// All stored codes, likewise.
  std::shared_ptr<const std::vector<std::uint32_t>> codes(TensorIndex index);
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 24;
  /// Rows whose health is looked at; a tensor of more is judged as a whole.
  static constexpr std::int64_t kMostRows = std::int64_t{1} << 20;
  /// A scale of one element; nothing for others.
  std::optional<float> scalar(TensorIndex index);
  const std::vector<Health>& rows(TensorIndex index);
  std::vector<std::int64_t> bad_rows(TensorIndex index);

  /// Its NaN and Inf mean something: not the -inf of a mask, nor what stands in slots that nothing reads.
  bool symptomatic(TensorIndex index);
  /// In order of execution.
  const std::vector<Birth>& births();

  Where where(TensorIndex index) const;
  /// With the rows as tokens.
  Where where(TensorIndex index, const std::vector<std::int64_t>& rows) const;

 private:
  bool only_padding(TensorIndex index);
  bool same_content(const DumpTensor& a, const DumpTensor& b);
  bool logits_are_numbers(std::size_t pass) const;
  void collect_births();
  std::optional<Birth> birth_at(TensorIndex index);

  const Dump* dump_;
  DumpElements* elements_;
  std::stop_token stop_;
  std::vector<std::vector<TensorIndex>> passes_;
  std::vector<std::size_t> pass_of_;
  std::unordered_map<std::string, std::vector<TensorIndex>> by_role_;
  std::unordered_map<std::string, std::vector<TensorIndex>> by_module_;  ///< module and role, all passes
  std::unordered_map<TensorIndex, std::vector<Health>> rows_;
  std::unordered_map<TensorIndex, bool> symptomatic_;
  std::unordered_map<std::size_t, Padding> padding_;
  RecentElements<float> values_;
  RecentElements<std::uint32_t> codes_;
  std::optional<std::vector<Birth>> births_;
};

/// Tensors of weights, scales, ids and masks: what a forward pass reads and does not compute.
bool is_parameter(const DumpTensor& tensor);
/// What a forward pass computes.
bool is_activation(const DumpTensor& tensor);

}  // namespace nanscope
