#include "instrument/dump/attach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/dump/dump_run.h"
#include "core/files/output_file.h"
#include "core/run/recording_view.h"
#include "core/run/view_rows.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/dump/recorded_dump.h"
#include "instrument/recompute/arithmetic.h"
#include "instrument/weights/safetensors.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const auto kProducers = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/dumps/producers";

/// What a diagnosis says, apart from what it calls the run.
nlohmann::ordered_json said_of(RunView& run) {
  PlainArithmetic arithmetic;
  const Result<Diagnosis> diagnosis = diagnose(run, arithmetic, {});
  if (!diagnosis) return diagnosis.error().message;
  nlohmann::ordered_json json = to_json(*diagnosis);
  json.erase("notes");  // a recording has those of the dump's files too
  return json;
}

/// A recording of a dump, as a view.
struct Reread {
  explicit Reread(const std::filesystem::path& path)
      : recording(Recording::open(path).value()), rows(recording), stored(recording), view(rows, stored) {}
  Recording recording;
  RecordingRun rows;
  StoredTensors stored;
  RecordingView view;
};

std::vector<std::byte> bytes_of(RunView& run, const Tensor& tensor) {
  Fact<TensorData> data = run.read(tensor, 0, tensor.tokens);
  return data ? std::move(data->bytes) : std::vector<std::byte>();
}

std::string text_of(const Step& step) {
  const StepRow row = row_of(step);
  std::string text = std::to_string(row.id) + " rank " + std::to_string(row.rank) + " run " + row.run + " pass " +
                     row.pass + " rows " + std::to_string(row.tokens) + " batch " + std::to_string(row.batch);
  for (const Span& span : step.spans) {
    for (const std::int64_t part : {span.request, span.index, span.row, span.rows, span.first_token, span.context}) {
      text += ' ' + std::to_string(part);
    }
    text += ';';
  }
  return text;
}

std::string text_of(const Op& op) {
  const OpRow row = row_of(op);
  std::string text = std::to_string(row.id) + ' ' + std::to_string(row.layer) + ' ' + row.name + ' ' + row.kind + ' ' +
                     row.attributes + (row.by_name ? "" : " guessed");
  for (const Input& input : op.inputs) text += ' ' + input.role + '=' + std::to_string(input.tensor);
  for (const TensorId id : op.outputs) text += " >" + std::to_string(id);
  return text;
}

std::string text_of(const Tensor& tensor) {
  std::string text = tensor.name + ' ' + tensor.role + ' ' + std::string(name(tensor.format));
  for (const std::int64_t part :
       {tensor.id, tensor.op, tensor.step, tensor.tokens, tensor.channels, tensor.heads,
        static_cast<std::int64_t>(tensor.axis), tensor.first_token, tensor.sequence, std::int64_t{tensor.known},
        std::int64_t{tensor.guessed}, std::int64_t{tensor.stated}, static_cast<std::int64_t>(tensor.health.count),
        static_cast<std::int64_t>(tensor.health.bad()), tensor.health.first_bad}) {
    text += ' ' + std::to_string(part);
  }
  return text;
}

/// Both views say the same of everything, elements included.
void expect_alike(RunView& dump, RunView& recording) {
  ASSERT_EQ(recording.steps().size(), dump.steps().size());
  std::vector<StepId> steps{kBeforeSteps};
  for (std::size_t i = 0; i < dump.steps().size(); ++i) {
    EXPECT_EQ(text_of(recording.steps()[i]), text_of(dump.steps()[i]));
    steps.push_back(dump.steps()[i].id);
  }
  EXPECT_EQ(recording.bad_steps(), dump.bad_steps());
  for (const StepId step : steps) {
    const StepContent& was = dump.content(step);
    const StepContent& is = recording.content(step);
    ASSERT_EQ(is.ops.size(), was.ops.size());
    ASSERT_EQ(is.tensors.size(), was.tensors.size());
    for (std::size_t i = 0; i < was.ops.size(); ++i) EXPECT_EQ(text_of(is.ops[i]), text_of(was.ops[i]));
    for (std::size_t i = 0; i < was.tensors.size(); ++i) {
      EXPECT_EQ(text_of(is.tensors[i]), text_of(was.tensors[i]));
      EXPECT_EQ(bytes_of(recording, is.tensors[i]), bytes_of(dump, was.tensors[i])) << was.tensors[i].name;
      EXPECT_EQ(recording.rows(is.tensors[i]).size(), dump.rows(was.tensors[i]).size()) << was.tensors[i].name;
    }
  }
  EXPECT_EQ(recording.scales().size(), dump.scales().size());
  EXPECT_EQ(recording.kv_history().size(), dump.kv_history().size());
  EXPECT_EQ(recording.requests().size(), dump.requests().size());
}

