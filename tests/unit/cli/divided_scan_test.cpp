#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/cli/command_fixture.h"

/// `nanscope scan`, `merge` and `diagnose --facts` through the real binary.
namespace {

namespace fs = std::filesystem;
using nanscope::testing::Command;
using nanscope::testing::Output;
using nanscope::testing::Started;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr std::int64_t kRows = 40;  // more than a form is tried on at once
constexpr std::int64_t kIn = 16;
constexpr std::int64_t kOut = 24;

class DividedScan : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    for (int layer = 0; layer < 4; ++layer) write_layer("dump/", layer);
  }

  std::string name(const std::string& folder, int layer, const std::string& what) {
    return folder + "model.layers." + std::to_string(layer) + ".mlp.up_proj." + what + ".npy";
  }

  /// A product of small whole numbers, which f32 holds exactly, and its input, weight and output.
  void write_layer(const std::string& folder, int layer) {
    std::mt19937 random(static_cast<unsigned>(layer));
    const auto draw = [&] { return static_cast<float>(static_cast<int>(random() % 33) - 16) / 8; };
    std::vector<float> x(kRows * kIn);
    std::vector<float> weight(kOut * kIn);
    std::vector<float> out(kRows * kOut);
    for (float& one : x) one = draw();
    for (float& one : weight) one = draw();
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t n = 0; n < kOut; ++n) {
        float sum = 0;
        for (std::int64_t k = 0; k < kIn; ++k)
          sum += x[static_cast<std::size_t>(row * kIn + k)] * weight[static_cast<std::size_t>(n * kIn + k)];
        out[static_cast<std::size_t>(row * kOut + n)] = sum;
      }
    }
    write_npy(name(folder, layer, "input"), kRows, kIn, x);
    write_npy(name(folder, layer, "weight"), kOut, kIn, weight);
    write_npy(name(folder, layer, "output"), kRows, kOut, out);
  }

  /// Writes another number over one of a file. `unseen`: the time of its last write stays.
  void change(const std::string& file, std::int64_t element, float value, bool unseen) {
    const fs::path path = folder_ / file;
    const auto time = fs::last_write_time(path);
    std::string bytes = read(file);
    bytes.replace(128 + 4 * static_cast<std::size_t>(element), 4, reinterpret_cast<const char*>(&value), 4);
    write(file, bytes);
    fs::last_write_time(path, unseen ? time : time + std::chrono::seconds(1));
  }

  void scan(int parts) {
    for (int part = 1; part <= parts; ++part) {
      const Output scanned = run("scan dump --part " + std::to_string(part) + "/" + std::to_string(parts) + " -o p" +
                                 std::to_string(parts) + "-" + std::to_string(part));
      ASSERT_EQ(scanned.code, 0) << scanned.err;
    }
  }

  /// Steps whose files are more than are opened at a time; the weights lie outside of them.
  void write_steps(int steps) {
    fs::remove_all(folder_ / "dump");
    for (int layer = 0; layer < 8; ++layer) {
      write_layer("layers/", layer);
      fs::create_directories(folder_ / "dump");
      fs::copy(folder_ / name("layers/", layer, "weight"), folder_ / name("dump/", layer, "weight"));
      for (int step = 0; step < steps; ++step) {
        const std::string into = "dump/step_" + std::to_string(step) + "/";
        fs::create_directories(folder_ / into);
        for (const char* side : {"input", "output"})
          fs::copy(folder_ / name("layers/", layer, side), folder_ / name(into, layer, side));
      }
    }
  }

  /// Records of tensors and judgements in a file of facts.
  std::set<std::string> facts_in(const std::string& file) {
    const std::string bytes = read(file);
    std::set<std::string> found;
    for (std::size_t at = 17; at + 24 <= bytes.size();) {
      std::uint64_t size = 0;
      std::memcpy(&size, bytes.data() + at, 8);
      const std::string record = bytes.substr(at + 24, size);
      if (record.starts_with('T') || record.starts_with('J')) found.insert(record);
      at += 24 + size;
    }
    return found;
  }

  void expect_same_answers(const std::string& facts) {
    for (const char* form : {"", " --format json", " --brief"}) {
      const Output plain = run(std::string("diagnose dump") + form);
      const Output divided = run("diagnose dump --facts " + facts + form);
      EXPECT_EQ(divided.code, plain.code) << facts << form;
      EXPECT_EQ(divided.out, plain.out) << facts << form;
      EXPECT_EQ(divided.err, plain.err) << facts << form;
    }
  }
};

