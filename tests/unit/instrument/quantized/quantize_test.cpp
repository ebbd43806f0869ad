// What `nanscope quantize` writes: byte for byte what compressed-tensors makes of the same weights where it makes the
// same, nothing that `inspect` finds fault with, and nothing by halves.
#include "instrument/quantize/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/files/folder_lock.h"
#include "instrument/engine/calibrate.h"
#include "instrument/engine/compare_models.h"
#include "instrument/files/file.h"
#include "instrument/inspect/inspection.h"
#include "instrument/quantize/loss.h"
#include "instrument/quantized/stored_matrix.h"
#include "tests/unit/instrument/quantized/edited_checkpoint.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path checkpoint(const std::string& name) {
  return fs::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / name;
}

Result<QuantizeReport> quantize(const fs::path& from, const fs::path& to, std::string_view format,
                                std::string_view layout = {}, std::vector<std::string> ignore = {},
                                std::map<std::string, float> inputs = {}) {
  QuantizeOptions options;
  options.inputs = std::move(inputs);
  options.target = find_quantize_target(format, layout);
  options.ignore = std::move(ignore);
  options.threads = 2;
  return quantize_checkpoint(from, to, options);
}

std::map<std::string, std::string> tensors_of(const fs::path& folder) {
  std::map<std::string, std::string> all;
  const auto files = CheckpointFiles::open(folder).value();
  for (const auto& [name, tensor] : files.tensors()) {
    all[name] = tensor.entry->dtype + std::string(as_text(tensor.bytes()));
  }
  return all;
}

struct Same {
  const char* format;
  const char* layout;
  const char* theirs;
};
class SameAsProducer : public ::testing::TestWithParam<Same> {};

TEST_P(SameAsProducer, ByteForByte) {
  const TemporaryFolder folder;
  const fs::path out = folder / "out";
  const auto made = quantize(checkpoint("plain"), out, GetParam().format, GetParam().layout);
  ASSERT_TRUE(made) << made.error().message;
  const auto ours = tensors_of(out);
  std::size_t compared = 0;
  for (const auto& [name, bytes] : tensors_of(checkpoint(GetParam().theirs))) {
    if (name.ends_with(".input_global_scale") || name.ends_with(".input_scale")) continue;
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_TRUE(ours.at(name) == bytes) << name;
    ++compared;
  }
  EXPECT_EQ(compared, ours.size());
}

INSTANTIATE_TEST_SUITE_P(All, SameAsProducer,
                         ::testing::Values(Same{"nvfp4", "compressed-tensors", "ct-nvfp4"},
                                           Same{"mxfp4", "compressed-tensors", "ct-mxfp4"},
                                           Same{"mxfp8", "compressed-tensors", "ct-mxfp8"},
                                           Same{"nvfp4", "modelopt", "modelopt-nvfp4"},
                                           Same{"mxfp8", "modelopt", "modelopt-mxfp8"}));

class CalibratedAsProducer : public ::testing::TestWithParam<Same> {};

/// With scales of what products read over the producer's prompt: those are of the producer's f32, the rest is its
/// bytes.
TEST_P(CalibratedAsProducer, WithItsScalesOfInputs) {
  const TemporaryFolder folder;
  const fs::path theirs = checkpoint(GetParam().theirs);
  const std::vector<std::int32_t> prompt{3, 17, 42, 5, 29, 11, 60, 8};
  const auto inputs = calibrate_inputs(checkpoint("plain"), prompt, {});
  ASSERT_TRUE(inputs) << inputs.error().message;
  EXPECT_EQ(inputs->size(), 8U);  // of the head as well
  const auto made = quantize(checkpoint("plain"), folder / "out", GetParam().format, GetParam().layout, {}, *inputs);
  ASSERT_TRUE(made) << made.error().message;
  const auto ours = CheckpointFiles::open(folder / "out").value();
  const auto expected = CheckpointFiles::open(theirs).value();
  EXPECT_EQ(ours.tensors().size(), expected.tensors().size());
  for (const auto& [name, tensor] : expected.tensors()) {
    const CheckpointFiles::Tensor found = ours.find(name);
    ASSERT_NE(found.entry, nullptr) << name;
    if (!name.ends_with("input_global_scale") && !name.ends_with("input_scale")) continue;
    EXPECT_EQ(found.entry->shape, tensor.entry->shape) << name;
    const float scale = scale_values(tensor).value().front();
    EXPECT_NEAR(scale_values(found).value().front(), scale, 1e-5F * scale) << name;
  }
  const QuantizationConfig config = read_quantization_config(folder / "out").value();
  const QuantizationConfig of_theirs = read_quantization_config(theirs).value();
  EXPECT_EQ(config.text(), of_theirs.text());
  const auto logits = logits_of_checkpoint(folder / "out", prompt, {}).value();
  const auto of_theirs_logits = logits_of_checkpoint(theirs, prompt, {}).value();
  EXPECT_LT(compare_logits(of_theirs_logits, logits, 64).error, 1e-3);
  InspectOptions options;
  options.loader = find_loader("vllm");
  EXPECT_TRUE(inspect_checkpoint(folder / "out", options).value().findings.empty());
}