/// What a window or a report reads.
void expect_alike_rows(RunData& dump, RunData& recording) {
  EXPECT_EQ(dump.counts().ops, recording.counts().ops);
  EXPECT_EQ(dump.counts().tensors, recording.counts().tensors);
  EXPECT_EQ(dump.counts().stored_tensors, recording.counts().stored_tensors);
  const auto names = [](RunData& run) {
    std::vector<std::string> all;
    run.each_op_name([&](const OpRow& op) {
      all.push_back(std::to_string(op.id) + ' ' + op.name);
      return true;
    });
    run.each_glance({}, [&](const TensorGlance& glance) {
      all.push_back(std::to_string(glance.id) + ' ' + glance.role + ' ' + std::to_string(glance.health.bad()));
      return true;
    });
    return all;
  };
  EXPECT_EQ(names(dump), names(recording));
  TensorFilter bad;
  bad.bad_only = true;
  bad.limit = 3;
  const std::vector<TensorRow> was = dump.tensors(bad);
  const std::vector<TensorRow> is = recording.tensors(bad);
  ASSERT_EQ(was.size(), is.size());
  for (std::size_t i = 0; i < was.size(); ++i) {
    EXPECT_EQ(was[i].id, is[i].id);
    if (was[i].stated) continue;
    EXPECT_EQ(dump.hash(was[i]), recording.hash(is[i])) << "hashed when it is asked for";
  }
}

class Attach : public testing::Test {
 protected:
  void write(const std::string& key, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    const auto bytes = encode_safetensors({{key, "F32", std::move(shape), std::as_bytes(std::span(values))}}).value();
    const auto file = folder_ / "dump" / (key + ".safetensors");
    std::filesystem::create_directories(file.parent_path());
    ASSERT_TRUE(write_output(file, bytes, {.replace = true}));
  }
  Result<Attached> attach_it(AttachOptions options = {}) {
    auto dump = OpenDump::open(folder_ / "dump");
    if (!dump) return tl::unexpected(dump.error());
    return attach(**dump, recording_, options);
  }
  /// Attaches a dump, and compares the recording's view and diagnosis with the dump's own.
  void expect_the_same_run(const std::filesystem::path& path) {
    auto dump = OpenDump::open(path);
    ASSERT_TRUE(dump) << dump.error().message;
    AttachOptions options;
    options.output.replace = true;
    const Result<Attached> attached = attach(**dump, recording_, options);
    ASSERT_TRUE(attached) << attached.error().message;
    Reread again(recording_);
    const Status whole = again.recording.check();
    EXPECT_TRUE(whole) << whole.error().message;
    {
      DumpRun run((*dump)->dump(), **dump);
      expect_alike(run, again.view);
      // The rows of a view are those of its recording.
      ViewRows rows(run);
      ViewTensors tensors(run);
      RecordingView through(rows, tensors);
      expect_alike(run, through);
      expect_alike_rows(rows, again.rows);
    }
    DumpRun run((*dump)->dump(), **dump);
    Reread fresh(recording_);
    EXPECT_EQ(said_of(fresh.view).dump(1), said_of(run).dump(1));
  }

  TemporaryFolder folder_;
  std::filesystem::path recording_ = folder_ / "out.nanscope";
};

/// The one that was dumped; around it stands what was not.
TensorRow dumped(const Recording& recording) {
  const std::vector<TensorRow> rows = recording.tensors().value();
  const auto known = std::find_if(rows.begin(), rows.end(), [](const TensorRow& row) { return row.known; });
  return known == rows.end() ? TensorRow{} : *known;
}

std::vector<float> wave(std::size_t count, float scale = 1) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = scale * std::sin(0.37F * static_cast<float>(i) + 0.1F);
  return values;
}

/// A paged cache of K and V that no attention reads is taken as a whole: its health is that of all its elements.
TEST_F(Attach, KeepsACacheOfBothWhole) {
  write("kv_cache", {6, 2, 8, 2, 4}, wave(6 * 2 * 8 * 2 * 4));
  write("x.output", {3, 8}, wave(24));
  expect_the_same_run(folder_ / "dump");
}

TEST_F(Attach, KeepsTensorsWithoutElements) {
  write("model.layers.0.mlp.output", {3, 8}, wave(24));
  write("past.output", {0}, {});
  write("cache.output", {0, 8}, {});
  expect_the_same_run(folder_ / "dump");
}

/// As many heads as queries: the shape alone does not tell which comes first, and the elements must come back all the
/// same.
TEST_F(Attach, BringsEveryElementBack) {
  write("model.layers.0.self_attn.scores", {3, 3, 5}, wave(3 * 3 * 5));
  write("model.layers.0.self_attn.q", {3, 3, 2}, wave(3 * 3 * 2));
  const Result<Attached> attached = attach_it();
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_EQ(attached->tensors, 2);
  EXPECT_EQ(attached->left_out, 0);
  expect_the_same_run(folder_ / "dump");
}

