#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nanscope {

/// Names a fact by a hash (XXH3, 128 bits) of all that the fact depends on.
struct FactKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  auto operator<=>(const FactKey&) const = default;
  struct Hash {
    std::size_t operator()(const FactKey& key) const { return static_cast<std::size_t>(key.low); }
  };
};

/// Gathers what a fact depends on. The order counts; neighbouring texts do not run together.
class FactKeyMaker {
 public:
  explicit FactKeyMaker(std::string_view kind) { add(kind); }
  FactKeyMaker& add(std::string_view text);
  FactKeyMaker& add(std::int64_t number);
  FactKeyMaker& add_real(double number);  ///< its bits
  FactKeyMaker& add(const FactKey& key);
  FactKey key() const;

 private:
  std::string bytes_;
};

}  // namespace nanscope
