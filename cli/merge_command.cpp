#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/facts_files.h"
#include "core/counted.h"
#include "core/files/output_file.h"

namespace nanscope::cli {
namespace {

struct MergeArguments {
  std::vector<std::string> parts;
  std::string output;
  bool allow_missing = false;
  bool force = false;
};

/// Error: a part is missing, or was not finished.
Status check_whole(const DumpFacts& facts) {
  std::int64_t missing = 0;
  std::int64_t first = 0;
  for (std::int64_t number = 1; number <= facts.origin().parts; ++number) {
    const auto found = facts.parts().find(number);
    if (found != facts.parts().end() && found->second.complete) continue;
    if (missing++ == 0) first = number;
  }
  if (missing == 0) return {};
  const bool begun = facts.parts().contains(first);
  return fail(fmt::format("part {} of {} is {}{}: scan it, or give --allow-missing", first, facts.origin().parts,
                          begun ? "not finished" : "missing",
                          missing > 1 ? fmt::format(", and {} more", missing - 1) : std::string()));
}

int merge_parts(const MergeArguments& arguments, const Interrupt& interrupt) {
  const std::vector<std::filesystem::path> inputs(arguments.parts.begin(), arguments.parts.end());
  if (Status can = check_output(arguments.output, {.replace = arguments.force, .inputs = inputs}); !can)
    return complain(can.error().message);
  DumpFacts facts;
  for (const std::string& path : arguments.parts) {
    if (interrupt.requested()) return interrupt.code();
    auto part = read_facts(path);
    if (!part) return complain(part.error().message);
    if (Status merged = facts.merge(std::move(**part)); !merged) return complain(merged.error().message);
  }
  const Status whole = check_whole(facts);
  if (!whole && !arguments.allow_missing) return complain(whole.error().message);
  if (Status written = facts.write(arguments.output, arguments.force, inputs); !written)
    return complain(written.error().message);
  print(fmt::format("{}: {} of {}, {}, {}\n", arguments.output, facts.parts().size(),
                    counted(facts.origin().parts, "part"),
                    counted(static_cast<std::int64_t>(facts.tensors()), "tensor"),
                    counted(static_cast<std::int64_t>(facts.judgements()), "recomputed output")));
  return kClean;
}

}  // namespace

void add_merge_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<MergeArguments>();
  CLI::App* command = app.add_subcommand("merge", "Join the parts of a divided scan");
  command->add_option("PART", arguments->parts, "Files of 'nanscope scan', or of an earlier merge")
      ->type_name("FILE")
      ->required();
  command->add_option("-o,--output", arguments->output, "Write all facts here")->type_name("FILE")->required();
  command->add_flag("--allow-missing", arguments->allow_missing, "Accept missing and unfinished parts");
  command->add_flag("--force", arguments->force, "Replace an existing file");
  command->footer(
      "Examples:\n"
      "  nanscope merge part-*.nanscope -o facts.nanscope\n"
      "  nanscope diagnose dump/ --facts facts.nanscope\n"
      "\n"
      "Exit codes: 0 merged; 2 bad usage, or a part is missing, unfinished, doubled, damaged or of another dump.");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt& interrupt) { return merge_parts(*arguments, interrupt); };
  });
}

}  // namespace nanscope::cli
