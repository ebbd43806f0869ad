#include "cli/open_target.h"

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/progress.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {

Result<std::unique_ptr<scenarios::OpenRun>> open_target(const std::string& path, const Interrupt& interrupt,
                                                        bool progress, const RunLimits& limits, bool follow_links) {
  if (Status taken = scenarios::check_target(path, scenarios::Takes::runs); !taken)
    return tl::unexpected(taken.error());
  auto opened = [&] {
    ProgressLine line("MiB", progress);
    scenarios::OpenRunOptions options;
    options.stop = interrupt.token();
    options.limits = limits;
    options.follow_links = follow_links;
    options.progress = [&line](std::uint64_t done, std::uint64_t total) {
      line.show(static_cast<std::int64_t>(done >> 20), static_cast<std::int64_t>(total >> 20), "");
    };
    return scenarios::OpenRun::open(path, options);
  }();
  if (!opened) return opened;
  // What could not be read is not part of the answer: it is said where a script sees it too.
  for (const RunNote& one : (*opened)->unread()) complain("not read: " + one.text);
  return opened;
}

namespace {

/// What could not be read limits every verdict: it is told with it.
void add_unread(std::span<const RunNote> unread, std::vector<RunNote>& notes) {
  std::set<std::pair<std::string, std::string>> told;
  for (const RunNote& one : notes) told.emplace(one.tensor, one.text);
  for (const RunNote& note : unread) {
    std::string text = "not read: " + note.text;
    if (told.emplace(note.tensor, text).second) notes.push_back({note.tensor, std::move(text)});
  }
}

}  // namespace

Result<scenarios::Analysis> analyse_target(scenarios::OpenRun& target, const Interrupt& interrupt, bool recompute,
                                           bool progress) {
  auto analysis = [&] {
    ProgressLine line("ops", progress);
    DiagnoseOptions options;
    options.target = target.target();
    options.recompute = recompute;
    options.stop = interrupt.token();
    options.progress = [&line](std::size_t done, std::size_t total) {
      line.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "done again");
    };
    return scenarios::analyse(target.view(), options);
  }();
  if (Status same = target.check(); !same) return tl::unexpected(same.error());
  if (!analysis) return fail(target.target() + ": " + analysis.error().message);
  add_unread(target.unread(), analysis->diagnosis.notes);
  if (target.recording() != nullptr) {
    const auto digest = scenarios::digest_of(*target.recording());
    if (!digest) return tl::unexpected(digest.error());
    analysis->digest = *digest;
  }
  return analysis;
}

int failed(const Error& error, const Interrupt& interrupt) {
  complain(error.message);
  return interrupt.requested() ? interrupt.code() : kBadInput;
}

}  // namespace nanscope::cli
