#include "core/tensor/fact_key.h"

#include <xxhash.h>

#include <bit>

namespace nanscope {

FactKeyMaker& FactKeyMaker::add(std::int64_t number) {
  const auto bits = static_cast<std::uint64_t>(number);
  for (unsigned i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i) & 0xff));
  return *this;
}

FactKeyMaker& FactKeyMaker::add(std::string_view text) {
  add(static_cast<std::int64_t>(text.size()));
  bytes_.append(text);
  return *this;
}

FactKeyMaker& FactKeyMaker::add_real(double number) { return add(std::bit_cast<std::int64_t>(number)); }

FactKeyMaker& FactKeyMaker::add(const FactKey& key) {
  return add(static_cast<std::int64_t>(key.low)).add(static_cast<std::int64_t>(key.high));
}

FactKey FactKeyMaker::key() const {
  const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), bytes_.size());
  return {hash.low64, hash.high64};
}

}  // namespace nanscope