/// A batch of two sequences, one of them padded, with parameters outside of the pass and a NaN that was born in it.
TEST_F(Attach, KeepsBatchesParametersAndWhatWasNotDumped) {
  write("model.layers.0.mlp.down_proj.weight", {4, 6}, wave(24));
  std::vector<float> in = wave(2 * 3 * 6);
  std::vector<float> out = wave(2 * 3 * 4);
  out[5] = std::nanf("");
  write("step_000/model.layers.0.mlp.down_proj.input", {2, 3, 6}, in);
  write("step_000/model.layers.0.mlp.down_proj.output", {2, 3, 4}, out);
  write("step_000/model.norm.output", {2, 3, 4}, wave(24));
  expect_the_same_run(folder_ / "dump");
  Reread again(recording_);
  ASSERT_EQ(again.view.steps().size(), 1U);
  EXPECT_EQ(again.view.steps().front().rows, 6);
  const StepContent& parameters = again.view.content(kBeforeSteps);
  ASSERT_EQ(parameters.tensors.size(), 1U);
  EXPECT_EQ(parameters.tensors.front().axis, Axis::none);
  const Op* product = nullptr;
  for (const Op& op : again.view.content(again.view.steps().front().id).ops) {
    if (op.kind == OpKind::gemm) product = &op;
  }
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product->input("weight"), parameters.tensors.front().id) << "the input is of another step";
}

/// More than is held at once, wider than a tile: what is written part by part comes back as one.
TEST_F(Attach, StreamsLargeTensors) {
  std::vector<float> large = wave(std::size_t{1500} * 1200);
  large[1499 * 1200 + 7] = std::numeric_limits<float>::infinity();
  write("model.layers.0.mlp.output", {1500, 1200}, large);
  expect_the_same_run(folder_ / "dump");
  Reread again(recording_);
  const TensorRow row = dumped(again.recording);
  ASSERT_TRUE(row.stored);
  EXPECT_EQ(again.recording.tensor_bytes(row.id).value().value().size(), large.size() * sizeof(float));
  const TileLevel tiles = again.recording.tiles(row.id, 0).value();
  EXPECT_EQ(tiles.tiles[1499 * 3].first_bad, 1499 * 1200 + 7);
}

TEST_F(Attach, LeavesElementsOutWhenAsked) {
  write("model.layers.0.mlp.output", {4, 8}, wave(32));
  AttachOptions options;
  options.elements = false;
  ASSERT_TRUE(attach_it(options));
  Reread without(recording_);
  const TensorRow row = dumped(without.recording);
  EXPECT_FALSE(row.stored);
  EXPECT_EQ(row.health.count, 32U);
  options.elements = options.output.replace = true;
  ASSERT_TRUE(attach_it(options));
  Reread with(recording_);
  EXPECT_EQ(dumped(with.recording).hash, row.hash);
}

TEST_F(Attach, ReplacesNothingUnasked) {
  write("x", {2}, {1, 2});
  std::ofstream(recording_) << "precious";
  const Result<Attached> refused = attach_it();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("exists already"));
  EXPECT_EQ(std::filesystem::file_size(recording_), 8U);
  AttachOptions options;
  options.output.replace = true;
  EXPECT_TRUE(attach_it(options));
}

TEST_F(Attach, LeavesNothingHalfWritten) {
  write("x", {2}, {1, 2});
  std::stop_source stop;
  stop.request_stop();
  AttachOptions options;
  options.stop = stop.get_token();
  EXPECT_FALSE(attach_it(options));
  EXPECT_FALSE(std::filesystem::exists(recording_));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path().filename(), "dump") << "was left";
  }
}

