#include <algorithm>
#include <array>

#include "instrument/dump/container.h"

namespace nanscope {

#define NANSCOPE_CONTAINER(kind) ContainerKind kind##_container();
#include "instrument/dump/containers/containers.def"
#undef NANSCOPE_CONTAINER

namespace {

/// Length of the longest of the kind's endings that the name has; 0 for none.
std::size_t matched(const ContainerKind& kind, std::string_view name) {
  std::size_t longest = 0;
  for (const std::string_view extension : kind.extensions) {
    const bool matches = extension.starts_with('.') ? name.ends_with(extension) : name == extension;
    if (matches) longest = std::max(longest, extension.size());
  }
  return longest;
}

}  // namespace

std::uint64_t ContainedTensor::count() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::uint64_t product = 1;
  for (const std::int64_t extent : shape) product *= static_cast<std::uint64_t>(extent);
  return product;
}

std::span<const ContainerKind> container_kinds() {
  static const std::vector<ContainerKind> kKinds = {
#define NANSCOPE_CONTAINER(kind) kind##_container(),
#include "instrument/dump/containers/containers.def"
#undef NANSCOPE_CONTAINER
  };
  return kKinds;
}

const ContainerKind* container_kind_of(const std::filesystem::path& path, std::span<const std::byte> head) {
  const std::string name = path.filename().string();
  const ContainerKind* best = nullptr;
  std::size_t best_score = 0;
  for (const ContainerKind& kind : container_kinds()) {
    const bool recognised = kind.recognises != nullptr && kind.recognises(head);
    // Bytes weigh more than any name; of two that recognise the bytes, the one with the name.
    const std::size_t score = matched(kind, name) + (recognised ? std::size_t{1} << 16 : 0);
    if (score > best_score) {
      best = &kind;
      best_score = score;
    }
  }
  return best;
}

}  // namespace nanscope
