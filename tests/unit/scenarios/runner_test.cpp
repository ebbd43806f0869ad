#include "scenarios/runner.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"

namespace nanscope::scenarios {
namespace {

namespace fs = std::filesystem;

Scenario flagship() {
  return load_scenario(fs::path(NANSCOPE_SOURCE_DIR) / "scenarios" / "kv-scale-lock.toml").value();
}

/// A device that no build opens: whatever is said before it was asked for.
RunnerOptions without_device(const fs::path& output) {
  RunnerOptions options;
  options.output = output;
  options.device = "abacus";
  return options;
}

TEST(Runner, TheFileIsClaimedBeforeTheModelIsLoaded) {
  const TemporaryFolder folder;
  const fs::path path = folder / "run.nanscope";
  std::ofstream(path) << "somebody's";
  const auto run = run_scenario(flagship(), without_device(path));
  ASSERT_FALSE(run);
  EXPECT_TRUE(run.error().message.starts_with(path.string())) << run.error().message;
}

TEST(Runner, AFileThatWasClaimedForNothingIsRemoved) {
  const TemporaryFolder folder;
  const fs::path path = folder / "run.nanscope";
  const auto run = run_scenario(flagship(), without_device(path));
  ASSERT_FALSE(run);
  EXPECT_NE(run.error().message.find("abacus"), std::string::npos) << run.error().message;
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace nanscope::scenarios
