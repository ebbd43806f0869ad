#include "instrument/dump/containers/memory.h"

#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "instrument/dump/containers/file_bytes.h"

namespace nanscope {
namespace {

/// Nothing when they are more than memory holds.
std::optional<std::uint64_t> bytes_of(const NamedTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t extent : tensor.shape) {
    const auto more = static_cast<std::uint64_t>(extent);
    if (more != 0 && count > std::numeric_limits<std::uint64_t>::max() / 64 / more) return std::nullopt;
    count *= more;
  }
  return tensor.dtype->bytes(count);
}

Status check_tensor(const NamedTensor& tensor) {
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 0) return fail(in_quotes(tensor.name) + ": an extent of " + std::to_string(extent) + " is negative");
  }
  const std::optional<std::uint64_t> bytes = bytes_of(tensor);
  if (!bytes || *bytes != tensor.bytes.bytes.size()) {
    return fail(in_quotes(tensor.name) + ": has " + std::to_string(tensor.bytes.bytes.size()) +
                " bytes, expected the " + (bytes ? std::to_string(*bytes) : std::string("many more")) +
                " of its shape");
  }
  return {};
}

class Memory final : public Container {
 public:
  Status add(NamedTensor tensor) {
    if (tensor.name.empty()) return fail("a tensor without a name: a name says what it is");
    if (!names_.insert(tensor.name).second)
      return fail(in_quotes(tensor.name) + ": there are two tensors of that name");
    if (Status right = check_tensor(tensor); !right) return right;
    tensors_.push_back({std::move(tensor.name), tensor.dtype, std::move(tensor.shape), 0, {}});
    bytes_.push_back(std::move(tensor.bytes));
    return {};
  }
  Result<TensorBytes> bytes(std::size_t tensor) const override { return bytes_.at(tensor); }

 private:
  std::vector<TensorBytes> bytes_;
  std::set<std::string> names_;
};

}  // namespace

Result<std::unique_ptr<Container>> memory_container(std::vector<NamedTensor> tensors) {
  auto memory = std::make_unique<Memory>();
  for (NamedTensor& tensor : tensors) {
    if (Status added = memory->add(std::move(tensor)); !added) return tl::unexpected(added.error());
  }
  return memory;
}

}  // namespace nanscope
