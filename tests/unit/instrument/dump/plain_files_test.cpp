#include "instrument/dump/plain_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "core/files/output_file.h"
#include "instrument/weights/safetensors.h"
#include "tests/unit/instrument/dump/diagnose_dump.h"
#include "tests/unit/instrument/dump/producers/raw_dump.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class PlainFiles : public testing::Test {
 protected:
  void write(const std::string& file, const std::vector<std::string>& keys) {
    const std::vector<float> values(8, 1);
    std::vector<SafetensorsInput> tensors;
    for (const std::string& key : keys) tensors.push_back({key, "F32", {2, 4}, std::as_bytes(std::span(values))});
    fs::create_directories((root_ / file).parent_path());
    ASSERT_TRUE(write_output(root_ / file, encode_safetensors(tensors).value(), {.replace = true}));
  }
  std::unique_ptr<OpenDump> open() { return std::move(OpenDump::open(root_, {.threads = 1}).value()); }
  static std::vector<std::string> names(const OpenDump& dump) {
    std::vector<std::string> all;
    for (const DumpTensor& one : dump.dump().tensors) all.push_back(one.name);
    return all;
  }
  static bool noted(const OpenDump& dump, const std::string& text) {
    const auto& notes = dump.dump().notes;
    return std::any_of(notes.begin(), notes.end(),
                       [&](const RunNote& note) { return note.text.find(text) != std::string::npos; });
  }

  TemporaryFolder folder_;
  fs::path root_ = folder_ / "dump";
};

const std::string kKey = "model.layers.0.mlp.output";

TEST_F(PlainFiles, OfTheSameNamesAreStepsByTheirNumber) {
  for (const char* file : {"batch0.safetensors", "batch2.safetensors", "batch10.safetensors"}) write(file, {kKey});
  const auto dump = open();
  EXPECT_THAT(names(*dump), ElementsAre("batch0/" + kKey, "batch2/" + kKey, "batch10/" + kKey));
  EXPECT_EQ(dump->dump().tensors[1].at.step, 2);
  EXPECT_EQ(dump->dump().tensors[2].at.step, 10);
  EXPECT_TRUE(noted(*dump, "2 more files hold tensors of the same names: each is taken for a step"));
}

/// Which number of a date counts is not known: they follow each other.
TEST_F(PlainFiles, OfSeveralNumbersFollowEachOther) {
  write("at_20260101_2359.safetensors", {kKey});
  write("at_20260102_0001.safetensors", {kKey});
  const auto dump = open();
  EXPECT_EQ(dump->dump().tensors[0].at.step, 0);
  EXPECT_EQ(dump->dump().tensors[1].at.step, 1);
  EXPECT_EQ(dump->dump().tensors[1].name, "at_20260102_0001/" + kKey);
}

TEST_F(PlainFiles, OfSeveralNumbersFollowEachOtherByTheirSize) {
  write("at_9_2.safetensors", {kKey});
  write("at_10_1.safetensors", {kKey});
  EXPECT_THAT(names(*open()), ElementsAre("at_9_2/" + kKey, "at_10_1/" + kKey));
}

TEST_F(PlainFiles, OfOtherWordsAreRuns) {
  write("good.safetensors", {kKey});
  write("bad.safetensors", {kKey});
  const auto dump = open();
  EXPECT_EQ(dump->dump().tensors[0].at.run, "bad");
  EXPECT_EQ(dump->dump().tensors[1].at.run, "good");
  EXPECT_TRUE(noted(*dump, "each is taken for a run of its own"));
}

TEST_F(PlainFiles, OfOtherTensorsAreOnePass) {
  write("part1.safetensors", {kKey});
  write("part2.safetensors", {"model.layers.1.mlp.output"});
  const auto dump = open();
  EXPECT_EQ(dump->dump().tensors[0].at.pass(), dump->dump().tensors[1].at.pass());
  EXPECT_EQ(dump->dump().tensors[0].name, kKey);
}

