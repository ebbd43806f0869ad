#include "scenarios/library.h"

#include <fmt/format.h>

#include <cstdlib>
#include <system_error>
#include <vector>

#include "core/files/program_files.h"
#include "instrument/files/near_names.h"
#include "scenarios/scenario.h"
#include "scenarios/target_kind.h"

namespace nanscope::scenarios {

namespace fs = std::filesystem;

fs::path library_folder() {
  const char* named = std::getenv("NANSCOPE_SCENARIOS");
  if (named != nullptr && *named != '\0') return named;
  const fs::path ours = shared_file("scenarios");
  return ours.empty() ? fs::path("scenarios") : ours;
}

Result<fs::path> find_scenario(const std::string& typed) {
  std::error_code error;
  const bool path = typed.find('/') != std::string::npos || typed.ends_with(".toml");
  if (path || fs::exists(typed, error)) {
    if (Status taken = check_target(typed, Takes::scenarios); !taken) return tl::unexpected(taken.error());
    return fs::path(typed);
  }
  const fs::path folder = library_folder();
  const fs::path file = folder / (typed + ".toml");
  if (fs::exists(file, error)) return file;
  std::vector<std::string> names;
  if (const auto files = scenario_files(folder)) {
    for (const fs::path& path : *files) names.push_back(path.stem().string());
  }
  return fail(fmt::format("'{}': no such file, and no scenario of that name in {}{}", typed, folder.string(),
                          did_you_mean(typed, names)));
}

}  // namespace nanscope::scenarios
