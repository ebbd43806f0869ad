#include "tests/corpus/stale_bytes.h"

#include <cstring>

#include "tests/corpus/matrix.h"

namespace nanscope::corpus {

std::vector<std::byte> state_bytes(std::uint64_t seed, std::size_t count) {
  const Matrix state = normal(seed, "state", 1, static_cast<std::int64_t>(count), 1, Format::f32);
  std::vector<std::byte> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), state.values.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> index_bytes(std::uint64_t seed, std::size_t count) {
  std::vector<std::byte> bytes(count * sizeof(std::int32_t));
  for (std::size_t i = 0; i < count; ++i) {
    const auto slot = static_cast<std::int32_t>(draw(seed + i, "slot", 64));
    const std::int32_t entry = slot < 8 ? slot : -1;
    std::memcpy(bytes.data() + i * sizeof entry, &entry, sizeof entry);
  }
  return bytes;
}

}  // namespace nanscope::corpus
