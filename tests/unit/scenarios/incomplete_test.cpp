#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <string>

#include "scenarios/analysis.h"
#include "scenarios/runner.h"
#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"

namespace nanscope::scenarios {
namespace {

namespace fs = std::filesystem;

/// What a recording says whose process died before the run ended: its writer wrote no end, and nobody writes now.
void leave_unfinished(const fs::path& path) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.string().c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, "UPDATE progress SET state = 'recording'", nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(database);
  sqlite3_close(database);
}

Diagnosis diagnosis_of(const fs::path& path) {
  const auto run = OpenRun::open(path);
  EXPECT_TRUE(run) << run.error().message;
  return analyse(**run, {})->diagnosis;
}

/// A recording of a scenario of the library.
void record_scenario(const std::string& name, const fs::path& path) {
  const Scenario scenario = load_scenario(fs::path(NANSCOPE_SOURCE_DIR) / "scenarios" / (name + ".toml")).value();
  RunnerOptions options;
  options.output = path;
  options.capture = "none";
  ASSERT_TRUE(run_scenario(*workbench_for(scenario, options).value(), scenario, options));
}

TEST(Incomplete, AnInterruptedRecordingWithoutAFaultIsNeverClean) {
  const TemporaryFolder folder;
  const fs::path path = folder / "run.nanscope";
  record_scenario("two-pass-variance", path);
  EXPECT_TRUE(diagnosis_of(path).healthy());
  leave_unfinished(path);
  const Diagnosis cut = diagnosis_of(path);
  EXPECT_EQ(cut.verdict(), Verdict::no_fault_found);
  EXPECT_TRUE(cut.completeness.interrupted);
  const Recording recording = Recording::open(path).value();
  EXPECT_EQ(cut.completeness.read, recording.counts()->ops);
  EXPECT_EQ(cut.completeness.expected, recording.counts()->expected_ops);
  EXPECT_TRUE(cut.completeness.reached.ends_with("argmax")) << cut.completeness.reached << ": how far it got";
}

TEST(Incomplete, AFaultIsAFaultThoughTheRecordingWasCutOff) {
  const TemporaryFolder folder;
  const fs::path path = folder / "run.nanscope";
  record_scenario("zero-scale", path);
  leave_unfinished(path);
  const Diagnosis cut = diagnosis_of(path);
  EXPECT_EQ(cut.verdict(), Verdict::fault);
  EXPECT_TRUE(cut.completeness.interrupted);
}

}  // namespace
}  // namespace nanscope::scenarios
