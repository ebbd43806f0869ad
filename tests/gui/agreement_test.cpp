#include "tests/gui/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

/// What the window prepares of every dump of the corpus against the JSON of its diagnosis. NANSCOPE_CORPUS is where
/// another test has left the dumps.
namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;

TEST(AgreementTest, OverEveryDumpOfTheCorpus) {
  std::vector<fs::path> dumps;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(NANSCOPE_CORPUS, none)) {
    if (entry.is_directory()) dumps.push_back(entry.path());
  }
  if (dumps.empty()) GTEST_SKIP() << "there is no corpus in " << NANSCOPE_CORPUS;
  std::sort(dumps.begin(), dumps.end());
  for (const fs::path& dump : dumps) expect_agreement(dump);
}

}  // namespace
}  // namespace nanscope::gui
