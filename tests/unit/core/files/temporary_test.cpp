#include "core/files/temporary.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "core/files/output_file.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

TEST(Temporaries, NamesAreNew) {
  std::set<fs::path> names;
  for (int i = 0; i < 100; ++i) names.insert(temporaries::name_beside("folder/file").value());
  EXPECT_EQ(names.size(), 100U);
  EXPECT_EQ(names.begin()->parent_path(), "folder");
}

TEST(Temporaries, NamesAreKnownAgain) {
  for (const std::string& target : {std::string("config.json"), std::string(255, 'x')}) {
    const std::string name = temporaries::name_beside("folder/" + target).value().filename().string();
    EXPECT_TRUE(temporaries::is_beside(name, target));
    EXPECT_FALSE(temporaries::is_beside(name, "other"));
  }
  for (const char* name : {"config.json", "config.json.tmp", "config.json.before.tmp", "config.json.aaaabbbbcccc",
                           "config.json.AAAABBBBCCCC.tmp", "config.json.aaaabbbbccccd.tmp"})
    EXPECT_FALSE(temporaries::is_beside(name, "config.json")) << name;
  EXPECT_TRUE(temporaries::is_beside("config.json.aaaabbbbcc27.tmp", "config.json"));
}

TEST(Temporaries, AtTheEndAllThatIsEnteredGoesAndNothingElse) {
  const TemporaryFolder folder;
  std::ofstream(folder / "mine") << "mine";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::chdir(folder.path().c_str()) != 0) std::_Exit(2);
    auto file = OutputFile::create("mine", {.replace = true});
    auto dump = OutputFolder::create("dump", {});
    auto empty = OutputFile::create_in_view("empty", {});
    auto viewed = OutputFile::create_in_view("viewed", {});
    if (viewed) viewed->keep();
    const std::string text = "x";
    if (!file || !empty || !viewed || !dump || !dump->write("a/b", std::as_bytes(std::span(text)))) std::_Exit(3);
    std::ofstream(file->path().string() + "-journal") << "ours";
    if (::chdir("/") != 0) std::_Exit(2);
    temporaries::remove_all();
    // Nothing can be begun any more.
    std::_Exit(OutputFile::create(folder / "late", {}) ? 4 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder.path())) left.insert(entry.path().filename().string());
  EXPECT_EQ(left, (std::set<std::string>{"mine", "viewed"}));
}

}  // namespace
}  // namespace nanscope
