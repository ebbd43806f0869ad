#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/run/run_view.h"
#include "instrument/diff/sequences.h"

namespace nanscope::align {

/// By what the rows of a tensor meet those of another.
enum class Meeting : std::uint8_t {
  rows,    ///< sequence and position
  keys,    ///< the same of the keys that attention reads
  scores,  ///< sequence and position of the query; columns by head and position of the key
  mask,    ///< the same; columns are visible or hidden
  whole,   ///< row number: parameters, and rows of which nothing says whose they are
  layout,  ///< not at all: it says where rows lie, which differs by design
};

/// One known tensor of a run, as rows that can meet others.
struct Sheet {
  const Tensor* tensor = nullptr;
  Meeting meeting = Meeting::whole;
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  std::int64_t rank = 0;
};

/// The tensors of a run that are one over its steps and ranks.
struct Group {
  std::string name;  ///< as the producer writes it, without step, rank and request; empty in recordings
  std::optional<std::int64_t> layer;
  std::string op;
  std::string role;
  OpKind kind = OpKind::dumped;
  int turn = 0;               ///< of several of this op and role in a step
  int turns = 1;              ///< how many
  std::int64_t depth = 0;     ///< ops of its step before it
  std::vector<Sheet> sheets;  ///< in the order of execution
  std::int64_t ranks = 1;

  bool is_stated() const;
  bool is_integer() const;
  /// A step's, with rows of which nothing says whose they are, as those that experts sort.
  bool is_unplaced() const;
  Meeting meeting() const { return sheets.front().meeting; }
  std::int64_t channels() const { return sheets.front().channels; }
  /// For people: the producer's name, or op and role.
  std::string text() const;
};

/// All known tensors of a run, in the order of execution.
class Groups {
 public:
  Groups(RunView& run, const Sequences& sequences);

  const std::vector<Group>& all() const { return all_; }
  /// The group of a tensor; nothing for one that is not known.
  std::optional<std::size_t> of(TensorId tensor) const;
  std::int64_t ranks() const { return ranks_; }

 private:
  using Key = std::tuple<std::int64_t, std::string, std::string, std::string, int>;
  void add_step(StepId step);
  std::optional<std::size_t> same_name_elsewhere(const std::string& name, StepId step) const;
  Sheet sheet_of(const Tensor& tensor, const Op& op) const;

  RunView& run_;
  const Sequences& sequences_;
  std::vector<Group> all_;
  std::map<Key, std::size_t> by_key_;
  std::map<TensorId, std::size_t> by_tensor_;
  std::int64_t ranks_ = 1;
};

/// A dumped tensor's name without its step, rank and request.
std::string name_without_pass(const std::string& name);

}  // namespace nanscope::align
