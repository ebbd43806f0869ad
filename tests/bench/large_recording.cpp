#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/recording/writer.h"

/// large_recording FILE [GIGABYTES [REQUESTS]]: writes a recording of that size for bench_gui: requests of 1536 prompt
/// tokens and 64 generated ones through 32 layers, health of every tensor and row, kernels, scales and KV history;
/// bytes of as many tensors as fill the size. One element of one row is a NaN, and it spreads nowhere. 20 requests are
/// more than ten million cells of the front. No weights and no configuration: such a run cannot be replayed.
namespace nanscope {
namespace {

constexpr std::int64_t kLayers = 32;
constexpr std::int64_t kPrompt = 1536;
constexpr std::int64_t kGenerated = 64;
constexpr std::int64_t kChannels = 1024;
constexpr std::int64_t kHeads = 16;
constexpr std::int64_t kSlots = 16;  ///< of a KV block
constexpr std::int64_t kElementBytes = 2;
constexpr std::int64_t kTile = 112;  ///< what a tile of health takes in the file

struct OpKind {
  const char* name;
  const char* kind;
};
constexpr OpKind kLayerOps[] = {
    {"attn_norm", "layer_norm"}, {"q_proj", "gemm"},   {"k_proj", "gemm"}, {"v_proj", "gemm"},
    {"kv_store", "kv_store"},    {"probs", "softmax"}, {"o_proj", "gemm"}, {"attn_residual", "residual_add"},
    {"mlp_norm", "layer_norm"},  {"mlp_down", "gemm"},
};
constexpr std::int64_t kOpsOfStep = kLayers * static_cast<std::int64_t>(std::size(kLayerOps)) + 2;

struct Plan {
  std::int64_t requests = 20;
  double stored_share = 0;  ///< of the tensors: so that the file has its size
};

class LargeRun {
 public:
  LargeRun(RecordingWriter& writer, const Plan& plan) : writer_(writer), plan_(plan) {}

  void write() {
    writer_.set_expected_ops(plan_.requests * (1 + kGenerated) * kOpsOfStep);
    for (std::int64_t request = 0; request < plan_.requests; ++request) write_request(request);
  }

 private:
  void write_request(std::int64_t request) {
    RequestRow row;
    row.id = request;
    row.name = fmt::format("chat {}", request);
    row.prompt = R"([{"text": "synthetic"}])";
    row.prompt_tokens.assign(kPrompt, 1000);
    row.output_tokens.assign(kGenerated + 1, 2000);
    row.output_text = "synthetic";
    writer_.add(row);
    for (std::int64_t i = 0; i < kPrompt + kGenerated + 1; ++i) {
      writer_.add(TokenRow{request, i, i < kPrompt ? 1000 : 2000, "word",
                           i < kPrompt ? TokenSource::prompt : TokenSource::generated});
    }
    write_step(request, 0, 0, kPrompt);
    for (std::int64_t i = 0; i < kGenerated; ++i) write_step(request, i + 1, kPrompt + i, 1);
  }

  void write_step(std::int64_t request, std::int64_t index, std::int64_t first, std::int64_t tokens) {
    step_ = {++steps_, request, index,         index == 0 ? StepKind::prefill : StepKind::decode,
             first,    tokens,  first + tokens};
    writer_.add(step_);
    write_kv();
    write_op(-1, {"embed", "embedding"});
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      for (const OpKind& kind : kLayerOps) write_op(layer, kind);
    }
    write_op(-1, {"lm_head", "gemm"});
    std::ignore = writer_.commit_step();
  }

  void write_kv() {
    const std::int64_t blocks = (kPrompt + kGenerated) / kSlots;
    for (std::int64_t at = step_.first_token; at < step_.context;) {
      const std::int64_t slot = at % kSlots;
      const std::int64_t end = std::min(kSlots, slot + step_.context - at);
      KvRow row{step_.id,    step_.request, -1,        step_.request * blocks + at / kSlots,
                0,           kSlots,        at - slot, KvAction::allocated,
                "attention", Format::e4m3};
      if (slot == 0) writer_.add(row);
      row.slot_begin = slot;
      row.slot_end = end;
      row.first_token = at;
      row.action = KvAction::written;
      writer_.add(row);
      at += end - slot;
    }
  }

  void write_op(std::int64_t layer, const OpKind& kind) {
    OpRow op{++ops_, step_.id, layer, kind.name, kind.kind, R"({"eps":1e-05,"order":"warp","contract":true})"};
    const InputRow inputs[] = {{0, "x", tensors_, ""}, {0, "weight", 0, "layers.weight"}};
    writer_.add(op, inputs);
    if (std::string_view(kind.kind) == "kv_store") write_scales(layer);
    write_tensor(kind);
    writer_.add(KernelRow{ops_, fmt::format("{}_bf16", kind.kind), ops_ * 5000, 4000, R"({"grid":[132,1,1]})"});
  }

