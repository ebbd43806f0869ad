#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/recording/rows.h"
#include "instrument/cupti/decode.h"

namespace nanscope::cupti {

/// Gives work the op whose id was pushed when it was launched. Both come in buffers of their own, in either order.
class Joiner {
 public:
  /// At least so many correlations are remembered, and at most twice as many: a program may run for days.
  static constexpr std::size_t kRemembered = std::size_t{1} << 18;

  /// One more correlation that is known.
  void know(std::uint32_t correlation, std::int64_t op);
  /// Takes what was decoded, and returns what can be told: all whose op is known, and what no API call caused.
  std::vector<KernelRow> join(Decoded decoded);
  /// What is left: work of which no op is known, with op 0.
  std::vector<KernelRow> rest();

 private:
  std::optional<std::int64_t> op_of(std::uint32_t correlation) const;

  std::unordered_map<std::uint32_t, std::int64_t> ops_;
  std::unordered_map<std::uint32_t, std::int64_t> older_;
  std::vector<Activity> waiting_;
};

}  // namespace nanscope::cupti
