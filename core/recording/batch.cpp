#include "core/recording/batch.h"

#include <utility>

namespace nanscope::insert {

void Batch::add(Item item) {
  bytes_ += weight(item);
  ends_step_ = std::holds_alternative<EndStep>(item);
  others_.push_back(std::move(item));
  order_.push_back(Kind::other);
}

void Batch::add(const OpRow& row, std::span<const InputRow> inputs) {
  if (op_count_ == ops_.size()) ops_.emplace_back();
  AddOp& op = ops_[op_count_++];
  op.row = row;
  op.inputs.assign(inputs.begin(), inputs.end());
  order_.push_back(Kind::op);
  bytes_ += weight(op);
}

AddTensor& Batch::next_tensor(const TensorRow& row) {
  if (tensor_count_ == tensors_.size()) tensors_.emplace_back();
  AddTensor& tensor = tensors_[tensor_count_++];
  tensor.row = row;
  return tensor;
}

void Batch::added(const AddTensor& tensor) {
  order_.push_back(Kind::tensor);
  bytes_ += weight(tensor);
}

void Batch::add(const TensorRow& row, const TensorDetail& detail, std::vector<std::byte> bytes) {
  AddTensor& tensor = next_tensor(row);
  tensor.detail = detail;
  tensor.bytes = std::move(bytes);
  tensor.health = {tensor.detail.tokens, tensor.detail.tiles};
  tensor.elements = tensor.bytes;
  tensor.merged = true;
  added(tensor);
}

void Batch::add(const TensorRow& row, ObservedTensor&& observed) {
  AddTensor& tensor = next_tensor(row);
  tensor.bytes = std::move(observed.bytes);
  tensor.elements = tensor.bytes.empty() ? observed.elements : tensor.bytes;
  tensor.health = {{}, observed.tiles};
  tensor.merged = false;
  tensor.lent = std::move(observed.memory);
  if (!tensor.lent) {
    tensor.detail.tiles.assign(observed.tiles.begin(), observed.tiles.end());
    tensor.health.tiles = tensor.detail.tiles;
  }
  added(tensor);
}

std::vector<std::vector<std::byte>> Batch::take_elements() {
  std::vector<std::vector<std::byte>> taken;
  const auto take = [&taken](std::vector<std::byte>& bytes) {
    if (bytes.capacity() > 0) taken.push_back(std::move(bytes));
    bytes = {};
  };
  for (std::size_t i = 0; i < tensor_count_; ++i) take(tensors_[i].bytes);
  for (Item& item : others_) {
    if (auto* late = std::get_if<AddBytes>(&item)) take(late->bytes);
    if (auto* part = std::get_if<AddPart>(&item)) take(part->bytes);
  }
  return taken;
}

void Batch::clear() {
  for (std::size_t i = 0; i < tensor_count_; ++i) tensors_[i].lent.reset();
  order_.clear();
  others_.clear();
  op_count_ = 0;
  tensor_count_ = 0;
  bytes_ = 0;
  ends_step_ = false;
}

}  // namespace nanscope::insert
