#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/unit/instrument/dump/diagnose_dump.h"
#include "tests/unit/instrument/dump/producers/raw_dump.h"

namespace nanscope {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kHead = R"({"nanscope_counters": 1, "columns": ["elements", "nan", "inf"], "fault": null})";

std::string line(int step, const std::string& row) {
  return "\n{\"step\": " + std::to_string(step) + R"(, "written": true, "left_out": 0, "tensors": {"layers.0": )" +
         row + "}}";
}

/// What is noted of a file of counters beside a dump.
std::string note(const std::string& counters) {
  RawDump dump;
  dump.add("layers.0.mlp.output", "f32", {2, 2});
  dump.write("counters_00000.jsonl", counters);
  const auto opened = dump.open();
  if (!opened) return opened.error().message;
  const auto& notes = (*opened)->dump().notes;
  const auto found =
      std::find_if(notes.begin(), notes.end(), [](const RunNote& one) { return one.tensor == "counters_00000.jsonl"; });
  return found == notes.end() ? "" : found->text;
}

TEST(FlightRecorder, CountersOfHealthySteps) {
  EXPECT_EQ(note(kHead + line(3, "[8, 0, 0, 0, 0, 0, 1.5, 7]") + line(4, "[8, 0, 0, 0, 2, 8, 0.0, 7]")),
            "counters of 2 steps, 3 to 4: none counts a NaN or an Inf");
  EXPECT_EQ(note(kHead), "");
}

TEST(FlightRecorder, TheFirstBadStep) {
  EXPECT_EQ(note(kHead + line(3, "[8, 0, 0, 0, 0, 0, 1.5, 7]") + line(4, "[8, 0, 0, 1, 0, 0, 1.5, 7]") +
                 line(5, "[8, 8, 0, 0, 0, 0, 0.0, 7]")),
            "counters of 3 steps, 3 to 5: the first -Inf is in step 4, layers.0");
}

TEST(FlightRecorder, EachKindIsNamed) {
  EXPECT_THAT(note(kHead + line(7, "[8, 1, 0, 0, 0, 0, 1.5, 7]")), HasSubstr("the first NaN is in step 7, layers.0"));
  EXPECT_THAT(note(kHead + line(7, "[8, 0, 2, 0, 0, 0, 1.5, 7]")), HasSubstr("the first +Inf is in step 7, layers.0"));
}

TEST(FlightRecorder, ItsStepsAreNotComparedWithACheckpoint) {
  RawDump dump;
  dump.add("layers.0.mlp.output", "f32", {2, 2});
  dump.write("counters_00000.jsonl", kHead);
  OpenDumpOptions options;
  options.checkpoint = dump.root();
  const auto opened = OpenDump::open(dump.root(), options);
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message, HasSubstr("a flight recorder wrote it (counters_00000.jsonl)"));
}

TEST(FlightRecorder, ItsStepsAreNotComparedWithWeightsBesideThem) {
  RawDump dump;
  dump.add("layers.0.mlp.up_proj.output", "f32", {2, 2}, "step_00000");
  const std::string header =
      R"({"layers.0.mlp.up_proj.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},)"
      R"( "layers.0.mlp.up_proj.bias": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}})";
  std::string size(8, '\0');
  size[0] = static_cast<char>(header.size());
  dump.write("checkpoint/model.safetensors", size + header + std::string(16, '\0'));
  dump.write("checkpoint/config.json", R"({"model_type": "llama"})");
  const auto texts = [](const OpenDump& opened) {
    std::string all;
    for (const RunNote& one : opened.dump().notes) all += one.text + '\n';
    return all;
  };
  const auto without = dump.open();
  ASSERT_TRUE(without.has_value());
  EXPECT_EQ((*without)->dump().tensors.size(), 3);
  EXPECT_THAT(texts(**without), HasSubstr("weights of a llama model: scanned for damage"));
  dump.write("counters_00000.jsonl", kHead);
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value());
  ASSERT_EQ((*opened)->dump().tensors.size(), 1);
  EXPECT_EQ((*opened)->dump().tensors.front().name, "step_00000/layers.0.mlp.up_proj.output");
  EXPECT_THAT(texts(**opened), HasSubstr("is left out, 2 weights in all: a flight recorder wrote the dump "
                                         "(counters_00000.jsonl)"));
  EXPECT_THAT(texts(**opened), Not(HasSubstr("scanned for damage")));
}

TEST(FlightRecorder, DamageIsNoted) {
  EXPECT_THAT(note(R"({"nanscope_counters": 2})"), HasSubstr("line 1: expected \"nanscope_counters\": 1"));
  EXPECT_THAT(note("{}"), HasSubstr("line 1: expected \"nanscope_counters\": 1"));
  EXPECT_THAT(note(kHead + "\n{\"step\": 1}"), HasSubstr("line 2: expected a step and its tensors"));
  EXPECT_THAT(note(kHead + "\n{\"step\": "), HasSubstr("not read: "));
}

}  // namespace
}  // namespace nanscope
