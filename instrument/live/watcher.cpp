#include "instrument/live/watcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nanscope::live {
namespace {

constexpr std::size_t kMostArguments = 64;

std::size_t index_of(const FormatViews& views, Format format) {
  const auto found =
      std::find_if(views.begin(), views.end(), [&](const FormatView& one) { return one.format == format; });
  return static_cast<std::size_t>(found - views.begin());
}

std::uint64_t made(const FormatCounts& counts) { return counts.nan() - counts.payload_nan() + counts.pos_inf(); }

/// Whether the bytes are sicker than before in every plausible format of what they are now.
bool sicker(const ScanCounts& before, const ScanCounts& now, const FormatViews& views) {
  bool any = false;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!views.at(i).plausible) continue;
    if (made(now.as[i]) <= made(before.as[i])) return false;
    any = true;
  }
  return any;
}

/// Whether what was written may be of the format that all is in, and cannot be of another one.
bool alike(const FormatViews& written, const FormatViews& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (written.at(i).plausible != all.at(i).plausible) return false;
    if (written.at(i).plausible && written.at(i).integers != all.at(i).integers) return false;
  }
  return true;
}

/// What a kernel left in an argument.
struct Left {
  Sickness sickness = Sickness::none;
  const ScanCounts* by = nullptr;  ///< the counts that say so
};

/// What was written is judged by itself: behind a tensor lies what other tensors left. Where that is too little to tell
/// or goes on beyond the beginning, the whole is judged, if what was written may be of it.
Left left_of(const Scan& before, const Scan& now) {
  const FormatViews all = view_formats(now.all);
  if (now.written.words == 0) {
    const Sickness sick = sickness(all);
    if (sick != Sickness::certain || sicker(before.all, now.all, all)) return {sick, &now.all};
    return {Sickness::none, &now.all};
  }
  const FormatViews written = view_formats(now.written);
  const Sickness sick = sickness(written);
  if (sick == Sickness::certain && sicker(now.replaced, now.written, written)) return {sick, &now.written};
  const auto format = best_format(all);
  const bool wide = format && info(*format).storage_bytes() > 1;
  if (wide && alike(written, all) && sickness(all) == Sickness::certain && sicker(before.all, now.all, all)) {
    return {Sickness::certain, &now.all};
  }
  return {sick == Sickness::none ? sick : Sickness::possible, &now.written};
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
  const Status scanned = look(launch, seen.arguments, false, seen.scans);
  seen.look = looks_;
  budget_.spend(driver_.now_ns() - start, bytes);
  if (!scanned) {
    ++counts_.failed;
    return std::nullopt;
  }
  for (const PointerArgument& argument : seen.arguments) counts_.cut += argument.extent.bytes == options_.most_bytes;
  return seen;
}

Status Watcher::look(const Launch& launch, const std::vector<PointerArgument>& arguments, bool again,
                     std::vector<Scan>& scans) {
  ++looks_;
  scans.resize(arguments.size());
  return driver_.scan(launch.stream, extents_of(arguments), again, scans);
}

std::optional<Finding> Watcher::after(const Launch& launch, const Before& before) {
  const std::int64_t start = driver_.now_ns();
  std::vector<Scan> now;
  // Another thread may have launched meanwhile: the beginnings that are kept are then those of its buffers.
  const Status scanned = look(launch, before.arguments, before.look == looks_, now);
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

std::optional<Finding> Watcher::judge(const Launch& launch, const Before& before, const std::vector<Scan>& now) {
  std::optional<std::size_t> sick_before;
  std::optional<std::size_t> sicker_now;
  const ScanCounts* by = nullptr;
  bool possible = false;
  for (std::size_t i = 0; i < now.size(); ++i) {
    // What the kernel wrote over was nothing that it was given: memory is handed out with what it last held.
    const bool healed =
        sickness(view_formats(now[i].all)) == Sickness::none && before.scans[i].all.checksum != now[i].all.checksum;
    const bool sick = sickness(view_formats(before.scans[i].all)) == Sickness::certain;
    if (sick && !healed && !sick_before) sick_before = i;
    const Left left = left_of(before.scans[i], now[i]);
    possible = possible || left.sickness == Sickness::possible;
    if (left.sickness == Sickness::certain && !sicker_now) {
      sicker_now = i;
      by = left.by;
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
  if (sick_before) return found(kind, launch, before.arguments[*sick_before], before.scans[*sick_before].all);
  return found(kind, launch, before.arguments[*sicker_now], *by);
}

Finding Watcher::found(FindingKind kind, const Launch& launch, const PointerArgument& argument,
                       const ScanCounts& counts) const {
  const FormatViews views = view_formats(counts);
  Finding finding;
  finding.kind = kind;
  finding.launch = launch.number;
  finding.kernel = launch.name;
  finding.argument = argument.parameter;
  finding.extent = argument.extent;
  finding.format = best_format(views).value_or(Format::f32);
  const FormatCounts& as = counts.as[index_of(views, finding.format)];
  finding.elements = counts.words * sizeof(std::uint32_t) / info(finding.format).storage_bytes();
  finding.nan = as.nan();
  finding.pos_inf = as.pos_inf();
  finding.ring.assign(ring_.begin(), ring_.end());
  // A model computes in few formats: where bytes may be several, that of the finding is the likeliest.
  for (KeptBuffer& kept : finding.ring) {
    if (kept.views.at(index_of(kept.views, finding.format)).plausible) kept.format = finding.format;
  }
  return finding;
}

void Watcher::keep(const Launch& launch, const Before& before, const std::vector<Scan>& now) {
  for (std::size_t i = 0; i < now.size(); ++i) {
    const PointerArgument& argument = before.arguments[i];
    if (options_.ring == 0 || argument.extent.bytes > options_.ring_bytes) continue;
    KeptBuffer kept;
    kept.launch = launch.number;
    kept.kernel = short_name(launch.name);
    kept.argument = argument.parameter;
    kept.offset = argument.offset;
    kept.written = before.scans[i].all.checksum != now[i].all.checksum;
    kept.views = view_formats(now[i].written.words > 0 ? now[i].written : now[i].all);
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
