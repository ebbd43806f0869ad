#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "core/files/output_file.h"
#include "instrument/files/file.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

class Files : public testing::Test {
 protected:
  TemporaryFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
};

TEST_F(Files, WrittenBytesAreReadBack) {
  const std::string text("a\0b\xFF", 4);
  const auto path = directory_ / "file";
  for (const std::string& content : {text, std::string(), std::string(300'000, 'x')}) {
    ASSERT_TRUE(write_output(path, std::as_bytes(std::span(content)), {.replace = true}).has_value());
    EXPECT_EQ(as_text(read_file(path, 300'000).value()), content);
    EXPECT_EQ(as_text(MappedFile::open(path)->bytes()), content);
  }
  // Nothing stays beside the file.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(Files, LimitsAndKindsAreChecked) {
  const auto path = directory_ / "file";
  const std::string text = "12345";
  ASSERT_TRUE(write_output(path, std::as_bytes(std::span(text)), {.replace = true}).has_value());
  EXPECT_EQ(read_file(path, 4).error().message, path.string() + ": 5 bytes, expected at most 4");
  EXPECT_EQ(read_file(directory_, 4).error().message, directory_.string() + ": not a regular file");
  EXPECT_EQ(MappedFile::open(directory_).error().message, directory_.string() + ": not a regular file");
  const auto pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_file(pipe, 4).error().message, pipe.string() + ": not a regular file");
  const auto nowhere = directory_ / "none" / "file";
  EXPECT_EQ(write_output(nowhere, "").error().message,
            nowhere.string() + ": there is no folder '" + nowhere.parent_path().string() + "'");
}

}  // namespace
}  // namespace nanscope
