#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nanscope::align {

/// What places that stand out have in common.
struct RowPattern {
  enum class Kind : std::uint8_t { period, range } kind = Kind::range;
  std::int64_t period = 0;           ///< of a period
  std::vector<std::int64_t> phases;  ///< ascending, modulo the period
  std::int64_t first = 0;            ///< of a range
  std::int64_t last = 0;
  bool to_end = false;  ///< the last is the last of all
  double chance = 1;    ///< that so many places drawn at random have it, times the patterns that were tried
};

/// A pattern is reported if chance gives it in less than one of 1000 cases: it describes rows that stand out already.
inline constexpr double kPatternChance = 1e-3;

/// The pattern that chance gives least. `marked` are some of `all`; both ascend.
std::optional<RowPattern> find_pattern(const std::vector<std::int64_t>& all, const std::vector<std::int64_t>& marked);

/// "every 32nd, phase 5", "from 2048 on", "from 96 to 127".
std::string text(const RowPattern& pattern);

}  // namespace nanscope::align
