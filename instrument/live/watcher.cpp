#include "instrument/live/watcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nanscope::live {
namespace {

constexpr std::size_t kMostArguments = 64;

/// What of a buffer is sick, as the plausible formats have it.
struct Judged {
  FormatViews views;
  Sickness sickness;
};

Judged judged(const ScanCounts& counts) {
  const FormatViews views = view_formats(counts);
  return {views, sickness(views)};
}

std::size_t index_of(const FormatViews& views, Format format) {
  const auto found =
      std::find_if(views.begin(), views.end(), [&](const FormatView& one) { return one.format == format; });
  return static_cast<std::size_t>(found - views.begin());
}

/// Whether the bytes are sicker than before in every plausible format of what they are now.
bool sicker(const ScanCounts& before, const ScanCounts& now, const FormatViews& views) {
  bool any = false;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!views.at(i).plausible) continue;
    if (now.as[i].nan + now.as[i].pos_inf <= before.as[i].nan + before.as[i].pos_inf) return false;
    any = true;
  }
  return any;
}

std::uint64_t total_bytes(const std::vector<PointerArgument>& arguments) {
  std::uint64_t bytes = 0;
  for (const PointerArgument& argument : arguments) bytes += argument.extent.bytes;
  return bytes;
}

std::vector<Extent> extents_of(const std::vector<PointerArgument>& arguments) {
  std::vector<Extent> extents;
  extents.reserve(arguments.size());
  for (const PointerArgument& argument : arguments) extents.push_back(argument.extent);
  return extents;
}

}  // namespace

Watcher::Watcher(LiveDriver& driver, WatchOptions options)
    : driver_(driver), options_(std::move(options)), budget_(options_.budget, driver.now_ns()) {
  if (options_.kernels) matcher_.emplace(*options_.kernels);
}

bool Watcher::matches(std::string_view name) {
  if (!matcher_) return true;
  if (const auto known = verdicts_.find(name); known != verdicts_.end()) return known->second;
  const Result<bool> found = matcher_->find(name, 0, true);
  return verdicts_.emplace(name, found && *found).first->second;
}

bool Watcher::selects(const Launch& launch) {
  ++counts_.launches;
  return matches(launch.name) && counts_.selected++ % std::max<std::int64_t>(options_.every, 1) == 0;
}

std::optional<Watcher::Before> Watcher::before(const Launch& launch) {
  if (!selects(launch)) return std::nullopt;
  const std::int64_t start = driver_.now_ns();
  // First, as most launches end here: what follows asks the driver.
  if (!budget_.allows(start, 0)) {
    ++counts_.over_budget;
    return std::nullopt;
  }
  if (driver_.capturing(launch.stream)) {
    ++counts_.captured;
    return std::nullopt;
  }
  Before seen;
  seen.arguments = pointer_arguments(launch.parameters(), allocations_, options_.most_bytes);
  if (seen.arguments.empty()) {
    ++counts_.blind;
    return std::nullopt;
  }
  if (seen.arguments.size() > kMostArguments) seen.arguments.resize(kMostArguments);
  const std::uint64_t bytes = total_bytes(seen.arguments);
  if (!budget_.allows(start, 2 * bytes)) {
    ++counts_.over_budget;
    return std::nullopt;
  }
  seen.counts.resize(seen.arguments.size());
  const Status scanned = driver_.scan(launch.stream, extents_of(seen.arguments), seen.counts);
  budget_.spend(driver_.now_ns() - start, bytes);
  if (!scanned) {
    ++counts_.failed;
    return std::nullopt;
  }
  for (const PointerArgument& argument : seen.arguments) counts_.cut += argument.extent.bytes == options_.most_bytes;
  return seen;
}

std::optional<Finding> Watcher::after(const Launch& launch, const Before& before) {
  const std::int64_t start = driver_.now_ns();
  std::vector<ScanCounts> now(before.arguments.size());
  const Status scanned = driver_.scan(launch.stream, extents_of(before.arguments), now);
  if (!scanned) {
    ++counts_.failed;
    return std::nullopt;
  }
  ++counts_.scanned;
  keep(launch, before, now);
  std::optional<Finding> finding = judge(launch, before, now);
  budget_.spend(driver_.now_ns() - start, total_bytes(before.arguments));
  return finding;
}