INSTANTIATE_TEST_SUITE_P(All, CalibratedAsProducer,
                         ::testing::Values(Same{"nvfp4", "compressed-tensors", "ct-nvfp4"},
                                           Same{"nvfp4", "modelopt", "modelopt-nvfp4"}));

TEST(Quantize, ScalesOfInputsAreWrittenAsTheLoadersWantThem) {
  const TemporaryFolder folder;
  std::map<std::string, float> inputs;
  for (const std::string& name : EditedCheckpoint("plain").ending("proj.weight"))
    inputs[name.substr(0, name.size() - 7)] = 3.5F;
  const std::string up = "model.layers.0.mlp.up_proj";
  inputs["model.layers.0.mlp.down_proj"] = 0;  // reads nothing but zeros
  const auto value = [&](const char* format, const char* layout, const std::string& name) {
    const fs::path out = folder / (std::string(format) + layout);
    const bool made = fs::exists(out) || quantize(checkpoint("plain"), out, format, layout, {}, inputs);
    EXPECT_TRUE(made) << format << ' ' << layout;
    if (!made) return 0.0F;
    const auto files = CheckpointFiles::open(out).value();
    return scale_values(files.find(name)).value().front();
  };
  EXPECT_EQ(value("nvfp4", "compressed-tensors", up + ".input_global_scale"), 2688 / 3.5F);
  EXPECT_EQ(value("nvfp4", "modelopt", up + ".input_scale"), 3.5F / 2688);
  EXPECT_EQ(value("fp8", "modelopt", up + ".input_scale"), 3.5F / 448);
  EXPECT_EQ(value("nvfp4", "compressed-tensors", "model.layers.0.mlp.down_proj.input_global_scale"), 1);
  EXPECT_EQ(read_quantization_config(folder / "fp8modelopt").value().format, "FP8");
  const auto without = quantize(checkpoint("plain"), folder / "no", "fp8", "modelopt");
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().message, HasSubstr("which only a text tells: --calibrate FILE"));
  inputs.erase(up);
  const auto unread = quantize(checkpoint("plain"), folder / "no", "nvfp4", {}, {}, inputs);
  ASSERT_FALSE(unread);
  EXPECT_THAT(unread.error().message, HasSubstr("up_proj.weight': no product of the model reads it"));
}

/// Weights whose sides are multiples of 128, with large and small ones among them.
EditedCheckpoint of_whole_blocks() {
  EditedCheckpoint made("plain");
  std::uint32_t state = 1;
  for (const std::string& name : made.ending("proj.weight")) {
    std::vector<float> values(128 * 256);
    for (float& value : values) {
      state = state * 1664525U + 1013904223U;
      value = (static_cast<float>(state >> 8) / 0x1p24F - 0.5F) * ((state & 0x7f0U) == 0 ? 4.0F : 0.25F);
    }
    made.set(name, {128, 256}, values);
  }
  return made;
}

class Targets : public ::testing::TestWithParam<std::size_t> {};

