#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/recording/writer.h"
#include "core/run/find_place.h"
#include "core/run/recording_view.h"
#include "core/run/run_data.h"
#include "core/run/tensor_source.h"
#include "core/tensor/content_hash.h"
#include "instrument/diagnosis/evidence.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/why.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

namespace nanscope {
namespace {

using testing::MemoryTensors;
using testing::SmallCascade;

TEST(TensorData, CodesAreLittleEndian) {
  const TensorData half{Format::f16, 1, 2, {std::byte{0x00}, std::byte{0x3c}, std::byte{0xff}, std::byte{0x7b}}};
  EXPECT_EQ(half.code(0), 0x3c00U);
  EXPECT_EQ(half.value(0), 1.0F);
  EXPECT_EQ(half.code(0, 1), 0x7bffU);
  EXPECT_EQ(half.value(0, 1), 65504.0F);
}

TEST(RecordingView, GivesBytesOnlyOfTheFormatThatWasRecorded) {
  for (const bool changed : {false, true}) {
    testing::RunBuilder builder;
    builder.step(builder.request(1, {1, 2}), 0, 0, 2);
    builder.op(0, "norm", "rms_norm", {});
    const std::int64_t id = builder.output("out", {2, 4}, testing::constant(1));
    if (changed) builder.tensors.data.at(id).format = Format::i32;
    RecordingView view(builder.run, builder.tensors);
    const Tensor* tensor = view.tensor(id);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(view.stored(*tensor).has_value(), !changed);
    EXPECT_EQ(view.read(*tensor, 0, 2).has_value(), !changed);
  }
}

TEST(CachedTensors, AsksOnceAndRemembersFailures) {
  MemoryTensors source;
  source.data[1] = {Format::e4m3, 1, 2, {std::byte{1}, std::byte{2}}};
  CachedTensors cache(source);
  EXPECT_TRUE(cache.fetch(1));
  EXPECT_TRUE(cache.fetch(1));
  EXPECT_FALSE(cache.fetch(2));
  EXPECT_FALSE(cache.fetch(2));
  EXPECT_EQ(source.fetches, 2);
}

TEST(CachedTensors, DropsTheOldestBeyondItsBudget) {
  MemoryTensors source;
  for (std::int64_t i = 1; i <= 3; ++i) source.data[i] = {Format::e4m3, 1, 4, std::vector<std::byte>(4)};
  CachedTensors cache(source, 8);
  const auto held = cache.fetch(1);
  cache.fetch(2);
  cache.fetch(1);
  cache.fetch(3);  // 2 is the oldest now
  EXPECT_EQ(source.fetches, 3);
  cache.fetch(1);
  EXPECT_EQ(source.fetches, 3);
  cache.fetch(2);
  EXPECT_EQ(source.fetches, 4);
  EXPECT_EQ((*held)->count(), 4);
}

TEST(CachedTensors, RefusesFewerBytesThanTheShapeSays) {
  MemoryTensors source;
  source.data[1] = {Format::f32, 2, 2, std::vector<std::byte>(15)};
  CachedTensors cache(source);
  const auto data = cache.fetch(1);
  ASSERT_FALSE(data);
  EXPECT_EQ(data.error().why, Unknown::unreadable);
}

TEST(Evidence, TextOfNumbersThatAreNoNumbers) {
  EXPECT_EQ(to_string(EvidenceValue{0.0 / 0.0}), "nan");
  EXPECT_EQ(to_string(EvidenceValue{-1.0 / 0.0}), "-inf");
  EXPECT_EQ(to_string(EvidenceValue{std::int64_t{7}}), "7");
  EXPECT_EQ(to_string(EvidenceValue{std::string("0x7F")}), "0x7F");
}

TEST(Evidence, PlacesAreWrittenAsCommandsTakeThem) {
  Where where;
  EXPECT_EQ(place_text(where), "");
  where.request = 4;
  where.step = 0;
  where.op = "lm_head";
  where.role = "logits";
  where.tokens = Range{2, 5};
  where.channels = Range{7, 7};
  EXPECT_EQ(place_text(where), "4/0/-/lm_head.logits[2,7]");
  EXPECT_EQ(tensor_text(where), "4/0/-/lm_head.logits");
  where.layer = 3;
  where.channels.reset();
  EXPECT_EQ(place_text(where), "4/0/3/lm_head.logits[2]");
}

/// Writes a hand-made run into a recording in memory.
Recording recorded(SmallCascade& made, bool with_bytes) {
  testing::MemoryRun& run = made.builder.run;
  auto writer = RecordingWriter::create_in_memory(RunInfo{});
  EXPECT_TRUE(writer.has_value());
  for (const WeightRow& row : run.weight_rows) (*writer)->add(row);
  for (const RequestRow& row : run.request_rows) (*writer)->add(row);
  std::size_t tensor = 0;
  for (const StepRow& step : run.step_rows) {
    (*writer)->add(step);
    for (const OpRow& op : run.op_rows) {
      if (op.step != step.id) continue;
      (*writer)->add(op, run.inputs_of(op.id));
      for (; tensor < run.tensor_rows.size() && run.tensor_rows[tensor].op == op.id; ++tensor) {
        TensorRow row = run.tensor_rows[tensor];
        const std::vector<std::byte> bytes =
            with_bytes ? made.builder.tensors.data.at(row.id).bytes : std::vector<std::byte>{};
        ContentHash hash;
        hash.add(bytes);
        row.hash = hash.finish();
        (*writer)->add(row, {run.detail.at(row.id), {}}, bytes);
      }
    }
    for (const ScaleRow& row : run.scale_rows) {
      if (row.step == step.id) (*writer)->add(row);
    }
    for (const KvRow& row : run.kv_rows) {
      if (row.step == step.id) (*writer)->add(row);
    }
    EXPECT_TRUE((*writer)->commit_step().has_value());
  }
  for (const TokenRow& row : run.token_rows) (*writer)->add(row);
  Result<Recording> recording = (*writer)->finish_in_memory(static_cast<std::int64_t>(run.op_rows.size()));
  EXPECT_TRUE(recording.has_value()) << (recording ? "" : recording.error().message);
  return std::move(*recording);
}

TEST(RecordingRun, ARecordingIsDiagnosedAsItsRows) {
  SmallCascade made;
  const Recording recording = recorded(made, true);
  RecordingRun run(recording);
  StoredTensors tensors(recording);
  RecordingView view(run, tensors);
  const Diagnosis of_recording = testing::diagnosis_of(view, false);
  const Diagnosis of_rows = testing::diagnosis_of(made.builder);
  EXPECT_EQ(to_json(of_recording)["faults"], to_json(of_rows)["faults"]);
  EXPECT_EQ(testing::root_of(of_recording), "kv-scale-locked");
}

TEST(RecordingRun, AWalkByPlaceEndsAtTheScale) {
  SmallCascade made;
  const Recording recording = recorded(made, true);
  StoredTensors tensors(recording);
  RecordingRun rows(recording);
  RecordingView run(rows, tensors);
  const Result<FoundPlace> logits = find_place(run, "3/0/0/logits[0,0]");
  ASSERT_TRUE(logits.has_value()) << logits.error().message;
  const Result<WhyPath> path = why(run, Element{logits->tensor->id, *logits->row, *logits->channel});
  ASSERT_TRUE(path.has_value()) << path.error().message;
  EXPECT_EQ(path->hops.size(), 20U);
  EXPECT_EQ(path->hops.back().kind, HopKind::scale);
}

TEST(RecordingRun, APlaceWithoutAnElementMeansTheFirstBadOne) {
  SmallCascade made;
  const Recording recording = recorded(made, true);
  StoredTensors tensors(recording);
  RecordingRun rows(recording);
  RecordingView run(rows, tensors);
  const Result<FoundPlace> read = find_place(run, "1/0/1/kv_read.k_read");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  Facts facts(run);
  const Result<WhyPath> path = why(run, first_bad_element(facts, *read->tensor));
  ASSERT_TRUE(path.has_value()) << path.error().message;
  EXPECT_EQ(place_text(path->hops.front().where), "1/0/1/kv_read.k_read[0,0]");
}

/// The hash agrees with the elements, the health does not: each figure of it that elements must have is changed in
/// turn.
TEST(StoredTensors, ElementsAgainstTheirHealthAreUnreadable) {
  const auto changes = std::to_array<void (*)(Health&)>({
      [](Health& health) { ++health.nan; },
      [](Health& health) { ++health.pos_inf; },
      [](Health& health) { ++health.neg_inf; },
      [](Health& health) { ++health.zero; },
      [](Health& health) { ++health.first_bad; },
      [](Health& health) { health.min -= 1; },
      [](Health& health) { health.max += 1; },
      [](Health& health) { health.absmax += 1; },
  });
  for (std::size_t i = 0; i <= changes.size(); ++i) {
    SmallCascade made;
    TensorRow& row = made.builder.run.tensor_rows.front();
    if (i < changes.size()) changes[i](row.health);
    const std::int64_t id = row.id;
    const Recording recording = recorded(made, true);
    StoredTensors tensors(recording);
    const Fact<TensorData> data = tensors.fetch(id);
    ASSERT_EQ(data.has_value(), i == changes.size()) << i;
    if (!data) {
      EXPECT_EQ(data.error().why, Unknown::unreadable) << i;
    }
  }
}

TEST(StoredTensors, SayWhatWasNotCaptured) {
  SmallCascade made;
  const Recording recording = recorded(made, false);
  StoredTensors tensors(recording);
  const Fact<TensorData> data = tensors.fetch(1);
  ASSERT_FALSE(data.has_value());
  EXPECT_EQ(data.error().text, "tensor 1: its elements were not captured");
  EXPECT_FALSE(tensors.fetch(123456).has_value());
}

}  // namespace
}  // namespace nanscope