TEST_F(DividedScan, AnswersAreThoseOfOneProcess) {
  change(name("dump/", 1, "output"), 5, 1000, false);
  change(name("dump/", 2, "input"), 7, std::numeric_limits<float>::quiet_NaN(), false);
  EXPECT_EQ(run("diagnose dump").code, 1);
  for (const int parts : {1, 2, 3, 8}) {
    scan(parts);
    const std::string number = std::to_string(parts);
    const Output merged = run("merge p" + number + "-* -o facts" + number);
    ASSERT_EQ(merged.code, 0) << merged.err;
    EXPECT_THAT(merged.out, HasSubstr("12 tensors")) << "each tensor once";
    EXPECT_THAT(merged.out, ::testing::Not(HasSubstr(" 0 recomputed")));
    expect_same_answers("facts" + number);
  }
  expect_same_answers("p3-2");  // what one part lacks is read
}

TEST_F(DividedScan, PassesAreDividedWithoutOpeningAllFiles) {
  write_steps(20);
  change(name("dump/step_3/", 1, "output"), 5, 1000, false);
  change(name("dump/step_4/", 2, "input"), 7, std::numeric_limits<float>::quiet_NaN(), false);
  EXPECT_EQ(run("diagnose dump").code, 1);
  // 20 steps cannot be divided evenly into 19 parts: they are divided by tensors.
  for (const int parts : {1, 2, 19}) {
    scan(parts);
    const std::string number = std::to_string(parts);
    const Output merged = run("merge p" + number + "-* -o facts" + number);
    ASSERT_EQ(merged.code, 0) << merged.err;
    EXPECT_THAT(merged.out, HasSubstr("328 tensors, 160 recomputed")) << parts;
    EXPECT_EQ(facts_in("facts" + number), facts_in("facts1")) << parts;
  }
  for (const char* facts : {"facts2", "p2-1"}) expect_same_answers(facts);
}

TEST_F(DividedScan, FilesThatAreNotReadAreSaid) {
  write_steps(20);
  write(name("dump/step_7/", 0, "output"), "\x93NUMPY damaged");
  const Output scanned = run("scan dump --part 1/1 -o part");
  EXPECT_EQ(scanned.code, 0) << scanned.err;
  EXPECT_THAT(scanned.err, HasSubstr("step_7"));
  expect_same_answers("part");
  for (int layer = 0; layer < 8; ++layer) {
    for (const char* side : {"input", "output"}) write(name("dump/step_8/", layer, side), "damaged");
  }
  EXPECT_EQ(run("scan dump --part 1/20 -o empty").code, 0) << "a share of which no file can be read";
  for (int part = 1; part <= 20; ++part)
    EXPECT_EQ(run("scan dump --part " + std::to_string(part) + "/20 -o e" + std::to_string(part)).code, 0) << part;
}

TEST_F(DividedScan, FactsStandForWhatWasRead) {
  scan(1);
  const Output before = run("diagnose dump");
  EXPECT_EQ(before.code, 0);
  // Nobody can see these changes, so who reads the bytes finds them, and who uses the facts does not.
  change(name("dump/", 3, "output"), 3, std::numeric_limits<float>::quiet_NaN(), true);
  EXPECT_EQ(run("diagnose dump").code, 1);
  EXPECT_EQ(run("diagnose dump --no-recompute --facts p1-1").code, 0) << "the health of tensors";
  write_layer("dump/", 3);
  scan(2);
  ASSERT_EQ(run("merge p2-1 p2-2 -o facts").code, 0);
  for (std::int64_t row = 20; row < kRows; ++row) change(name("dump/", 2, "output"), row * kOut, 1000, true);
  EXPECT_EQ(run("diagnose dump").code, 1);
  EXPECT_EQ(run("diagnose dump --facts facts").code, 0) << "the recomputation of products";
}

TEST_F(DividedScan, ChangedFilesAreRefused) {
  scan(1);
  change(name("dump/", 3, "weight"), 3, 1, false);
  expect_refused("diagnose dump --facts p1-1", "model.layers.3.mlp.up_proj.weight.npy: is not the file that the facts");
  expect_refused("scan dump -o p1-1", "of another dump, or the dump's files changed");
  fs::create_directories(folder_ / "other");
  fs::copy(folder_ / name("dump/", 0, "input"), folder_ / "other/x.npy");
  expect_refused("diagnose other --facts p1-1", "facts of another dump");
}

TEST_F(DividedScan, PartsHaveToFit) {
  scan(3);
  scan(2);
  expect_refused("merge p3-1 p3-3 -o facts", "part 2 of 3 is missing");
  expect_refused("merge p3-1 -o facts", "part 2 of 3 is missing, and 1 more");
  expect_refused("merge p3-1 p3-1 -o facts", "holds part 1, which is there already");
  expect_refused("merge p3-1 p2-2 -o facts", "of another number of parts");
  expect_refused("merge p3-1 dump -o facts", "dump");
  expect_refused("merge p3-1 small.toml -o facts", "no facts of nanscope");
  EXPECT_EQ(run("merge p3-1 p3-3 -o some --allow-missing").code, 0);
  expect_same_answers("some");
  EXPECT_EQ(run("merge some p3-2 -o all").code, 0) << "a merged file is a part again";
  EXPECT_EQ(run("merge p3-3 p3-2 p3-1 -o other").code, 0);
  EXPECT_EQ(read("all"), read("other")) << "the order does not matter";
  expect_refused("merge p3-1 p3-2 p3-3 -o all", "all");
}

