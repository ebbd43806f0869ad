#include "instrument/dump/containers/joined.h"

#include <algorithm>

namespace nanscope {

bool JoinedContainer::add(std::string name, std::vector<Part> parts) {
  if (parts.empty()) return false;
  ContainedTensor joined = parts.front().first->tensors()[parts.front().second];
  if (joined.shape.empty() || joined.dtype->bits % 8 != 0) return false;
  joined.shape.front() = 0;
  for (const auto& [container, index] : parts) {
    const ContainedTensor& part = container->tensors()[index];
    const bool alike = part.dtype == joined.dtype && part.shape.size() == joined.shape.size() &&
                       std::equal(part.shape.begin() + 1, part.shape.end(), joined.shape.begin() + 1);
    if (!alike) return false;
    const bool same = part.product == joined.product ||
                      (part.product != nullptr && joined.product != nullptr && *part.product == *joined.product);
    if (!same) {
      GemmAttributes unknown;
      unknown.input_format = "unknown";
      joined.product = std::make_shared<const GemmAttributes>(std::move(unknown));
    }
    joined.shape.front() += part.shape.front();
  }
  joined.key = std::move(name);
  joined.offset = 0;
  tensors_.push_back(std::move(joined));
  parts_of_.push_back(std::move(parts));
  return true;
}

Result<TensorBytes> JoinedContainer::bytes(std::size_t tensor) const {
  auto all = std::make_shared<std::vector<std::byte>>();
  for (const auto& [container, index] : parts_of_.at(tensor)) {
    const Result<TensorBytes> part = container->bytes(index);
    if (!part) return tl::unexpected(part.error());
    all->insert(all->end(), part->bytes.begin(), part->bytes.end());
  }
  return TensorBytes{std::span<const std::byte>(*all), all};
}

Status JoinedContainer::check() const {
  for (const auto& parts : parts_of_) {
    for (const auto& [container, index] : parts) {
      static_cast<void>(index);
      if (Status same = container->check(); !same) return same;
    }
  }
  return {};
}

}  // namespace nanscope
