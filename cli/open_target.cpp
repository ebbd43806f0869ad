#include "cli/open_target.h"

#include <cstdint>
#include <string>

#include "cli/command.h"
#include "cli/progress.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {

Result<std::unique_ptr<scenarios::OpenRun>> open_target(const std::string& path, const Interrupt& interrupt,
                                                        const TargetOptions& wanted) {
  if (Status taken = scenarios::check_target(path, scenarios::Takes::runs); !taken)
    return tl::unexpected(taken.error());
  auto opened = [&] {
    ProgressLine line("MiB", wanted.progress);
    scenarios::OpenRunOptions options;
    options.stop = interrupt.token();
    options.limits = wanted.limits;
    options.follow_links = wanted.follow_links;
    options.model = wanted.model;
    options.facts = wanted.facts;
    options.facts_only = wanted.facts_only;
    options.progress = [&line](std::uint64_t done, std::uint64_t total) {
      line.show(static_cast<std::int64_t>(done >> 20), static_cast<std::int64_t>(total >> 20), "");
    };
    return scenarios::OpenRun::open(path, options);
  }();
  if (!opened) return opened;
  // The output does not list unread files: report them on standard error.
  for (const RunNote& one : (*opened)->unread()) complain("not read: " + one.text);
  return opened;
}

Result<scenarios::Analysis> analyse_target(scenarios::OpenRun& target, const Interrupt& interrupt, bool recompute,
                                           bool progress) {
  ProgressLine line("ops", progress);
  DiagnoseOptions options;
  options.target = target.target();
  options.recompute = recompute;
  options.stop = interrupt.token();
  options.progress = [&line](std::size_t done, std::size_t total) {
    line.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "recomputed");
  };
  return scenarios::analyse(target, options);
}

int failed(const Error& error, const Interrupt& interrupt) {
  complain(error.message);
  return interrupt.requested() ? interrupt.code() : kBadInput;
}

}  // namespace nanscope::cli
