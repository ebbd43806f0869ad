#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/dump/dump_run.h"
#include "core/files/output_file.h"
#include "core/recording/reader.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/dump/attach.h"
#include "instrument/dump/open_dump.h"
#include "instrument/files/file.h"
#include "instrument/recompute/arithmetic.h"
#include "instrument/weights/safetensors.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ChangingDump : public testing::Test {
 protected:
  fs::path write(const fs::path& name, std::size_t tensors, std::int64_t rows,
                 const std::string& key = "model.layers.{}.mlp.output") {
    std::vector<float> values(static_cast<std::size_t>(rows) * 8);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 91) - 45.0F;
    std::vector<SafetensorsInput> inputs;
    for (std::size_t i = 0; i < tensors; ++i) {
      std::string own = key;
      own.replace(own.find("{}"), 2, std::to_string(i));
      inputs.push_back({own, "F32", {rows, 8}, std::as_bytes(std::span(values))});
    }
    const auto bytes = encode_safetensors(std::move(inputs)).value();
    fs::create_directories((folder_ / name).parent_path());
    EXPECT_TRUE(write_output(folder_ / name, bytes, {.replace = true}));
    return folder_ / name;
  }
  std::vector<std::string> notes(const OpenDump& dump) {
    std::vector<std::string> all;
    for (const RunNote& note : dump.dump().notes) all.push_back(note.tensor + ": " + note.text);
    return all;
  }

  TemporaryFolder folder_;
};

/// Files of all sizes: such as are read whole, such as are mapped when they are asked for, such as stay mapped.
TEST_F(ChangingDump, IsRefusedWhenItIsCutOffWhileItIsScanned) {
  for (const std::int64_t rows : {100, 10'000, 1'000'000}) {
    const fs::path path = write("dump.safetensors", 8, rows);
    OpenDumpOptions options;
    bool cut = false;
    options.progress = [&](std::uint64_t, std::uint64_t) {
      if (!cut) fs::resize_file(path, 600);
      cut = true;
    };
    const auto dump = OpenDump::open(path, options);
    ASSERT_FALSE(dump) << rows;
    EXPECT_EQ(dump.error().message, path.string() + ": changed while it was read");
  }
}

TEST_F(ChangingDump, IsRefusedWhenItChangesAfterItWasScanned) {
  for (const std::int64_t rows : {100, 10'000, 1'000'000}) {
    const fs::path path = write("dump/x.safetensors", 8, rows);
    const auto dump = OpenDump::open(folder_ / "dump");
    ASSERT_TRUE(dump) << dump.error().message;
    EXPECT_TRUE((*dump)->check());
    fs::resize_file(path, 600);
    const auto attached = attach(**dump, folder_ / "out.nanscope", {});
    ASSERT_FALSE(attached);
    EXPECT_EQ(attached.error().message, path.string() + ": changed while it was read");
    EXPECT_FALSE(fs::exists(folder_ / "out.nanscope"));
  }
}

TEST_F(ChangingDump, IsOfRegularFilesThatLieInIt) {
  write("dump/x.safetensors", 1, 4);
  const fs::path outside = write("outside.safetensors", 1, 4, "elsewhere.{}");
  fs::create_symlink(outside, folder_ / "dump/link.safetensors");
  fs::create_symlink("x.safetensors", folder_ / "dump/again.safetensors");
  ASSERT_EQ(::mkfifo((folder_ / "dump/pipe.safetensors").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", folder_ / "dump/zero.npy");
  fs::create_symlink("/proc/self/mem", folder_ / "dump/mem.npy");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string at = (folder_ / "dump/socket").string();
  std::copy(at.begin(), at.end(), address.sun_path);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(listener);

  const auto dump = OpenDump::open(folder_ / "dump");
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_EQ((*dump)->dump().tensors.size(), 2U) << "a link within the dump is read";
  const std::string out = ": a link to a file out of the dump, which is not read without --follow-links";
  EXPECT_THAT(notes(**dump), testing::IsSupersetOf({"link.safetensors" + out, "mem.npy" + out,
                                                    std::string("pipe.safetensors: a named pipe, which is not read"),
                                                    std::string("zero.npy: a device, which is not read"),
                                                    std::string("socket: a socket, which is not read")}));
  OpenDumpOptions follow;
  follow.follow_links = true;
  const auto followed = OpenDump::open(folder_ / "dump", follow);
  ASSERT_TRUE(followed) << followed.error().message;
  EXPECT_EQ((*followed)->dump().tensors.size(), 3U);
  EXPECT_EQ(OpenDump::open(folder_ / "dump/pipe.safetensors").error().message,
            (folder_ / "dump/pipe.safetensors").string() + ": a named pipe, expected a file or a folder");
}

/// An index may name what the listing left out.
TEST_F(ChangingDump, DoesNotReachOutOfItselfByAnIndex) {
  const fs::path outside = write("outside.safetensors", 1, 4, "w.{}");
  fs::create_directories(folder_ / "dump");
  fs::create_symlink(outside, folder_ / "dump/shard.safetensors");
  std::ofstream(folder_ / "dump/model.safetensors.index.json")
      << R"({"metadata": {}, "weight_map": {"w.0": "shard.safetensors"}})";
  EXPECT_THAT(OpenDump::open(folder_ / "dump").error().message, HasSubstr("a link to a file out of the dump"));
  OpenDumpOptions follow;
  follow.follow_links = true;
  EXPECT_TRUE(OpenDump::open(folder_ / "dump", follow));
}

TEST_F(ChangingDump, SaysWhenThereAreNoDescriptors) {
  write("dump/deep/x.safetensors", 1, 4);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);
  ::close(next);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(next) + 1;  // one, for the folder: there is none for what lies in it
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto dump = OpenDump::open(folder_ / "dump");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(dump);
  EXPECT_THAT(dump.error().message, HasSubstr("Too many open files"));
}

TEST_F(ChangingDump, IsAttachedWithTensorsThatHaveNoElements) {
  const std::vector<float> values(8);
  const auto bytes =
      encode_safetensors({{"past_key_values.0", "F32", {1, 0, 8}, {}},
                          {"model.layers.0.mlp.output", "F32", {0, 1024}, {}},
                          {"model.layers.1.mlp.output", "F32", {2, 4}, std::as_bytes(std::span(values))}})
          .value();
  ASSERT_TRUE(write_output(folder_ / "dump.safetensors", bytes));
  const auto dump = OpenDump::open(folder_ / "dump.safetensors");
  ASSERT_TRUE(dump) << dump.error().message;
  const auto attached = attach(**dump, folder_ / "out.nanscope", {});
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_EQ(attached->tensors, 3);
  EXPECT_TRUE(Recording::open(folder_ / "out.nanscope")->check());
}

/// Each took its square: minutes.
TEST_F(ChangingDump, OfManyTensorsTakesTimeInProportion) {
  for (const std::string key : {"t.{}.foo", "t.{}.q_proj.output", "block.{}.input", "rank_0/step_{}/x.output"}) {
    const fs::path path = write("dump.safetensors", 30'000, 1, key);
    const auto start = std::chrono::steady_clock::now();
    const auto dump = OpenDump::open(path);
    ASSERT_TRUE(dump) << dump.error().message;
    DumpRun run((*dump)->dump(), **dump);
    PlainArithmetic arithmetic;
    EXPECT_TRUE(diagnose(run, arithmetic, {}));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << key;
  }
}

}  // namespace
}  // namespace nanscope
