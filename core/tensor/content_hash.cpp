#include "core/tensor/content_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace nanscope {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15U;

constexpr std::uint64_t secret_of(std::size_t lane) { return (2 * lane + 1) * kGolden; }

constexpr std::uint64_t mix_lane(std::uint64_t value) {
  const std::uint64_t h = (value ^ (value >> 32)) * 0xd6e8feb86659fd93U;
  return h ^ (h >> 29);
}

constexpr std::uint64_t mix(std::uint64_t h) {
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93U;
  h = (h ^ (h >> 29)) * 0xa0761d6478bd642fU;
  return h ^ (h >> 32);
}

}  // namespace

ContentHash::ContentHash() { begin_chunk(); }

void ContentHash::begin_chunk() {
  for (std::size_t lane = 0; lane < kLanes; ++lane) secret_[lane] = total_[lane] = secret_of(lane);
  chunk_bytes_ = 0;
}

void ContentHash::step(const std::byte* bytes) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * lane, sizeof word);
    const std::uint64_t keyed = word ^ secret_[lane];
    total_[lane] += (keyed & 0xffffffffU) * (keyed >> 32) + (word << 32 | word >> 32);
    secret_[lane] += kGolden * 64;
  }
}

void ContentHash::end_chunk() {
  std::uint64_t folded = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t of_lane = secret_of(lane);
    folded += mix_lane(mix_lane(total_[lane] ^ (of_lane >> 7)) + of_lane);
  }
  chunks_.push_back(folded);
  begin_chunk();
}

void ContentHash::add(std::span<const std::byte> bytes) {
  all_bytes_ += bytes.size();
  while (!bytes.empty()) {
    const bool whole = pending_bytes_ == 0 && bytes.size() >= kStep;
    const std::size_t taken = std::min(bytes.size(), kStep - pending_bytes_);
    if (whole) {
      step(bytes.data());
    } else {
      std::memcpy(pending_.data() + pending_bytes_, bytes.data(), taken);
      pending_bytes_ += taken;
      if (pending_bytes_ == kStep) {
        step(pending_.data());
        pending_bytes_ = 0;
      }
    }
    bytes = bytes.subspan(taken);
    chunk_bytes_ += taken;
    if (chunk_bytes_ == kChunk) end_chunk();
  }
}

std::uint64_t ContentHash::finish() {
  if (pending_bytes_ > 0) {
    std::fill(pending_.begin() + static_cast<std::ptrdiff_t>(pending_bytes_), pending_.end(), std::byte{0});
    step(pending_.data());
  }
  if (chunk_bytes_ > 0) end_chunk();
  std::uint64_t hash = mix(all_bytes_ + kGolden);
  for (const std::uint64_t chunk : chunks_) hash = mix((hash << 23 | hash >> 41) + chunk);
  return hash;
}

}  // namespace nanscope
