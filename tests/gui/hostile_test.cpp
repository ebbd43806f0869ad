#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "tests/gui/program.h"
#include "tests/temporary_folder.h"

/// What the window is given that it cannot show, and machines that it cannot draw on: a sentence on stderr and exit
/// code 2, never a crash, never a picture.
namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;

class Hostile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = std::make_unique<TemporaryFolder>();
    ASSERT_EQ(run("", "run benign-nan-constant -o run.nanscope").code, 0);
  }
  static void TearDownTestSuite() { folder.reset(); }

  static std::string read(const std::string& name) {
    std::ifstream file(*folder / name, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static void write(const std::string& name, const std::string& bytes) {
    std::ofstream(*folder / name, std::ios::binary) << bytes;
  }
  static Output run(const std::string& environment, const std::string& arguments) {
    const std::string line = "cd '" + folder->path().string() + "' && env -u DISPLAY -u WAYLAND_DISPLAY LC_ALL=C " +
                             environment + " '" NANSCOPE_BINARY "' " + arguments + " >out.txt 2>err.txt </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }
  static void expect_sentence(const Output& output, const std::string& part) {
    EXPECT_EQ(output.code, 2) << output.err;
    EXPECT_EQ(output.out, "");
    EXPECT_THAT(output.err, ::testing::StartsWith("nanscope: "));
    EXPECT_THAT(output.err, ::testing::HasSubstr(part));
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
    EXPECT_FALSE(fs::exists(*folder / "x.png"));
  }
  /// The same recording, spoilt, drawn and given to the window.
  static void expect_refused(const std::string& name, const std::string& bytes, const std::string& part) {
    SCOPED_TRACE(name);
    write(name, bytes);
    expect_sentence(run("", "gui " + name + " --screenshot x.png"), part);
    expect_sentence(run("", "gui " + name), part);
  }

  static std::unique_ptr<TemporaryFolder> folder;
};
std::unique_ptr<TemporaryFolder> Hostile::folder;

TEST_F(Hostile, FilesThatAreNoRecordings) {
  expect_refused("empty.nanscope", "", "empty file");
  expect_refused("text.nanscope", std::string(5000, 'x'), "not a recording");
  const std::string whole = read("run.nanscope");
  std::string foreign = whole;
  foreign.replace(68, 4, 4, '\0');
  expect_refused("foreign.nanscope", foreign, "not a nanscope recording");
}

TEST_F(Hostile, RecordingsOfLaterVersions) {
  std::string newer = read("run.nanscope");
  newer[63] = 99;
  expect_refused("newer.nanscope", newer, "newer nanscope");
}

TEST_F(Hostile, RecordingsThatAreCutAnywhere) {
  const std::string whole = read("run.nanscope");
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{99}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    expect_refused("cut.nanscope", whole.substr(0, size), "cut.nanscope");
  }
}

TEST_F(Hostile, PagesOfRubbishAreAnErrorOnScreen) {
  std::string bytes = read("run.nanscope");
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 4), bytes.end(), '\x5a');
  write("rubbish.nanscope", bytes);
  const Output output = run("", "gui rubbish.nanscope --screenshot rubbish.png --size 600x400");
  // Either it is refused at once, or the views that cannot be read say so in the picture.
  EXPECT_TRUE(output.code == 0 || output.code == 2) << output.code << output.err;
  EXPECT_LE(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
}

TEST_F(Hostile, WithoutOpenGlThereIsOneLine) {
  for (const char* environment : {"__EGL_VENDOR_LIBRARY_DIRS=/nonexistent", "MESA_GL_VERSION_OVERRIDE=1.1"}) {
    SCOPED_TRACE(environment);
    expect_sentence(run(environment, "gui run.nanscope --screenshot x.png"), "");
  }
}

TEST_F(Hostile, WithoutADisplayThereIsOneLine) {
  expect_sentence(run("", "gui run.nanscope"), "display");
  expect_sentence(run("DISPLAY=:4711", "gui run.nanscope"), "display");
}

TEST_F(Hostile, ARecordingIsShownFromAFolderThatMayNotBeWritten) {
  fs::create_directories(*folder / "locked");
  fs::copy_file(*folder / "run.nanscope", *folder / "locked" / "run.nanscope");
  ASSERT_EQ(::chmod((*folder / "locked").c_str(), 0555), 0);
  const Output output = run("", "gui locked/run.nanscope --screenshot shown.png --size 600x400");
  ASSERT_EQ(::chmod((*folder / "locked").c_str(), 0755), 0);
  if (output.code == 2 && output.err.find("EGL") != std::string::npos) GTEST_SKIP() << output.err;
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_TRUE(fs::exists(*folder / "shown.png"));
  // Not even root writes there.
  EXPECT_THAT(run("", "gui run.nanscope --screenshot /proc/x.png --size 600x400").err,
              ::testing::HasSubstr("/proc/x.png"));
}

}  // namespace
}  // namespace nanscope::gui
