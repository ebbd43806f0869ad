#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "../engine/engine_rig.h"
#include "core/recording/reader.h"
#include "core/recording/writer.h"
#include "instrument/recorder/recorder_probe.h"
#include "tests/temporary_folder.h"

namespace nanscope::testing {
namespace {

const char* const kStory = "The keeper of the lighthouse climbs the stairs every evening and lights the lamp.";

std::vector<RequestSpec> requests() {
  return {text_request("A ship.", 3), text_request(kStory, 3), text_request(kStory, 2)};
}

EngineConfig config() {
  return tiny_config({{"kv.format", "e4m3"},
                      {"kv.policy", "locked"},
                      {"model.mlp_width", "600"},  // more than one tile wide
                      {"kv.block_size", "8"},
                      {"engine.pad", "left"},
                      {"attention.mask", "additive"}});
}

/// Passes everything on to a recorder, and keeps it.
class Both final : public Probe {
 public:
  Both(RecorderProbe& recorder, CollectProbe& collector) : recorder_(recorder), collector_(collector) {}
  Status on_weight(const WeightRow& row, const kernels::TensorView& view) override {
    ++weights;
    return recorder_.on_weight(row, view);
  }
  Status on_request_begin(const RequestRow& row) override { return recorder_.on_request_begin(row); }
  Status on_request_end(const RequestRow& row) override { return recorder_.on_request_end(row); }
  Status on_step_begin(const StepRow& row) override { return both(&Probe::on_step_begin, row); }
  Status on_op(const ProbeOp& op) override {
    Status status = recorder_.on_op(op);
    if (status) status = collector_.on_op(op);
    return status;
  }
  Status on_scale(const ScaleRow& row) override { return both(&Probe::on_scale, row); }
  Status on_kv(const KvRow& row) override { return both(&Probe::on_kv, row); }
  Status on_token(const TokenRow& row) override { return both(&Probe::on_token, row); }
  Status on_step_end(const StepRow& row) override { return recorder_.on_step_end(row); }

  int weights = 0;

 private:
  template <class Row>
  Status both(Status (Probe::*hook)(const Row&), const Row& row) {
    Status status = (static_cast<Probe&>(recorder_).*hook)(row);
    if (status) status = (static_cast<Probe&>(collector_).*hook)(row);
    return status;
  }

  RecorderProbe& recorder_;
  CollectProbe& collector_;
};

/// A run that was recorded and collected at once.
struct Recorded {
  explicit Recorded(const std::string& policy, std::size_t ring_budget = RecorderProbe::kRingBudget)
      : rig(config()), seen(*rig.device) {
    auto writer = RecordingWriter::create_in_memory(RunInfo{}).value();
    WeightFacts facts(*rig.device);
    RecorderProbe recorder(*writer, *rig.device, facts, CapturePolicy::parse(policy).value(), ring_budget);
    Both both(recorder, seen);
    result = rig.engine->run(requests(), both).value();
    weights = both.weights;
    dropped = recorder.dropped();
    recording = std::make_unique<Recording>(writer->finish_in_memory(result.ops).value());
  }

