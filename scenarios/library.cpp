#include "scenarios/library.h"

#include <fmt/format.h>

#include <cstdlib>
#include <system_error>
#include <vector>

#include "core/files/program_files.h"
#include "instrument/files/near_names.h"
#include "scenarios/scenario.h"

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
  if (fs::exists(typed, error)) return fs::path(typed);
  if (typed.find('/') != std::string::npos || typed.ends_with(".toml")) {
    return fail(fmt::format("{}: no such scenario file or folder", typed));
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