/// Hooks write a file a module: one whose name says nothing is a module's all the same, and no run of its own.
TEST_F(PlainFiles, OfSidesAmongThoseOfModulesAreModules) {
  for (const std::string module : {"model.layers.0.mlp.act_fn", "model.layers.0.resid_dropout", "drop"})
    write("step_3/" + module + ".safetensors", {"input", "output"});
  const auto dump = open();
  EXPECT_THAT(names(*dump), testing::IsSupersetOf({"step_3/model.layers.0.resid_dropout.output", "step_3/drop.input"}));
  for (const DumpTensor& one : dump->dump().tensors) {
    EXPECT_EQ(one.at.pass(), dump->dump().tensors[0].at.pass()) << one.name;
    EXPECT_EQ(one.at.step, 3) << one.name;
  }
  EXPECT_FALSE(noted(*dump, "tensors of the same names"));
}

TEST_F(PlainFiles, OfSidesAloneAreRuns) {
  for (const std::string file : {"good", "bad"}) write(file + ".safetensors", {"input", "output"});
  const auto dump = open();
  EXPECT_EQ(dump->dump().tensors.front().at.run, "bad");
  EXPECT_EQ(dump->dump().tensors.back().at.run, "good");
}

/// captum's activation vectors: a folder a module, a file a batch.
TEST_F(PlainFiles, NumberedInTheFolderOfAModuleAreItsSteps) {
  for (const std::string module : {"model.layers.0.mlp", "lm_head"}) {
    for (const std::string batch : {"0", "1"}) {
      const std::string shape = "f32";
      fs::create_directories(root_ / "av" / module);
      const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }\n";
      std::string npy = std::string("\x93NUMPY\x01\x00", 8);
      npy += static_cast<char>(header.size());
      npy += '\0';
      npy += header + std::string(32, '\0');
      ASSERT_TRUE(write_output(root_ / "av" / module / (batch + ".npy"), std::as_bytes(std::span(npy)), {}));
    }
  }
  const auto dump = open();
  for (const DumpTensor& one : dump->dump().tensors) EXPECT_TRUE(one.at.known) << one.name;
  EXPECT_EQ(dump->dump().tensors[0].at.op, "mlp");
  EXPECT_EQ(dump->dump().tensors.back().at.op, "lm_head");
  EXPECT_EQ(dump->dump().tensors.back().at.step, 1);
}

/// Folders without a path of modules may be named after anything.
TEST_F(PlainFiles, NumberedInAnotherFolderAreNoStepsOfAModule) {
  write("hidden_states_3/0.safetensors", {"0"});
  write("k/0.safetensors", {"0"});
  EXPECT_FALSE(noted(*open(), "its folder was taken for its module"));
}

/// Names that differ in a number alone say the order, and files of one moment have none.
TEST_F(PlainFiles, WithoutANameAreInTheOrderOfTheirNumbersOrOfNoWriting) {
  const auto begin = fs::file_time_type::clock::now() - std::chrono::hours(1);
  const auto order = [&](const std::vector<std::string>& files, int minutes) {
    fs::remove_all(root_);
    int written = 0;
    for (const std::string& name : files) {
      write(name + ".safetensors", {name});
      fs::last_write_time(root_ / (name + ".safetensors"), begin + std::chrono::minutes(minutes * written++));
    }
    const auto dump = open();
    EXPECT_FALSE(noted(*dump, "in the order in which they were written"));
    return names(*dump);
  };
  EXPECT_THAT(order({"zeta3", "zeta2", "zeta1"}, 1), ElementsAre("zeta1", "zeta2", "zeta3"));
  order({"zeta", "alpha", "mint"}, 0);
}

TEST_F(PlainFiles, WithoutANameAreInTheOrderOfTheirWriting) {
  const auto begin = fs::file_time_type::clock::now() - std::chrono::hours(1);
  int minute = 0;
  for (const std::string name : {"zeta", "alpha", "mint"}) {
    write(name + ".safetensors", {name});
    fs::last_write_time(root_ / (name + ".safetensors"), begin + std::chrono::minutes(++minute));
  }
  const auto dump = open();
  EXPECT_THAT(names(*dump), ElementsAre("zeta", "alpha", "mint"));
  EXPECT_TRUE(noted(*dump, "3 files are taken in the order in which they were written"));
}

