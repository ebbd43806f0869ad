#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/facts_files.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "core/counted.h"
#include "core/files/output_file.h"
#include "instrument/facts/facts_file.h"
#include "scenarios/divided_scan.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {
namespace {

constexpr std::int64_t kMostParts = 1'000'000;

struct ScanArguments {
  std::string target;
  std::string part = "1/1";
  std::string output;
  std::string model;
  bool progress = false;
  bool follow_links = false;
};

/// "3/8": number and parts in all.
Result<std::pair<std::int64_t, std::int64_t>> read_part(const std::string& text) {
  std::pair<std::int64_t, std::int64_t> part{0, 0};
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, part.first);
  const bool slash = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  const auto second = slash ? std::from_chars(first.ptr + 1, end, part.second) : first;
  const bool whole = slash && second.ec == std::errc() && second.ptr == end;
  if (!whole || part.second < 1 || part.second > kMostParts || part.first < 1 || part.first > part.second)
    return fail(fmt::format("--part: '{}': expected K/N with K from 1 to N, N at most {}", text, kMostParts));
  return part;
}

/// What the file may not be: one of the dump's, or one that would become a part of it.
Status check_place(const ScanArguments& arguments) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(arguments.output).parent_path();
  if (std::filesystem::is_directory(arguments.target, error) && lies_below(folder, arguments.target))
    return fail(arguments.output + ": lies within the dump: name a file elsewhere");
  if (std::filesystem::equivalent(arguments.output, arguments.target, error))
    return fail(arguments.output + ": is the dump: name another file");
  return std::filesystem::exists(arguments.output, error) ? Status() : check_output(arguments.output, {});
}

int scan_dump(const ScanArguments& arguments, const Interrupt& interrupt) {
  const auto part = read_part(arguments.part);
  if (!part) return complain(part.error().message);
  if (Status taken = scenarios::check_target(arguments.target, scenarios::Takes::dumps); !taken)
    return complain(taken.error().message);
  if (Status place = check_place(arguments); !place) return complain(place.error().message);
  scenarios::OpenRunOptions opening;
  opening.stop = interrupt.token();
  opening.follow_links = arguments.follow_links;
  opening.model = arguments.model;
  auto opened = scenarios::DividedScan::open(arguments.target, opening, {.parts = part->second});
  if (!opened) return failed(opened.error(), interrupt);
  scenarios::DividedScan& scan = **opened;
  const auto unread = [](const RunNote& one) { complain("not read: " + one.text); };
  const scenarios::ScanShare& share = scan.shares()[static_cast<std::size_t>(part->first - 1)];
  const FactsOrigin origin{facts_maker(), scan.dump_key(), part->second};
  DumpFacts known;
  auto file = FactsFile::open(arguments.output, origin, part->first, known);
  if (!file) return complain(file.error().message);
  FactsPart state{0, false};
  if (known.parts().empty()) file->add(facts_records::part(part->first, state));
  std::size_t added = 0;
  const auto sink = [&](const std::string& record) {
    file->add(record);
    ++added;
  };
  const auto worked = [&] {
    ProgressLine line("MiB of work", arguments.progress);
    return scan.work(
        share, known, sink, interrupt.token(),
        [&line](std::int64_t done, std::int64_t total) { line.show(done >> 20, total >> 20, ""); }, unread);
  }();
  if (!file->status()) return complain(file->status().error().message);
  if (!worked) {
    if (interrupt.requested()) complain(fmt::format("stopped: the same command continues from here"));
    return interrupt.requested() ? interrupt.code() : complain(worked.error().message);
  }
  state = {worked->tensors, true};
  const auto before = known.parts().find(part->first);
  if (before == known.parts().end() || !before->second.complete) file->add(facts_records::part(part->first, state));
  if (!file->status()) return complain(file->status().error().message);
  print(fmt::format("{}: part {} of {}, {} scanned, {} recomputed{}\n", arguments.output, part->first, part->second,
                    counted(state.tensors, "tensor"), counted(worked->outputs, "output"),
                    added == 0 ? "; all of it was there already" : ""));
  return kClean;
}

}  // namespace

void add_scan_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ScanArguments>();
  CLI::App* command = app.add_subcommand("scan", "Compute a share of a dump's facts, for many processes to divide it");
  command->add_option("DUMP", arguments->target, "A file or folder of tensors")->required();
  command->add_option("--part", arguments->part, "Which share: K/N is number K of N, from 1 (default: 1/1)")
      ->type_name("K/N");
  command->add_option("-o,--output", arguments->output, "Write the facts here, or continue a file that was interrupted")
      ->type_name("FILE")
      ->required();
  add_dump_model(*command, arguments->model);
  command->add_flag("--progress", arguments->progress, "Show progress even if standard error is not a terminal");
  add_follow_links(*command, arguments->follow_links);
  command->footer(
      "Facts are the health of tensors and the recomputation of products. Each process lists the whole dump and reads "
      "its share. 'nanscope merge' joins the parts, and 'nanscope diagnose --facts' uses them.\n"
      "\n"
      "Examples:\n"
      "  nanscope scan dump/ --part 1/4 -o part-1.nanscope\n"
      "  srun -n 64 sh -c 'nanscope scan dump/ --part $((SLURM_PROCID + 1))/64 -o part-$SLURM_PROCID.nanscope'\n"
      "\n"
      "Exit codes: 0 complete; 2 bad usage, or the dump cannot be read; 130 interrupted: the same command continues.");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt& interrupt) { return scan_dump(*arguments, interrupt); };
  });
}

}  // namespace nanscope::cli
