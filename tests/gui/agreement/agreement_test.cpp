#include "tests/gui/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "gui/opened_run.h"

/// What the window prepares of dumps of the corpus against the JSON of its diagnosis. NANSCOPE_CORPUS is where
/// another test has left the dumps.
namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;

TEST(AgreementTest, OverDumpsOfTheCorpus) {
  std::vector<fs::path> dumps;
  std::error_code none;
  const bool all = std::getenv("NANSCOPE_LONG_TESTS") != nullptr;
  for (const fs::directory_entry& entry : fs::directory_iterator(NANSCOPE_CORPUS, none)) {
    const bool first_shape = entry.path().filename().string().find("-shape0-") != std::string::npos;
    if (entry.is_directory() && (all || first_shape)) dumps.push_back(entry.path());
  }
  if (dumps.empty()) GTEST_SKIP() << "there is no corpus in " << NANSCOPE_CORPUS;
  std::sort(dumps.begin(), dumps.end());
  // All of them take minutes.
  const std::size_t each = all ? 1 : 4;
  for (std::size_t i = 0; i < dumps.size(); i += each) expect_agreement(dumps[i]);
}

/// Dumps as programs write them, small and odd, which lie in the repository.
TEST(AgreementTest, OverDumpsOfOtherPrograms) {
  const fs::path folder = fs::path(NANSCOPE_SOURCE_DIR) / "tests" / "golden" / "dumps";
  std::size_t opened = 0;
  const auto look = [&](const fs::path& target) {
    if (!open_run(target)) return;  // those that are refused, and what is no dump
    ++opened;
    expect_agreement(target);
  };
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) look(entry.path());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "producers")) look(entry.path());
  EXPECT_GT(opened, 20U);
}

}  // namespace
}  // namespace nanscope::gui
