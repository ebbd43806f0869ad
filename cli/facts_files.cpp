#include "cli/facts_files.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "cli/build_commit.h"
#include "scenarios/version.h"

namespace nanscope::cli {

std::string facts_maker() {
  constexpr std::string_view prefix = "@commit: ";
  std::string_view commit = kBuildCommit;
  commit.remove_prefix(prefix.size());
  return fmt::format("{} ({})", scenarios::kVersion, commit.substr(0, commit.find_first_of(",@")));
}

Result<std::optional<DumpFacts>> read_facts(const std::string& path) {
  if (path.empty()) return std::nullopt;
  Result<DumpFacts> facts = DumpFacts::read(path);
  if (!facts) return tl::unexpected(facts.error());
  if (facts->parts().empty()) return fail(path + ": holds no facts");
  if (const std::string maker = facts_maker(); facts->origin().made_by != maker)
    return fail(fmt::format("{}: made by nanscope {}, this is {}: scan again with this one", path,
                            facts->origin().made_by, maker));
  return std::move(*facts);
}

}  // namespace nanscope::cli