  void write_scales(std::int64_t layer) {
    for (const char* target : {"k", "v"}) {
      ScaleRow row;
      row.step = step_.id;
      row.op = ops_;
      row.layer = layer;
      row.target = target;
      row.policy = "per_request";
      row.scale = 0.02;
      row.source = ScaleSource::calibrated;
      row.calibrated_request = step_.request;
      row.calibrated_step = step_.id;
      row.calibrated_tokens = step_.tokens;
      row.calibrated_absmax = 4;
      row.absmax = 4;
      row.headroom = 2.24;
      writer_.add(row);
    }
  }

  void write_tensor(const OpKind& kind) {
    const bool stores = std::string_view(kind.kind) == "kv_store";
    TensorRow row;
    row.id = ++tensors_;
    row.op = ops_;
    row.role = stores ? "k_codes" : std::string_view(kind.name) == "lm_head" ? "logits" : "out";
    row.format = Format::bf16;
    row.tokens = step_.tokens;
    row.channels = kChannels;
    row.heads = kHeads;
    row.first_token = step_.first_token;
    row.hash = static_cast<std::uint64_t>(row.id) * 0x9e3779b97f4a7c15U;
    TensorDetail detail = make_detail(row.tokens);
    // In the middle of the run, where nothing marks the place.
    if (step_.request == plan_.requests / 2 && step_.index == 0 && ops_of_step() == kOpsOfStep / 2) plant(detail);
    row.health = merge_all(detail.tokens);
    stored_ += plan_.stored_share;
    std::vector<std::byte> bytes;
    if (stored_ >= 1) {
      stored_ -= 1;
      bytes = writer_.buffer(static_cast<std::size_t>(row.tokens * kChannels * kElementBytes));
    }
    writer_.add(row, detail, std::move(bytes));
  }

  std::int64_t ops_of_step() const { return (ops_ - 1) % kOpsOfStep; }

  /// Healthy tiles whose magnitudes follow the layers and the tokens.
  TensorDetail make_detail(std::int64_t tokens) const {
    TensorDetail detail;
    const LevelShape shape = level_shape(tokens, kChannels, 0);
    detail.tiles.reserve(static_cast<std::size_t>(shape.tiles()));
    for (std::int64_t row = 0; row < tokens; ++row) {
      const float largest = 0.01F * static_cast<float>(1 + ops_of_step()) * static_cast<float>(1 + row % 64);
      Health tile;
      tile.count = kTileChannels;
      tile.sum_sq = 8.0 * static_cast<double>(largest);
      tile.min = -largest;
      tile.max = largest;
      tile.absmax = largest;
      for (std::int64_t i = 0; i < shape.columns; ++i) detail.tiles.push_back(tile);
    }
    detail.tokens = merge_rows(detail.tiles, shape);
    return detail;
  }

  static void plant(TensorDetail& detail) {
    constexpr std::int64_t kToken = 777;
    const LevelShape shape = level_shape(static_cast<std::int64_t>(detail.tokens.size()), kChannels, 0);
    Health& tile = detail.tiles[static_cast<std::size_t>(kToken * shape.columns)];
    tile.nan = 1;
    tile.first_bad = kToken * kChannels + 5;
    detail.tokens = merge_rows(detail.tiles, shape);
  }

  RecordingWriter& writer_;
  Plan plan_;
  StepRow step_;
  std::int64_t steps_ = 0;
  std::int64_t ops_ = 0;
  std::int64_t tensors_ = 0;
  double stored_ = 0;  ///< what is owed of the share
};

Plan plan_for(double gigabytes, std::int64_t requests) {
  const auto rows = static_cast<double>(requests * (kPrompt + kGenerated) * kOpsOfStep);
  const double tiles = 1 + static_cast<double>(kChannels) / kTileChannels * 4 / 3;
  const double left = gigabytes * 1e9 - rows * tiles * kTile;
  return {requests, std::clamp(left / (rows * kChannels * kElementBytes), 0.0, 1.0)};
}

Status write_large(const std::filesystem::path& path, const Plan& plan) {
  RunInfo info;
  info.nanscope_version = "synthetic";
  info.created = "2026-01-01T00:00:00Z";
  info.scenario = "large";
  info.device = "none";
  info.isa = "none";
  info.capture = "none";
  WriterOptions options;
  options.output.replace = true;
  auto writer = RecordingWriter::create(path, info, options);
  if (!writer) return tl::unexpected(writer.error());
  LargeRun(**writer, plan).write();
  return (*writer)->finish();
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  const auto number = [&](int i, auto otherwise) {
    if (argc <= i) return otherwise;
    const std::string_view text(argv[i]);
    std::from_chars(text.data(), text.data() + text.size(), otherwise);
    return otherwise;
  };
  if (argc < 2) {
    fmt::print(stderr, "usage: large_recording FILE [GIGABYTES [REQUESTS]]\n");
    return 2;
  }
  const nanscope::Plan plan =
      nanscope::plan_for(number(2, 10.0), std::max<std::int64_t>(1, number(3, std::int64_t{20})));
  const nanscope::Status written = nanscope::write_large(argv[1], plan);
  if (!written) fmt::print(stderr, "{}\n", written.error().message);
  return written ? 0 : 2;
}
