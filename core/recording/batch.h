#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/recording/insert.h"

/// Rows on their way to the writing thread. Private to core/recording.
namespace nanscope::insert {

/// The rows of a step, or of a piece of one, in the order in which they were added. Emptied, it keeps the memory of its
/// rows, and rows are copied into that: a run makes thousands of rows a step, all alike, and allocating them anew cost
/// more than the rest.
class Batch {
 public:
  void add(Item item);
  void add(const OpRow& row, std::span<const InputRow> inputs);
  void add(const TensorRow& row, const TensorDetail& detail, std::vector<std::byte> bytes);
  void add(const TensorRow& row, ObservedTensor&& observed);

  bool empty() const { return order_.empty(); }
  std::size_t bytes() const { return bytes_; }
  bool ends_step() const { return ends_step_; }

  /// Calls visit(row) in order, until it fails. A tensor's health is merged right before.
  template <class Visit>
  Status each(const Visit& visit) {
    std::size_t op = 0;
    std::size_t tensor = 0;
    std::size_t other = 0;
    for (const Kind kind : order_) {
      Status status;
      switch (kind) {
        case Kind::op:
          status = visit(ops_[op++]);
          break;
        case Kind::tensor:
          merge_health(tensors_[tensor]);
          status = visit(tensors_[tensor++]);
          break;
        case Kind::other:
          status = visit(others_[other++]);
          break;
      }
      if (!status) return status;
    }
    return {};
  }

  /// Gives away the elements of all tensors.
  std::vector<std::vector<std::byte>> take_elements();
  /// Lent memory is let go of.
  void clear();

 private:
  AddTensor& next_tensor(const TensorRow& row);
  void added(const AddTensor& tensor);

  enum class Kind : std::uint8_t { op, tensor, other };

  std::vector<Kind> order_;
  std::vector<AddOp> ops_;  // the first op_count_ are of this batch, the others memory to be used
  std::vector<AddTensor> tensors_;
  std::vector<Item> others_;
  std::size_t op_count_ = 0;
  std::size_t tensor_count_ = 0;
  std::size_t bytes_ = 0;
  bool ends_step_ = false;
};

}  // namespace nanscope::insert
