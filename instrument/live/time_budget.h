#pragma once
#include <cstdint>

namespace nanscope::live {

/// A share of wall time that may be spent. Nothing is begun that would go beyond it, going by what it cost before.
class TimeBudget {
 public:
  /// `share` of 1 or more: no limit. `start_ns` is now.
  TimeBudget(double share, std::int64_t start_ns) : share_(share), start_(start_ns) {}

  /// Whether something that reads `bytes` may begin now.
  bool allows(std::int64_t now_ns, std::uint64_t bytes) const;
  /// It took this long.
  void spend(std::int64_t ns, std::uint64_t bytes);
  /// So did something that is no such thing.
  void add(std::int64_t ns) { spent_ += ns; }

  std::int64_t spent_ns() const { return spent_; }
  double share_spent(std::int64_t now_ns) const;

 private:
  double share_;
  std::int64_t start_;
  std::int64_t spent_ = 0;
  // Until something is known: a launch and a wait, and a tenth of what an H200 reads a second.
  double fixed_ns_ = 1e5;
  double ns_per_byte_ = 2e-3;
};

}  // namespace nanscope::live