/// Whom it is written for finds nothing wrong with it, and the loss that was told is that of what was written.
TEST_P(Targets, AreReadAsTheyWereWritten) {
  const QuantizeTarget& target = quantize_targets()[GetParam()];
  const TemporaryFolder folder;
  const fs::path out = folder / "out";
  const EditedCheckpoint plain = of_whole_blocks();
  const fs::path from = plain.write();
  std::map<std::string, float> inputs;
  for (const std::string& name : plain.ending("proj.weight")) {
    if (!target.input.empty()) inputs[name.substr(0, name.size() - 7)] = 2;
  }
  const auto made = quantize(from, out, target.to, target.layout, {"layers\\.0\\.mlp\\.down"}, inputs);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->weights.size(), 6U);
  InspectOptions options;
  options.loader = find_loader(target.layout == "transformers" ? "transformers" : "vllm");
  const Inspection found = inspect_checkpoint(out, options).value();
  EXPECT_EQ(found.count(Severity::error) + found.count(Severity::warning), 0U)
      << (found.findings.empty() ? "" : found.findings.front().text);
  EXPECT_EQ(found.count(Fate::quantized), 6U);
  const auto config = read_quantization_config(out).value();
  const auto files = CheckpointFiles::open(out).value();
  const auto before = CheckpointFiles::open(from).value();
  for (const StoredModule& module : stored_modules(files)) {
    for (const QuantizedWeight& weight : made->weights) {
      if (weight.module != module.path) continue;
      const auto matrix = stored_matrix(module, config);
      ASSERT_TRUE(matrix) << matrix.error().text;
      const auto tensor = before.find(module.path + ".weight");
      const auto values = safetensors_values(*tensor.entry, tensor.bytes()).value();
      double noise = 0;
      std::vector<float> row(static_cast<std::size_t>(matrix->columns));
      for (std::int64_t r = 0; r < matrix->rows; ++r) {
        matrix->row(r, row);
        for (std::size_t c = 0; c < row.size(); ++c) {
          noise += std::pow(double{row[c]} - values[static_cast<std::size_t>(r) * row.size() + c], 2);
        }
      }
      EXPECT_NEAR(weight.noise, noise, 1e-9 * noise) << module.path;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Targets, ::testing::Range(std::size_t{0}, quantize_targets().size()));

TEST(Quantize, NeverWritesOverAFolder) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "out");
  const auto made = quantize(checkpoint("plain"), folder / "out", "nvfp4");
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("is there already"));
  EXPECT_TRUE(fs::is_empty(folder / "out"));
}

/// Files of the checkpoint beside its weights: its own, and none that a link fetches from elsewhere.
TEST(Quantize, CopiesFilesOfTheCheckpointAlone) {
  const TemporaryFolder folder;
  const fs::path from = folder / "hub" / "snapshots" / "main";
  fs::create_directories(from);
  fs::create_directories(folder / "hub" / "blobs");
  fs::copy(EditedCheckpoint("plain").write(), from, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  std::ofstream(from / "quantize.json") << "mine";
  std::ofstream(folder / "secret") << "secret";
  std::ofstream(folder / "hub" / "blobs" / "1234") << "blob";
  fs::create_symlink("../../../secret", from / "notes.txt");
  fs::create_symlink("../../blobs/1234", from / "generation_config.json");
  fs::create_symlink("quantize.json", from / "inside.json");
  const auto made = quantize(from, folder / "out", "nvfp4");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(read_text(folder / "out" / "quantize.json"), "mine");
  EXPECT_EQ(read_text(folder / "out" / "inside.json"), "mine");
  EXPECT_EQ(read_text(folder / "out" / "generation_config.json"), "blob");
  EXPECT_FALSE(fs::exists(folder / "out" / "notes.txt"));
  EXPECT_THAT(made->not_copied, ::testing::Contains("notes.txt"));
  EXPECT_FALSE(fs::exists(folder / "out" / ".nanscope-quantize.json"));
}

TEST(Quantize, OfTwoIntoOneFolderTheSecondEnds) {
  const TemporaryFolder folder;
  const auto lock = FolderLock::take(folder / "out", "quantize");
  ASSERT_TRUE(lock);
  const auto made = quantize(EditedCheckpoint("plain").write(), folder / "out", "nvfp4");
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("is being written by nanscope quantize"));
}

