#include "core/files/program_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

class ProgramFiles : public ::testing::Test {
 protected:
  void make(const std::string& name) {
    fs::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name) << "x";
  }
  TemporaryFolder folder_;
  fs::path bin_ = folder_.path() / "bin";
};

TEST_F(ProgramFiles, AreThoseOfTheInstallation) {
  make("share/nanscope/scenarios/a.toml");
  EXPECT_EQ(shared_file("scenarios", bin_), folder_.path() / "share/nanscope/scenarios");
  make("bin/share/nanscope/scenarios/a.toml");
  EXPECT_EQ(shared_file("scenarios", bin_), folder_.path() / "share/nanscope/scenarios") << "before those of a build";
}

TEST_F(ProgramFiles, AreThoseOfTheBuildWhereNothingIsInstalled) {
  make("bin/share/nanscope/scenarios/a.toml");
  make("bin/libx.so");
  EXPECT_EQ(shared_file("scenarios", bin_), bin_ / "share/nanscope/scenarios");
  EXPECT_EQ(library_file("libx.so", bin_), bin_ / "libx.so");
}

TEST_F(ProgramFiles, AreNowhere) {
  EXPECT_EQ(shared_file("scenarios", bin_), fs::path());
  EXPECT_EQ(library_file("libx.so", bin_), fs::path());
  EXPECT_EQ(shared_file("etc/passwd", fs::path()), fs::path());
}

TEST(ProgramFolder, IsThatOfTheRunningProgram) {
  EXPECT_TRUE(fs::exists(program_folder() / "test_core")) << program_folder();
}

}  // namespace
}  // namespace nanscope