/// A manifest lists tensors as they were dumped.
TEST(TensorsOfAFile, WithoutANameKeepTheirOrder) {
  RawDump dump;
  for (const char* name : {"zeta", "alpha", "mint"}) dump.add(name, "f32", {2, 4});
  const auto opened = dump.open();
  ASSERT_TRUE(opened) << opened.error().message;
  std::vector<std::string> names;
  for (const DumpTensor& one : (*opened)->dump().tensors) names.push_back(one.name);
  EXPECT_THAT(names, ElementsAre("zeta", "alpha", "mint"));
}

/// Behind what was stored before them, where names that say a place are in order; logits may come first.
TEST(TensorsOfAFile, WithoutANameStandBehindWhatPrecedesThem) {
  RawDump dump;
  for (const char* name : {"logits", "model.embed_tokens.output", "zeta", "model.layers.0.mlp.output", "alpha"})
    dump.add(name, "f32", {2, 4});
  const auto opened = dump.open();
  ASSERT_TRUE(opened) << opened.error().message;
  std::vector<std::string> names;
  for (const DumpTensor& one : (*opened)->dump().tensors) names.push_back(one.name);
  EXPECT_THAT(names, ElementsAre("model.embed_tokens.output", "zeta", "model.layers.0.mlp.output", "alpha", "logits"));
}

/// Where names that say a place are out of order, the file's order says nothing: not of what has no name either.
TEST(TensorsOfAFile, OutOfOrderSayNothingOfWhatHasNoName) {
  const auto order = [](const std::vector<const char*>& names) {
    RawDump dump;
    for (const char* name : names) dump.add(name, "f32", {2, 4});
    std::vector<std::string> found;
    const auto opened = dump.open();
    for (const DumpTensor& one : opened.value()->dump().tensors) found.push_back(one.name);
    return found;
  };
  const char* first = "model.layers.0.mlp.output";
  const char* second = "model.layers.1.mlp.output";
  EXPECT_EQ(order({second, "zeta", first}), order({second, first, "zeta"}));
  EXPECT_NE(order({first, "zeta", second}), order({first, second, "zeta"}));
}

/// Of two of which nobody knows what they were made of, the earlier one accounts for the later.
TEST(TensorsOfAFile, WithoutANameAreBlamedBeforeLogits) {
  RawDump dump;
  for (const char* name : {"logits", "model.embed_tokens.output", "zeta", "alpha"}) dump.add(name, "f32", {2, 4});
  std::string nan(32, '\0');
  for (std::size_t i = 0; i < 8; ++i) nan.replace(4 * i + 2, 2, "\xc0\x7f");
  for (const char* file : {"data1.raw", "data4.raw"}) dump.write(file, nan);
  const auto opened = dump.open();
  ASSERT_TRUE(opened) << opened.error().message;
  const auto diagnosis = diagnose_dump(**opened);
  ASSERT_TRUE(diagnosis && diagnosis->root_cause);
  EXPECT_EQ(diagnosis->faults[*diagnosis->root_cause].tensor, "alpha");
  EXPECT_EQ(diagnosis->faults.size(), 1U) << "and not that logits were made of nothing that holds one";
}

TEST(ListedPasses, AreStepsAndModulesInAListAreNot) {
  EXPECT_TRUE(are_listed_passes({"0.model.layers.0.mlp.output", "1.model.layers.0.mlp.output"}));
  EXPECT_FALSE(are_listed_passes({"0.weight", "1.weight"}));
  EXPECT_FALSE(are_listed_passes({"0.model.layers.0.mlp.output"}));
  EXPECT_FALSE(are_listed_passes({"0.model.layers.0.mlp.output", "lm_head.output"}));
  EXPECT_FALSE(are_listed_passes({"0.model.layers.0.mlp.output", "1.lm_head.output"})) << "nothing is in both";
  EXPECT_EQ(key_of_listed_pass("3.lm_head.output", true), "step_3/lm_head.output");
  EXPECT_EQ(key_of_listed_pass("3.lm_head.output", false), "3.lm_head.output");
}

}  // namespace
}  // namespace nanscope