/// `cut`: of the shard that is finished, its end is lost before the second call.
void stop_and_go_on(bool cut) {
  const TemporaryFolder folder;
  // Two files, the second of which is not finished.
  EditedCheckpoint whole("plain");
  EditedCheckpoint first("plain");
  EditedCheckpoint second("plain");
  std::string map;
  for (const auto& [name, tensor] : whole.tensors) {
    const bool mlp = name.find(".mlp.") != std::string::npos;
    (mlp ? first : second).tensors.erase(name);
    map += (map.empty() ? "\"" : ", \"") + name + "\": \"" + (mlp ? "b" : "a") + ".safetensors\"";
  }
  const fs::path from = folder / "from";
  fs::create_directory(from);
  fs::copy_file(first.write() / "model.safetensors", from / "a.safetensors");
  fs::copy_file(second.write() / "model.safetensors", from / "b.safetensors");
  std::ofstream(from / "model.safetensors.index.json") << R"({"weight_map": {)" << map << "}}";
  std::ofstream(from / "config.json") << whole.config;
  std::ofstream(from / "tokenizer.json") << "{}";
  QuantizeOptions options;
  options.target = find_quantize_target("nvfp4", {});
  std::stop_source stop;
  options.stop = stop.get_token();
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (done * 4 > total * 3) stop.request_stop();
  };
  const auto stopped = quantize_checkpoint(from, folder / "out", options);
  ASSERT_FALSE(stopped);
  EXPECT_FALSE(fs::exists(folder / "out"));
  ASSERT_TRUE(fs::exists(folder / "out.partial"));
  // Another format is not mixed with it.
  const auto other = quantize(from, folder / "out", "mxfp4");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("not of this command with these arguments"));
  const fs::path shard = folder / "out.partial" / "a.safetensors";
  if (cut) fs::resize_file(shard, fs::file_size(shard) / 2);
  const auto resumed = quantize(from, folder / "out", "nvfp4");
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(resumed->resumed, cut ? 0U : 1U);
  EXPECT_EQ(resumed->weights.size(), 7U);
  const auto at_once = quantize(from, folder / "again", "nvfp4");
  ASSERT_TRUE(at_once);
  EXPECT_TRUE(tensors_of(folder / "out") == tensors_of(folder / "again"));
  EXPECT_FALSE(fs::exists(folder / "out.partial"));
  EXPECT_TRUE(fs::exists(folder / "out" / "tokenizer.json"));
  EXPECT_EQ(read_text(folder / "out" / "config.json"), read_text(folder / "again" / "config.json"));
}

TEST(Quantize, GoesOnWhereItWasStopped) { stop_and_go_on(false); }
TEST(Quantize, MakesAShardThatWasCutAgain) { stop_and_go_on(true); }

TEST(Quantize, RefusesWhatCannotBeStored) {
  const TemporaryFolder folder;
  EditedCheckpoint nan = of_whole_blocks();
  const std::string up = "model.layers.0.mlp.up_proj.weight";
  std::vector<float> values(128 * 256, 0.1F);
  values[77] = std::numeric_limits<float>::quiet_NaN();
  nan.set(up, {128, 256}, values);
  const auto said = [&](const EditedCheckpoint& from, std::string_view format, std::string_view layout = {},
                        std::vector<std::string> ignore = {}) {
    const auto made = quantize(from.write(), folder / "out", format, layout, std::move(ignore));
    EXPECT_FALSE(made);
    EXPECT_FALSE(fs::exists(folder / "out"));
    fs::remove_all(folder / "out.partial");
    return made ? "" : made.error().message;
  };
  for (const char* format : {"nvfp4", "mxfp4", "fp8", "fp8-block"}) {
    EXPECT_THAT(said(nan, format, format == std::string("fp8-block") ? "transformers" : "compressed-tensors"),
                HasSubstr("up_proj.weight' holds NaN or Inf"));
  }
  EditedCheckpoint odd = of_whole_blocks();
  odd.set(up, {96, 60}, std::vector<float>(96 * 60, 0.1F));
  EXPECT_THAT(said(odd, "nvfp4"),
              HasSubstr("60 columns are no multiple of the block's 16; 1 of 7 weights cannot be stored"));
  EXPECT_THAT(said(odd, "nvfp4", {}, {"("}), HasSubstr("--ignore '('"));
  odd.set(up, {192, 64}, std::vector<float>(192 * 64, 0.1F));
  EXPECT_THAT(said(odd, "fp8-block", "transformers"), HasSubstr("transformers would take blocks of another size"));
  EXPECT_THAT(said(EditedCheckpoint("plain"), "fp8-block", "vllm"), HasSubstr("servers run it as part of one weight"));
  EXPECT_THAT(said(EditedCheckpoint("ct-nvfp4"), "nvfp4"), HasSubstr("is quantized already"));
  EXPECT_THAT(said(EditedCheckpoint("plain"), "nvfp4", {}, {"."}), HasSubstr("no weight of floats"));
}

