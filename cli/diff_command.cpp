#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/open_target.h"
#include "core/run/find_place.h"
#include "instrument/diff/diff.h"
#include "instrument/files/file.h"
#include "scenarios/report/diff_report.h"
#include "scenarios/report/run_json.h"

namespace nanscope::cli {

namespace {

struct DiffCommandOptions {
  std::string a;
  std::string b;
  std::string repeat;
  std::string map;
  std::size_t limit = 1;
  std::string format = "text";
  bool follow_links = false;
};

constexpr std::uint64_t kMostMap = std::uint64_t{1} << 20;  ///< bytes of a file of names

using Open = Result<std::unique_ptr<scenarios::OpenRun>>;

/// Prints elements that could not be read as one line on standard error. Files that could not be read have their own
/// lines.
void complain_unread_elements(const std::vector<scenarios::OpenRun*>& runs, const DiffCommandOptions& options) {
  const std::array<const std::string*, 3> targets = {&options.a, &options.b, &options.repeat};
  std::string first;
  std::size_t all = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const UnreadElements& one : runs[i]->view().unread()) {
      if (all++ > 0) continue;
      const Tensor* tensor = runs[i]->view().tensor(one.tensor);
      const std::string name = tensor != nullptr ? place_of(runs[i]->view(), *tensor) : "a tensor";
      first = fmt::format("{}: {} could not be read: {}", *targets[i], name, one.text);
    }
  }
  if (all > 0) complain(first + (all > 1 ? fmt::format("; and {} more", all - 1) : ""));
}

int compare(const std::vector<scenarios::OpenRun*>& runs, const DiffOptions& diff_options,
            const DiffCommandOptions& options, const Interrupt& interrupt) {
  const Result<DiffReport> found = diff(runs[0]->view(), runs[1]->view(), diff_options);
  // No target may have changed while it was read.
  for (scenarios::OpenRun* run : runs) {
    if (const Status same = run->check(); !same) return failed(same.error(), interrupt);
  }
  if (!found) return failed(found.error(), interrupt);
  print(options.format == "json" ? report::dump_json(to_json(*found))
                                 : report::diff_text(*found, options.a, options.b, output_terminal()));
  const bool whole = std::all_of(runs.begin(), runs.end(), [](scenarios::OpenRun* run) {
    return run->unread().empty() && run->view().unread().empty();
  });
  complain_unread_elements(runs, options);
  return !whole ? kBadInput : found->same() ? kClean : kFound;
}

Result<align::NameMap> read_map(const std::string& path) {
  if (path.empty()) return align::NameMap{};
  const auto bytes = read_file(path, kMostMap);
  if (!bytes) return tl::unexpected(bytes.error());
  Result<align::NameMap> map = align::parse_name_map({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  return map ? std::move(map) : fail(path + ": " + map.error().message);
}

int compare_targets(const DiffCommandOptions& options, const Interrupt& interrupt) {
  DiffOptions diff_options;
  diff_options.limit = options.limit;
  Result<align::NameMap> map = read_map(options.map);
  if (!map) return failed(map.error(), interrupt);
  diff_options.names = std::move(*map);
  std::vector<std::unique_ptr<scenarios::OpenRun>> open;
  std::vector<scenarios::OpenRun*> runs;
  for (const std::string& target : {options.a, options.b, options.repeat}) {
    if (target.empty()) continue;
    Open one = open_target(target, interrupt, {.follow_links = options.follow_links});
    if (!one) return failed(one.error(), interrupt);
    open.push_back(std::move(*one));
    runs.push_back(open.back().get());
  }
  if (runs.size() > 2) diff_options.repeat = &runs[2]->view();
  return compare(runs, diff_options, options, interrupt);
}

}  // namespace

void add_diff_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<DiffCommandOptions>();
  CLI::App* command = app.add_subcommand("diff", "Find the first tensor in which two runs differ, and how");
  command->add_option("A", options->a, "A recording, or a dump")->required();
  command->add_option("B", options->b, "Another recording or dump")->required();
  command->add_option("-n,--limit", options->limit, "Number of differences to describe")
      ->type_name("N")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "A again: measures the noise between two healthy runs")
      ->type_name("C");
  command->add_option("--map", options->map, "Lines of a name in A, the same tensor's in B, and how ranks are joined")
      ->type_name("FILE");
  add_follow_links(*command, options->follow_links);
  add_format(*command, options->format, {"text", "json"});
  command->footer(
      "nanscope aligns two runs: sequences by their tokens, rows by sequence and position, tensors by name, op or "
      "content; ranks are joined. It compares two recordings bit for bit, and others as numbers. Numbers are the same "
      "if "
      "they differ by no more than rounding explains. Of what differs by more, it shows first what stands out of the "
      "noise between the two.\n"
      "\n"
      "Examples:\n"
      "  nanscope diff before.nanscope after.nanscope\n"
      "  nanscope diff a.nanscope b.nanscope -n 5 --format json\n"
      "  nanscope diff good/ bad/\n"
      "  nanscope diff run.nanscope dump/        nanscope's engine against a server\n"
      "  nanscope diff tp1/ tp2/ --map names     names that nanscope cannot match\n"
      "  nanscope diff a/ b/ --repeat a2/        a2 is A again\n"
      "\n"
      "Exit codes: 0 the same, 1 different, 2 bad usage or bad input, 130 interrupted.");
  command->callback([options, &action] {
    action = [options](Interrupt& interrupt) { return compare_targets(*options, interrupt); };
  });
}

}  // namespace nanscope::cli
