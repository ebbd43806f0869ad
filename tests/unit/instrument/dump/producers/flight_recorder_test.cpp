#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/unit/instrument/dump/diagnose_dump.h"
#include "tests/unit/instrument/dump/producers/raw_dump.h"

namespace nanscope {
namespace {

using testing::HasSubstr;

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
  dump.add("layers.0.mlp.up_proj.weight", "f32", {2, 2}, "checkpoint");
  dump.add("layers.0.mlp.up_proj.bias", "f32", {2}, "checkpoint");
  EXPECT_EQ((*dump.open())->dump().tensors.size(), 3);
  dump.write("counters_00000.jsonl", kHead);
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value());
  const auto& tensors = (*opened)->dump().tensors;
  ASSERT_EQ(tensors.size(), 1);
  EXPECT_EQ(tensors.front().name, "step_00000/layers.0.mlp.up_proj.output");
  const auto& notes = (*opened)->dump().notes;
  EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [](const RunNote& one) {
    return one.text.find("is left out, 2 weights in all: a flight recorder wrote the dump (counters_00000.jsonl)") !=
           std::string::npos;
  }));
}

TEST(FlightRecorder, DamageIsNoted) {
  EXPECT_THAT(note("{}"), HasSubstr("line 1: expected \"nanscope_counters\": 1"));
  EXPECT_THAT(note(kHead + "\n{\"step\": 1}"), HasSubstr("line 2: expected a step and its tensors"));
  EXPECT_THAT(note(kHead + "\n{\"step\": "), HasSubstr("not read: "));
}

}  // namespace
}  // namespace nanscope