/// A shape that no bytes bear out and that no recording may speak of: the tensor is left out, and whoever reads it does
/// not refer to what is not there.
TEST_F(Attach, LeavesShapesOutThatNoRecordingHolds) {
  std::filesystem::copy(kProducers / "msprobe_statistics", folder_ / "dump",
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  const std::filesystem::path json = folder_ / "dump/step0/rank0/dump.json";
  std::ifstream in(json);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  std::size_t shape = 0;
  for (int i = 0; i < 4; ++i) shape = text.find("\"shape\": [", shape + 1);
  ASSERT_NE(shape, std::string::npos);
  text.replace(shape, text.find(']', shape) - shape + 1, "\"shape\": [3298534883328, 64]");
  std::ofstream(json) << text;
  const Result<Attached> attached = attach_it();
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_EQ(attached->left_out, 1);
  const auto recording = Recording::open_checked(recording_);
  EXPECT_TRUE(recording) << recording.error().message;
}

/// What msprobe measured comes back as it was, and the diagnosis says the same of the recording.
TEST_F(Attach, KeepsStatisticsWithoutElements) {
  auto dump = OpenDump::open(kProducers / "msprobe_statistics");
  ASSERT_TRUE(dump) << dump.error().message;
  const Result<Attached> attached = attach(**dump, recording_, {});
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_EQ(attached->tensors, static_cast<std::int64_t>((*dump)->dump().tensors.size()));
  EXPECT_EQ(attached->stated, attached->tensors);
  EXPECT_EQ(attached->converted, 0);
  expect_the_same_run(kProducers / "msprobe_statistics");
  Reread again(recording_);
  for (const StepId step : again.view.bad_steps()) {
    for (const Tensor& tensor : again.view.content(step).tensors) EXPECT_FALSE(again.view.read(tensor, 0, 1));
  }
}

/// What nanscope 0.1 attached, of schema 1, is diagnosed as it was.
TEST_F(Attach, UnderstandsDumpsOfSchema1) {
  const auto path = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/recordings/schema1_attached.nanscope";
  const Recording recording = Recording::open(path).value();
  ASSERT_TRUE(RecordedDump::is_one(recording));
  const auto recorded = RecordedDump::of(recording);
  ASSERT_TRUE(recorded) << recorded.error().message;
  auto dump = OpenDump::open(kProducers / "pytorch_hooks");
  ASSERT_TRUE(dump) << dump.error().message;
  ASSERT_EQ((*recorded)->dump().tensors.size(), (*dump)->dump().tensors.size());
  for (std::size_t i = 0; i < (*dump)->dump().tensors.size(); ++i) {
    const DumpTensor& was = (*dump)->dump().tensors[i];
    const DumpTensor& is = (*recorded)->dump().tensors[i];
    EXPECT_EQ(is.name, was.name);
    EXPECT_EQ(is.shape, was.shape);
    EXPECT_EQ((*recorded)->row_health(is)->size(), (*dump)->row_health(was)->size());
    const auto values = (*recorded)->values(is, 0, is.count()).value();
    const auto expected = (*dump)->values(was, 0, was.count()).value();
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t k = 0; k < values.size(); ++k) {
      EXPECT_TRUE(values[k] == expected[k] || (std::isnan(values[k]) && std::isnan(expected[k])));
    }
  }
  DumpRun run((*recorded)->dump(), **recorded);
  PlainArithmetic arithmetic;
  const Diagnosis diagnosis = diagnose(run, arithmetic, {}).value();
  ASSERT_TRUE(diagnosis.root_cause);
  EXPECT_EQ(diagnosis.faults[*diagnosis.root_cause].fault_class, "invalid-op");
  EXPECT_EQ(diagnosis.faults[*diagnosis.root_cause].tensor, "step_0/model.layers.1.post_attention_layernorm.output");
}

/// Schema 1 put the heads of a token side by side, and said of which tensors the dump did not: of the scores, 0 to 44
/// in the dump's order, and not of q, which is 0 to -17.
TEST_F(Attach, BringsHeadsOfSchema1BackInTheDumpsOrder) {
  const auto path = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/recordings/schema1_heads.nanscope";
  const Recording recording = Recording::open(path).value();
  const auto recorded = RecordedDump::of(recording).value();
  ASSERT_EQ(recorded->dump().tensors.size(), 2U);
  for (const DumpTensor& tensor : recorded->dump().tensors) {
    const bool scores = tensor.name.ends_with("scores");
    std::vector<float> expected(scores ? 45 : 18);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(i) * (scores ? 1.0F : -1.0F);
    EXPECT_EQ(recorded->values(tensor, 0, tensor.count()).value(), expected) << tensor.name;
  }
}

/// A recording of a dump tells what could not be read, and says what the dump does, whoever wrote it.
TEST_F(Attach, SaysOfEveryProducersDumpWhatTheDumpSays) {
  const auto golden = kProducers.parent_path();
  std::vector<std::filesystem::path> paths;
  for (const auto& corpus : {kProducers, golden, golden / "rotated_cache", golden / "transformers_fp8_cache"}) {
    for (const auto& entry : std::filesystem::directory_iterator(corpus)) paths.push_back(entry.path());
  }
  int dumps = 0;
  for (const auto& path : paths) {
    SCOPED_TRACE(path.filename());
    if (std::find(paths.begin(), paths.end(), path / "healthy") != paths.end() || path == kProducers) continue;
    const auto dump = OpenDump::open(path);
    if (!dump) continue;  // some are there to be refused
    ++dumps;
    expect_the_same_run(path);
    Reread again(recording_);
    EXPECT_GE(again.view.notes().size(), (*dump)->dump().notes.size());
  }
  EXPECT_GT(dumps, 30);
}

}  // namespace
}  // namespace nanscope
