#pragma once
#include <cstring>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/dump/dump.h"
#include "core/dump/dump_run.h"
#include "core/numbers/codec.h"
#include "core/tensor/health_of.h"

namespace nanscope::testing {

/// A dump in memory, by the names and shapes that a producer writes. Nothing is known of it but that.
class MemoryDump final : public DumpElements {
 public:
  /// Values are those of the stored numbers; without any, each tensor has small whole ones of its own.
  void add(const std::string& name, const char* dtype, std::vector<std::int64_t> shape,
           std::vector<double> values = {}) {
    DumpTensor tensor;
    tensor.name = name;
    tensor.at = parse_tensor_name(name);
    tensor.dtype = find_dtype(dtype);
    tensor.format = tensor.dtype->format;
    tensor.shape = std::move(shape);
    tensor.source = bytes_.size();
    const auto count = static_cast<std::size_t>(tensor.count());
    for (std::uint32_t seed = static_cast<std::uint32_t>(bytes_.size()) + 1; values.size() < count;) {
      seed = seed * 1664525U + 1013904223U;
      values.push_back(static_cast<double>(seed >> 26) - 32);
    }
    std::vector<std::byte> bytes;
    std::vector<float> numbers;
    for (const double value : values) append(bytes, *tensor.dtype, value);
    for (const double value : values) numbers.push_back(static_cast<float>(value));
    tensor.health = health_of(numbers, 0, tensor.format ? info(*tensor.format).max_finite : 0);
    bytes_.push_back(std::move(bytes));
    dump_.tensors.push_back(std::move(tensor));
  }
  /// The tensor that was added last, to change what its name or its values do not say.
  DumpTensor& last() { return dump_.tensors.back(); }
  Result<ElementBytes> bytes(const DumpTensor& tensor) override {
    if (tensor.stated) return fail(tensor.name + ": its elements are not there");
    return ElementBytes{bytes_[tensor.source], nullptr};
  }
  Result<std::vector<Health>> row_health(const DumpTensor& tensor) override {
    std::vector<Health> rows;
    for (std::int64_t row = 0; row < tensor.rows(); ++row) {
      const auto part = values(tensor, row * tensor.channels(), tensor.channels());
      if (!part) return tl::unexpected(part.error());
      rows.push_back(health_of(*part, 0));
    }
    return rows;
  }
  /// In the order of execution, as a run.
  std::unique_ptr<DumpRun> run(Geometry known = {}) {
    Dump sorted = dump_;
    sort_by_execution(sorted.tensors);
    return std::make_unique<DumpRun>(std::move(sorted), *this, std::stop_token(), std::move(known));
  }
  const Dump& dump() const { return dump_; }
  const std::vector<DumpTensor>& tensors() const { return dump_.tensors; }

 private:
  static void append(std::vector<std::byte>& bytes, const Dtype& dtype, double value) {
    std::uint64_t bits = 0;
    if (dtype.format) {
      bits = *dtype.format == Format::i32 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value))
                                          : encode(*dtype.format, static_cast<float>(value), Overflow::overflow);
    } else if (dtype.kind == DtypeKind::real) {
      std::memcpy(&bits, &value, sizeof(bits));
    } else {
      bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
    }
    for (int at = 0; at < dtype.bits; at += 8) bytes.push_back(static_cast<std::byte>(bits >> at));
  }

  Dump dump_;
  std::vector<std::vector<std::byte>> bytes_;
};

/// The run's tensor of a name; null when there is none.
inline const Tensor* find_tensor(DumpRun& run, const std::string& name) {
  for (std::size_t i = 0; i < run.dump().tensors.size(); ++i) {
    if (run.dump().tensors[i].name == name) return run.tensor(run.tensor_of(i));
  }
  return nullptr;
}

/// "role=name" of each input of the op that made a tensor; "?" for what was not dumped.
inline std::vector<std::string> inputs(DumpRun& run, const std::string& name) {
  std::vector<std::string> found;
  const Tensor* tensor = find_tensor(run, name);
  const Op* op = tensor != nullptr ? run.maker(*tensor) : nullptr;
  if (op == nullptr) return {"no op"};
  for (const Input& input : op->inputs) {
    const Tensor* in = run.tensor(input.tensor);
    found.push_back(input.role + '=' + (in == nullptr || !in->known ? "?" : in->name));
  }
  return found;
}

/// Of the op that made a tensor; dumped where none did.
inline OpKind kind(DumpRun& run, const std::string& name) {
  const Tensor* tensor = find_tensor(run, name);
  const Op* op = tensor != nullptr ? run.maker(*tensor) : nullptr;
  return op != nullptr ? op->kind : OpKind::dumped;
}

}  // namespace nanscope::testing