TEST_F(DividedScan, DamageIsOneLine) {
  scan(1);
  const std::string whole = read("p1-1");
  // Behind the first line and the frame of the first record; a size, its check, a hash, and what follows.
  for (const std::size_t at : {std::size_t{17}, std::size_t{26}, std::size_t{34}, std::size_t{60}, whole.size() / 2}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write("damaged", damaged);
    for (const char* command : {"diagnose dump --facts damaged", "merge damaged -o facts", "scan dump -o damaged"})
      expect_refused(command, "damaged: the record at offset");
  }
  for (std::size_t size = 0; size < whole.size(); size += whole.size() / 25) {
    write("cut", whole.substr(0, size));
    const Output merged = run("merge cut -o facts");
    EXPECT_EQ(merged.code, 2) << size;
  }
}

TEST_F(DividedScan, AnInterruptedPartIsContinued) {
  scan(1);
  const std::string whole = read("p1-1");
  for (const std::size_t size : {std::size_t{5}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write("cut", whole.substr(0, size));
    const Output scanned = run("scan dump -o cut");
    EXPECT_EQ(scanned.code, 0) << size << scanned.err;
    EXPECT_EQ(read("cut").size(), whole.size()) << "no fact is there twice, cut at " << size;
    ASSERT_EQ(run("merge cut -o facts --force").code, 0);
    ASSERT_EQ(run("merge p1-1 -o facts1 --force").code, 0);
    EXPECT_EQ(read("facts"), read("facts1")) << size;
  }
  EXPECT_THAT(run("scan dump -o cut").out, EndsWith("all of it was there already\n"));
  EXPECT_EQ(read("cut").size(), whole.size());
  expect_refused("scan dump --part 1/2 -o cut", "is of a scan in 1 parts");
  scan(2);
  expect_refused("scan dump --part 1/2 -o p2-2", "is part 2, not 1");
}

TEST_F(DividedScan, WhatIsNotAmongTheFactsIsNotLookedAt) {
  scan(2);
  const Output whole = run("diagnose dump --facts p2-1");
  EXPECT_EQ(whole.out, run("diagnose dump").out);
  const Output some = run("diagnose dump --facts p2-1 --facts-only --format json");
  const auto json = nlohmann::json::parse(some.out, nullptr, false);
  EXPECT_EQ(json["verdict"], "no-fault-found");
  EXPECT_GT(json["coverage"]["not_looked_at"], 0);
  EXPECT_THAT(json["notes"].dump(), HasSubstr("not looked at"));
  expect_refused("diagnose dump --facts-only", "--facts");
}

TEST_F(DividedScan, BadUsageIsOneLine) {
  for (const char* part : {"0/2", "3/2", "2", "x", "1/0", "1/2/3", "-1/2", "1/9999999999999999999"})
    expect_refused("scan dump -o part --part " + std::string(part), "--part");
  expect_refused("scan dump -o dump/part", "dump/part");
  expect_refused("scan absent -o part", "absent");
  expect_refused("scan dump -o small.toml", "small.toml");
  expect_refused("scan dump", "output");
  expect_refused("diagnose dump --facts absent", "absent");
  EXPECT_EQ(run("run small.toml -o small.nanscope").code, 0);
  expect_refused("scan small.nanscope -o part", "small.nanscope");
  scan(1);
  expect_refused("diagnose small.nanscope --facts p1-1", "recording");
  expect_refused("diagnose dump dump --facts p1-1", "one target");
}

/// Started as mpirun or srun would, by a launcher that no MPI knows: MPI is missing, or sees one process.
TEST_F(DividedScan, SeveralProcessesNeedMpi) {
  for (const auto& [variable, value] : {std::pair{"OMPI_COMM_WORLD_SIZE", "2"}, std::pair{"PMI_SIZE", "3"}}) {
    ::setenv(variable, value, 1);
    expect_refused("diagnose dump dump", "several ranks share one dump");
    EXPECT_EQ(run("scan dump -o part --part 1/2").code, 0) << "a scan is of one process";
    fs::remove(folder_ / "part");
    ::unsetenv(variable);
  }
  ::setenv("SLURM_NTASKS", "4", 1);
  EXPECT_EQ(run("diagnose dump").code, 0) << "a batch script is one process";
  ::unsetenv("SLURM_NTASKS");
}

}  // namespace
