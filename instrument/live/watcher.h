#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/files/regex.h"
#include "instrument/live/allocation_map.h"
#include "instrument/live/driver.h"
#include "instrument/live/format_guess.h"
#include "instrument/live/launch.h"
#include "instrument/live/time_budget.h"

/// Looks at what kernels of a running program read and write, and finds the first that writes a NaN or +Inf that it was
/// not given. A kernel that adds none to any of its arguments is no finding, whatever lies in them.
namespace nanscope::live {

struct WatchOptions {
  std::optional<Regex> kernels;                        ///< of demangled names; none: all
  std::int64_t every = 1;                              ///< of the kernels that match, every n-th
  double budget = 0.05;                                ///< share of wall time
  std::uint64_t most_bytes = std::uint64_t{64} << 20;  ///< looked at of one argument
  std::size_t ring = 16;                               ///< buffers that are kept for a dump
  std::uint64_t ring_bytes = std::uint64_t{1} << 20;   ///< larger ones are not kept
};

/// A buffer as a kernel left it.
struct KeptBuffer {
  std::int64_t launch = 0;
  std::string kernel;  ///< short name
  int argument = 0;
  std::uint32_t offset = 0;     ///< of the pointer within the argument
  bool written = false;         ///< the kernel changed it; else it was an input
  FormatViews views;            ///< as it was left
  Format format = Format::f32;  ///< that of the finding where it is plausible
  std::vector<std::byte> bytes;
};

enum class FindingKind : std::uint8_t {
  born,     ///< the kernel wrote NaN or +Inf, and no argument held any before
  carried,  ///< so it did, but some were in an argument before it ran: who wrote those was not watched
};

/// The first kernel that is seen with NaN or +Inf.
struct Finding {
  FindingKind kind = FindingKind::born;
  std::int64_t launch = 0;
  std::string kernel;  ///< as the driver names it
  int argument = 0;
  Extent extent;
  Format format = Format::f32;
  std::uint64_t elements = 0;
  std::uint64_t nan = 0;
  std::uint64_t pos_inf = 0;
  std::vector<KeptBuffer> ring;  ///< oldest first; the kernel's own arguments last
};

struct WatchCounts {
  std::int64_t launches = 0;
  std::int64_t selected = 0;  ///< by name and number
  std::int64_t scanned = 0;
  std::int64_t over_budget = 0;
  std::int64_t captured = 0;  ///< into graphs: not to be looked at
  std::int64_t blind = 0;     ///< without an argument in a tracked allocation
  std::int64_t cut = 0;       ///< arguments longer than most_bytes
  std::int64_t possible = 0;  ///< launches after which only some plausible formats hold NaN or +Inf
  std::int64_t failed = 0;    ///< scans that the driver refused
  std::int64_t spent_ns = 0;
};

/// One call at a time. Never changes what the program computes: it reads, on the program's own stream.
class Watcher {
 public:
  Watcher(LiveDriver& driver, WatchOptions options);

  AllocationMap& allocations() { return allocations_; }

  /// What was seen before a launch, to be given to after().
  struct Before {
    std::vector<PointerArgument> arguments;
    std::vector<Scan> scans;
    std::int64_t look = 0;  ///< the number of the scan
  };
  /// Nothing when this launch is not looked at.
  std::optional<Before> before(const Launch& launch);
  /// A finding, once: the first of each kind.
  std::optional<Finding> after(const Launch& launch, const Before& before);

  /// Something else that the watch took of the program's time.
  void charge(std::int64_t ns) { budget_.add(ns); }

  WatchCounts counts() const;
  double share_spent() const { return budget_.share_spent(driver_.now_ns()); }

 private:
  bool selects(const Launch& launch);
  bool matches(std::string_view name);
  Status look(const Launch& launch, const std::vector<PointerArgument>& arguments, bool again,
              std::vector<Scan>& scans);
  std::optional<Finding> judge(const Launch& launch, const Before& before, const std::vector<Scan>& now);
  Finding found(FindingKind kind, const Launch& launch, const PointerArgument& argument,
                const ScanCounts& counts) const;
  void keep(const Launch& launch, const Before& before, const std::vector<Scan>& now);

  LiveDriver& driver_;
  WatchOptions options_;
  std::optional<Regex::Matcher> matcher_;
  std::map<std::string, bool, std::less<>> verdicts_;  ///< of names that were seen
  AllocationMap allocations_;
  TimeBudget budget_;
  WatchCounts counts_;
  std::deque<KeptBuffer> ring_;
  std::int64_t looks_ = 0;
  bool born_ = false;
  bool carried_ = false;
};

/// "gemm wrote 3 NaN into argument 2": one sentence for people.
std::string sentence(const Finding& finding);

}  // namespace nanscope::live