std::optional<Finding> Watcher::judge(const Launch& launch, const Before& before, const std::vector<ScanCounts>& now) {
  std::optional<std::size_t> sick_before;
  std::optional<std::size_t> sicker_now;
  bool possible = false;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Judged after = judged(now[i]);
    // What the kernel wrote over was nothing that it was given: memory is handed out with what it last held.
    const bool healed = after.sickness == Sickness::none && before.counts[i].checksum != now[i].checksum;
    if (judged(before.counts[i]).sickness == Sickness::certain && !healed && !sick_before) sick_before = i;
    possible = possible || after.sickness == Sickness::possible;
    if (after.sickness == Sickness::certain && !sicker_now && sicker(before.counts[i], now[i], after.views)) {
      sicker_now = i;
    }
  }
  if (possible) ++counts_.possible;
  // A NaN that is there and gets no further may be memory that nobody reads.
  if (!sicker_now) return std::nullopt;
  const FindingKind kind = sick_before ? FindingKind::carried : FindingKind::born;
  bool& told = kind == FindingKind::born ? born_ : carried_;
  // What comes after a birth carries it: that is no news.
  if (told || born_) return std::nullopt;
  told = true;
  const std::size_t at = sick_before ? *sick_before : *sicker_now;
  const ScanCounts& counts = sick_before ? before.counts[at] : now[at];
  const FormatViews views = view_formats(counts);
  Finding finding;
  finding.kind = kind;
  finding.launch = launch.number;
  finding.kernel = launch.name;
  finding.argument = before.arguments[at].parameter;
  finding.extent = before.arguments[at].extent;
  finding.format = best_format(views).value_or(Format::f32);
  const FormatCounts& as = counts.as[index_of(views, finding.format)];
  finding.elements = as.elements;
  finding.nan = as.nan;
  finding.pos_inf = as.pos_inf;
  finding.ring.assign(ring_.begin(), ring_.end());
  // A model computes in few formats: where bytes may be several, that of the finding is the likeliest.
  for (KeptBuffer& kept : finding.ring) {
    if (kept.views.at(index_of(kept.views, finding.format)).plausible) kept.format = finding.format;
  }
  return finding;
}

void Watcher::keep(const Launch& launch, const Before& before, const std::vector<ScanCounts>& now) {
  for (std::size_t i = 0; i < now.size(); ++i) {
    const PointerArgument& argument = before.arguments[i];
    if (options_.ring == 0 || argument.extent.bytes > options_.ring_bytes) continue;
    KeptBuffer kept;
    kept.launch = launch.number;
    kept.kernel = short_name(launch.name);
    kept.argument = argument.parameter;
    kept.offset = argument.offset;
    kept.written = before.counts[i].checksum != now[i].checksum;
    kept.views = view_formats(now[i]);
    kept.format = best_format(kept.views).value_or(Format::f32);
    kept.bytes.resize(argument.extent.bytes);
    if (!driver_.copy(launch.stream, argument.extent.address, kept.bytes)) continue;
    ring_.push_back(std::move(kept));
    if (ring_.size() > options_.ring) ring_.pop_front();
  }
}

WatchCounts Watcher::counts() const {
  WatchCounts counts = counts_;
  counts.spent_ns = budget_.spent_ns();
  return counts;
}

std::string sentence(const Finding& finding) {
  const std::string what = fmt::format("{} NaN and {} +Inf among {} elements of {}", finding.nan, finding.pos_inf,
                                       finding.elements, name(finding.format));
  if (finding.kind == FindingKind::born) {
    return fmt::format("launch {}, {}, wrote {} into argument {}; none of its arguments held any before",
                       finding.launch, short_name(finding.kernel), what, finding.argument);
  }
  return fmt::format("launch {}, {}, was given {} in argument {}; the kernel that wrote them was not watched",
                     finding.launch, short_name(finding.kernel), what, finding.argument);
}

}  // namespace nanscope::live
