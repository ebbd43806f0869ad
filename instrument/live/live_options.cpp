#include "instrument/live/live_options.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace nanscope::live {
namespace {

constexpr RegexLimits kRegexLimits{.pattern_bytes = 4096, .steps = 100'000, .heap_kib = 1024};

template <class Number>
Status read(const char* text, const char* variable, Number least, Number most, Number& into) {
  if (text == nullptr) return {};
  const std::string_view view(text);
  Number number{};
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), number);
  if (error != std::errc() || end != view.data() + view.size() || !(number >= least && number <= most)) {
    return fail(fmt::format("{}: expected a number from {} to {}, found '{}'", variable, least, most, view));
  }
  into = number;
  return {};
}

}  // namespace

Result<LiveOptions> live_options(const std::function<const char*(const char*)>& get) {
  LiveOptions options;
  if (const char* output = get("NANSCOPE_LIVE_OUTPUT"); output != nullptr && *output != '\0') options.output = output;
  if (const char* beside = get("NANSCOPE_LIVE_BESIDE"); beside != nullptr) options.beside = beside;
  if (const char* kernels = get("NANSCOPE_LIVE_KERNELS"); kernels != nullptr) options.kernels = kernels;
  std::int64_t watch = 0;
  constexpr std::int64_t kMost = 1'000'000'000;
  const std::vector<Status> all = {
      read<std::int64_t>(get("NANSCOPE_LIVE_WATCH"), "NANSCOPE_LIVE_WATCH", 0, 1, watch),
      read<std::int64_t>(get("NANSCOPE_LIVE_EVERY"), "NANSCOPE_LIVE_EVERY", 1, kMost, options.every),
      read<double>(get("NANSCOPE_LIVE_BUDGET"), "NANSCOPE_LIVE_BUDGET", 0, 1, options.budget),
      read<std::int64_t>(get("NANSCOPE_LIVE_RING"), "NANSCOPE_LIVE_RING", 0, 4096, options.ring)};
  for (const Status& one : all) {
    if (!one) return tl::unexpected(one.error());
  }
  options.watch = watch == 1;
  if (auto fits = watch_options(options); !fits) return tl::unexpected(fits.error());
  return options;
}

std::vector<std::pair<std::string, std::string>> environment_of(const LiveOptions& options) {
  return {{"NANSCOPE_LIVE_OUTPUT", options.output},
          {"NANSCOPE_LIVE_BESIDE", options.beside},
          {"NANSCOPE_LIVE_WATCH", options.watch ? "1" : "0"},
          {"NANSCOPE_LIVE_KERNELS", options.kernels},
          {"NANSCOPE_LIVE_EVERY", fmt::format("{}", options.every)},
          {"NANSCOPE_LIVE_BUDGET", fmt::format("{}", options.budget)},
          {"NANSCOPE_LIVE_RING", fmt::format("{}", options.ring)}};
}

Result<WatchOptions> watch_options(const LiveOptions& options) {
  WatchOptions watch;
  watch.every = options.every;
  watch.budget = options.budget;
  watch.ring = static_cast<std::size_t>(options.ring);
  if (options.kernels.empty()) return watch;
  auto regex = Regex::compile(options.kernels, RegexSyntax::ascii, kRegexLimits);
  if (!regex) return fail(fmt::format("NANSCOPE_LIVE_KERNELS: {}", regex.error().message));
  watch.kernels = std::move(*regex);
  return watch;
}

}  // namespace nanscope::live