  Rig rig;
  CollectProbe seen;
  RunResult result;
  int weights = 0;
  std::int64_t dropped = 0;
  std::unique_ptr<Recording> recording;
};

TEST(Recorder, RecordedAndUnrecordedRunsHaveTheSameBits) {
  const Recorded recorded("all");
  // The KV pool and the logits of an unrecorded run leave no trace but its tokens and the next request's logits, so
  // a run that is only looked at stands for it, and the results of one that nobody looks at are compared besides.
  const CollectProbe alone = collect(config(), requests());
  ASSERT_EQ(alone.tensors.size(), recorded.seen.tensors.size());
  for (std::size_t i = 0; i < alone.tensors.size(); ++i) {
    ASSERT_EQ(alone.tensors[i].bytes, recorded.seen.tensors[i].bytes) << alone.tensors[i].op;
    ASSERT_EQ(alone.tensors[i].id, recorded.seen.tensors[i].id);
  }
  Rig unheard(config());
  NullProbe nobody;
  const RunResult result = unheard.engine->run(requests(), nobody).value();
  EXPECT_EQ(result.ops, recorded.result.ops);
  EXPECT_EQ(result.tensors, recorded.result.tensors);
  for (std::size_t i = 0; i < result.requests.size(); ++i) {
    EXPECT_EQ(result.requests[i].output_tokens, recorded.result.requests[i].output_tokens);
    EXPECT_EQ(result.requests[i].cached_tokens, recorded.result.requests[i].cached_tokens);
  }
}

TEST(Recorder, EveryEventBecomesARow) {
  const Recorded run("none");
  const RecordingCounts counts = run.recording->counts().value();
  EXPECT_EQ(counts.requests, 3);
  EXPECT_EQ(counts.steps, static_cast<std::int64_t>(run.seen.steps.size()));
  EXPECT_EQ(counts.ops, run.result.ops);
  EXPECT_EQ(counts.expected_ops, run.result.ops);
  EXPECT_EQ(counts.tensors, run.result.tensors);
  EXPECT_EQ(counts.stored_tensors, 0);
  EXPECT_EQ(run.recording->scales()->size(), run.seen.scales.size());
  EXPECT_EQ(run.recording->kv_history()->size(), run.seen.kv.size());
  EXPECT_EQ(run.recording->weights()->size(), static_cast<std::size_t>(run.weights));
  std::size_t tokens = 0;
  for (std::int64_t request = 0; request < 3; ++request) tokens += run.recording->tokens(request)->size();
  EXPECT_EQ(tokens, run.seen.tokens.size());
  EXPECT_TRUE(run.recording->check());
  EXPECT_EQ(run.recording->state().value(), RunState::complete);
}

TEST(Recorder, HashesAloneAreThoseOfTheRows) {
  const Recorded run("none");
  const auto rows = run.recording->tensors().value();
  const auto hashes = run.recording->tensor_hashes().value();
  ASSERT_EQ(hashes.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(hashes[i].id, rows[i].id);
    EXPECT_EQ(hashes[i].format, rows[i].format);
    EXPECT_EQ(hashes[i].tokens, rows[i].tokens);
    EXPECT_EQ(hashes[i].channels, rows[i].channels);
    EXPECT_EQ(hashes[i].hash, rows[i].hash);
  }
}

TEST(Recorder, WeightsAreLookedAtOnceUntilForgotten) {
  const auto device = kernels::make_device("cpu", 1).value();
  std::vector<float> values(8, 1.0F);
  const kernels::TensorView view{values.data(), Format::f32, 2, 4, 4};
  WeightFacts facts(*device);
  WeightRow named;
  named.name = "w";
  const WeightRow first = facts.of(named, view).value();
  EXPECT_EQ(first.health.sum, 8.0);
  values[3] = 9.0F;
  EXPECT_EQ(facts.of(named, view)->hash, first.hash);
  facts.clear();
  const WeightRow anew = facts.of(named, view).value();
  EXPECT_NE(anew.hash, first.hash);
  EXPECT_EQ(anew.health.sum, 16.0);
}

TEST(Recorder, OpsAndInputsFormTheGraph) {
  const Recorded run("none");
  const std::vector<OpRow> ops = run.recording->ops().value();
  std::set<std::int64_t> known;
  std::set<std::string> weights;
  const std::vector<WeightRow> weight_rows = run.recording->weights().value();
  for (const WeightRow& row : weight_rows) weights.insert(row.name);
  for (const OpRow& op : ops) {
    EXPECT_EQ(op.name, run.seen.ops[static_cast<std::size_t>(op.id - 1)]);
    EXPECT_EQ(op.attributes.front(), '{');
    const std::vector<InputRow> inputs = run.recording->inputs_of(op.id).value();
    for (const InputRow& input : inputs) {
      if (input.tensor != 0) {
        EXPECT_TRUE(known.contains(input.tensor)) << op.name << "." << input.role;
      }
      if (!input.weight.empty()) {
        EXPECT_TRUE(weights.contains(input.weight)) << input.weight;
      }
    }
    const std::vector<TensorRow> outputs = run.recording->tensors_of(op.id).value();
    for (const TensorRow& tensor : outputs) known.insert(tensor.id);
  }
  EXPECT_EQ(known.size(), run.seen.tensors.size());
}

TEST(Recorder, StoredBytesHashesAndHealthAreThoseOfTheLiveTensor) {
  const Recorded run("all");
  std::int64_t nan = 0;
  for (const Seen& seen : run.seen.tensors) {
    const TensorRow row = run.recording->tensor(seen.id).value();
    EXPECT_TRUE(row.stored);
    EXPECT_EQ(row.role, seen.role);
    EXPECT_EQ(row.tokens, seen.rows);
    EXPECT_EQ(row.channels, seen.columns);
    ASSERT_EQ(run.recording->tensor_bytes(seen.id).value().value(), seen.bytes) << seen.op << "." << seen.role;
    EXPECT_EQ(row.health.count, static_cast<std::uint64_t>(seen.rows * seen.columns));
    if (seen.format != Format::f32) continue;
    std::uint64_t bad = 0;
    for (const float value : seen.floats()) bad += std::isfinite(value) ? 0 : 1;
    EXPECT_EQ(row.health.bad(), bad) << seen.op << "." << seen.role;
    nan += static_cast<std::int64_t>(row.health.nan);
    const std::vector<Health> tokens = run.recording->token_health(seen.id).value();
    EXPECT_EQ(tokens.size(), static_cast<std::size_t>(seen.rows));
  }
  EXPECT_GT(nan, 0) << "the run was meant to hold NaN rows";
}

TEST(Recorder, RowsStandAtTheirPositions) {
  const Recorded run("none");
  std::int64_t later = 0;
  const std::vector<StepRow> steps = run.recording->steps().value();
  for (const StepRow& step : steps) {
    TensorFilter filter;
    filter.step = step.id;
    filter.role = "out";
    const std::vector<TensorRow> tensors = run.recording->tensors(filter).value();
    for (const TensorRow& tensor : tensors) {
      if (tensor.tokens != step.tokens) continue;  // what is of the last token alone, or of the context
      EXPECT_EQ(tensor.first_token, step.first_token) << tensor.id;
      EXPECT_EQ(tensor.axis, Axis::rows) << tensor.id;
      later += tensor.first_token > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(later, 0);
  TensorFilter read;
  read.role = "k_read";
  const std::vector<TensorRow> keys = run.recording->tensors(read).value();
  EXPECT_FALSE(keys.empty());
  for (const TensorRow& tensor : keys) EXPECT_EQ(tensor.axis, Axis::keys) << tensor.id;
}

TEST(Recorder, ClippedValuesAreCountedAgainstTheirSource) {
  Rig rig(tiny_config({{"kv.format", "e4m3"}, {"kv.policy", "static"}, {"kv.scale_k", "0.001"}}));
  auto writer = RecordingWriter::create_in_memory(RunInfo{}).value();
  WeightFacts facts(*rig.device);
  RecorderProbe recorder(*writer, *rig.device, facts, CapturePolicy::parse("none").value());
  CollectProbe seen(*rig.device);
  Both both(recorder, seen);
  ASSERT_TRUE(rig.engine->run(std::vector{text_request(kStory)}, both));
  const Recording recording = writer->finish_in_memory().value();
  std::uint64_t expected = 0;
  for (const float value : seen.find(0, 0, 0, "k_rope", "out").floats())
    expected += std::abs(value / 0.001F) > 448 ? 1 : 0;
  ASSERT_GT(expected, 0U);
  EXPECT_EQ(recording.tensor(seen.find(0, 0, 0, "kv_store", "k_codes").id)->health.clipped, expected);
}

TEST(Recorder, EqualTensorsHaveEqualHashes) {
  const Recorded first("none");
  const Recorded second("all");
  for (const Seen& seen : first.seen.tensors) {
    ASSERT_EQ(first.recording->tensor(seen.id)->hash, second.recording->tensor(seen.id)->hash);
  }
}

TEST(Recorder, NamedCaptureStoresThoseAlone) {
  const Recorded run("named:logits,inner_norm.out,softmax.*");
  for (const Seen& seen : run.seen.tensors) {
    const bool wanted = seen.role == "logits" || seen.op == "softmax";
    EXPECT_EQ(run.recording->tensor(seen.id)->stored, wanted) << seen.op << "." << seen.role;
  }
}

TEST(Recorder, ARingStoresTheStepsAroundTheFirstFault) {
  const Recorded run("ring:1");
  std::int64_t first_bad_step = 0;
  for (const Seen& seen : run.seen.tensors) {
    const TensorRow row = run.recording->tensor(seen.id).value();
    const std::int64_t step = run.recording->op(row.op)->step;
    if (first_bad_step == 0 && row.health.bad() > 0) first_bad_step = step;
  }
  ASSERT_GT(first_bad_step, 0);
  for (const Seen& seen : run.seen.tensors) {
    const TensorRow row = run.recording->tensor(seen.id).value();
    const std::int64_t step = run.recording->op(row.op)->step;
    EXPECT_EQ(row.stored, step >= first_bad_step - 1 && step <= first_bad_step + 1) << "step " << step;
    if (row.stored) {
      EXPECT_EQ(run.recording->tensor_bytes(seen.id).value().value(), seen.bytes);
    }
  }
  EXPECT_EQ(run.dropped, 0);
}

TEST(Recorder, AFailedWriterEndsTheRun) {
  Rig rig(config());
  const TemporaryFolder folder;
  const auto path = folder / "full.nanscope";
  // A queue that is soon full: else the run may be over before the writer is.
  auto writer =
      RecordingWriter::create(path, RunInfo{}, {.output = {.replace = true}, .queue_bytes = 1 << 16, .max_pages = 40})
          .value();
  WeightFacts facts(*rig.device);
  RecorderProbe recorder(*writer, *rig.device, facts, CapturePolicy::parse("all").value());
  std::vector<RequestSpec> many;
  for (int i = 0; i < 20; ++i) many.push_back(text_request(kStory, 8));
  const Result<RunResult> run = rig.engine->run(many, recorder);
  EXPECT_FALSE(run);
  writer.reset();
}

}  // namespace
}  // namespace nanscope::testing