TEST(Quantize, AWeightOfZerosStaysZero) {
  const TemporaryFolder folder;
  EditedCheckpoint zeros("plain");
  zeros.set("model.layers.0.mlp.up_proj.weight", {96, 64}, std::vector<float>(96 * 64, 0.0F));
  zeros.set("model.layers.0.mlp.gate_proj.weight", {96, 64}, std::vector<float>(96 * 64, 0.0F));
  for (const QuantizeTarget& target : quantize_targets()) {
    const fs::path out = folder / (std::string(target.to) + std::string(target.layout));
    if (!quantize(zeros.write(), out, target.to, target.layout)) continue;
    const auto config = read_quantization_config(out).value();
    const auto files = CheckpointFiles::open(out).value();
    for (const StoredModule& module : stored_modules(files)) {
      if (module.path != "model.layers.0.mlp.up_proj") continue;
      const auto matrix = stored_matrix(module, config).value();
      std::vector<float> row(64, 1.0F);
      matrix.row(5, row);
      EXPECT_THAT(row, ::testing::Each(0.0F)) << target.to << ' ' << target.layout;
    }
  }
}

/// Rows that fill vectors go another way; a block of three vectors and one of one.
TEST(Loss, OfWholeVectorsIsCountedAsOneByOne) {
  constexpr std::size_t kRows = 3;
  constexpr std::size_t kColumns = 64;
  std::vector<float> values;
  std::vector<float> stored;
  std::uint32_t state = 7;
  for (std::size_t i = 0; i < kRows * kColumns; ++i) {
    state = state * 1664525U + 1013904223U;
    const float value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-29F;
    values.push_back(i % 11 == 0 ? 0.0F : value);
    stored.push_back(std::abs(value) < 1 ? 0.0F : std::round(value));
  }
  values[70] = 40;  // owns the first block; the largest of the second is no four times the next
  values[60] = -12;
  values[kColumns + 61] = 3.5F;
  const std::vector<float> limits{3, 2};
  QuantizedWeight expected;
  for (std::size_t i = 0; i < values.size(); ++i) {
    expected.clipped += std::abs(values[i]) > limits[i % kColumns / 48] ? 1 : 0;
    expected.flushed += values[i] != 0 && stored[i] == 0 ? 1 : 0;
    expected.signal += double{values[i]} * values[i];
    expected.noise += (double{values[i]} - stored[i]) * (double{values[i]} - stored[i]);
  }
  QuantizedWeight found;
  add_blocks(values, kColumns, 48, limits, found);
  add_loss(values, stored, found);
  EXPECT_EQ(found.clipped, expected.clipped);
  EXPECT_EQ(found.flushed, expected.flushed);
  EXPECT_EQ(found.blocks, 2);
  EXPECT_EQ(found.owned, 1);
  EXPECT_NEAR(found.signal, expected.signal, 1e-12 * expected.signal);
  EXPECT_NEAR(found.noise, expected.noise, 1e-12 * expected.noise);
}

TEST(Loss, CountsWhatIsClippedFlushedAndOwned) {
  QuantizedWeight known;
  const std::vector<float> values = {8, 1, 1, 1, 2, 2, 2, 2};
  add_blocks(values, 8, 4, std::vector<float>{6, 6}, known);
  EXPECT_EQ(known.clipped, 1);
  EXPECT_EQ(known.blocks, 2);
  EXPECT_EQ(known.owned, 1);
  add_loss(values, std::vector<float>{6, 0, 1, 1, 2, 2, 2, 2}, known);
  EXPECT_EQ(known.flushed, 1);
  EXPECT_DOUBLE_EQ(known.noise, 4 + 1);
  EXPECT_DOUBLE_EQ(known.signal, 64 + 3 + 16);
  EXPECT_NEAR(known.snr(), 10 * std::log10(83.0 / 5), 1e-12);
}

}  // namespace
}  // namespace nanscope
