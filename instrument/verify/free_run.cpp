#include "instrument/verify/free_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "instrument/diagnosis/facts.h"
#include "instrument/engine/engine.h"
#include "instrument/engine/model_folder.h"
#include "instrument/gguf/gguf_model.h"
#include "instrument/model/model_spec.h"
#include "instrument/recompute/arithmetic.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recompute.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {
namespace {

constexpr std::int64_t kMostTokens = 4096;
/// Times the largest error of a layer before: the output is a sum of the stream and two branches, each off by as much.
constexpr double kLeaves = 3;
/// Of a layer's output, each a unit roundoff: norm, projections, rotation, attention, projection, sum; norm, gate and
/// up, activation, product, projection, sum.
constexpr double kRoundingsOfLayer = 12;

/// What comes out of each layer, for all positions.
class LayersProbe final : public Probe {
 public:
  explicit LayersProbe(kernels::Device& device) : device_(device) {}

  Status on_op(const ProbeOp& op) override {
    if (op.name != "mlp_residual" && op.name != "final_norm") return {};
    for (const ProbeTensor& one : op.outputs) {
      if (one.role == "stats" || one.view.format != Format::f32 || one.view.stride != one.view.columns) continue;
      std::vector<float> values(static_cast<std::size_t>(one.view.elements()));
      if (Status got = device_.download(std::as_writable_bytes(std::span(values)), one.view.data); !got) return got;
      auto& all = layers[op.layer];
      all.insert(all.end(), values.begin(), values.end());
    }
    return {};
  }

  std::map<std::int64_t, std::vector<float>> layers;  ///< -1: behind the last norm

 private:
  kernels::Device& device_;
};

/// A request of one sequence whose ids were dumped from its beginning on, and its steps.
struct Served {
  std::vector<std::int32_t> ids;
  std::vector<const Step*> steps;
};

Result<Served> served_of(DumpRun& run) {
  Served served;
  std::int64_t request = -1;
  for (const Step& step : run.steps()) {
    if (step.spans.size() != 1 || step.rank != 0) continue;
    const Span& span = step.spans.front();
    const auto begin = static_cast<std::int64_t>(served.ids.size());
    if (request >= 0 && (span.request != request || span.first_token != begin)) continue;
    if (request < 0 && span.first_token != 0) continue;
    std::shared_ptr<const std::vector<float>> ids;
    for (const Tensor& tensor : run.content(step.id).tensors) {
      if (tensor.role == "tokens" && tensor.known && tensor.count() == step.rows) ids = run.values(tensor);
    }
    if (!ids) continue;
    request = span.request;
    for (std::int64_t row = span.row; row < span.row + span.rows; ++row) {
      const float id = (*ids)[static_cast<std::size_t>(row)];
      if (!(id >= 0)) return fail("its ids are not those of tokens");
      served.ids.push_back(static_cast<std::int32_t>(id));
    }
    served.steps.push_back(&step);
  }
  if (served.ids.empty()) return fail("no token ids of a whole sequence were dumped");
  if (static_cast<std::int64_t>(served.ids.size()) > kMostTokens)
    return fail(fmt::format("its sequence has {} tokens, more than {}", served.ids.size(), kMostTokens));
  return served;
}

/// The error of one dumped output over all steps; nothing where it was not dumped.
std::optional<FreeLayer> compare(DumpRun& run, const Served& served, std::int64_t layer,
                                 const std::vector<float>& reference) {
  FreeLayer found;
  found.layer = layer;
  const std::optional<std::int64_t> at = layer < 0 ? std::nullopt : std::optional(layer);
  const std::string_view name = layer < 0 ? "final_norm" : "mlp_residual";
  const std::size_t width = reference.size() / served.ids.size();
  double off = 0;
  double size = 0;
  double worst = -1;
  for (const Step* step : served.steps) {
    const Op* op = run.find_op(step->id, at, name);
    const Tensor* out = op != nullptr ? run.result(*op) : nullptr;
    if (out == nullptr || !out->known || static_cast<std::size_t>(out->channels) != width) return std::nullopt;
    if (found.name.empty()) found.name = out->name;
    const Span& span = step->spans.front();
    for (std::int64_t row = 0; row < span.rows; ++row) {
      const auto own = run.row_at(*out, span, span.first_token + row);
      const auto values = own ? run.row_values(*out, *own) : nullptr;
      if (!values || values->size() != width) return std::nullopt;
      double row_off = 0;
      double row_size = 0;
      for (std::size_t c = 0; c < width; ++c) {
        const double expected = double{reference[static_cast<std::size_t>(span.first_token + row) * width + c]};
        row_off += std::pow(double{(*values)[c]} - expected, 2);
        row_size += expected * expected;
      }
      found.rows.push_back(std::sqrt(row_off / std::max(row_size, 1e-300)));
      if (row_off > worst * row_size)
        worst = row_off / std::max(row_size, 1e-300), found.worst_row = span.first_token + row;
      off += row_off;
      size += row_size;
    }
  }
  found.error = std::sqrt(off / std::max(size, 1e-300));
  return found;
}

void judge(FreeRun& free) {
  double before = 0;
  std::vector<double> behind;
  for (FreeLayer& one : free.layers) {
    const double most = kLeaves * before + kRoundingsOfLayer * free.rounding;
    const bool leaves = !(one.error <= most);
    one.rows_off = static_cast<std::size_t>(
        std::count_if(one.rows.begin(), one.rows.end(), [&](double error) { return !(error <= most); }));
    if (leaves && !free.leaves_at) free.leaves_at = one.layer;
    if (free.leaves_at) behind.push_back(one.error);
    before = std::max(before, one.error);
  }
  if (behind.size() > 1 && behind.front() > 0)
    free.growth = std::pow(behind.back() / behind.front(), 1 / static_cast<double>(behind.size() - 1));
}

}  // namespace

Result<std::vector<std::int32_t>> served_ids(DumpRun& dump) {
  auto served = served_of(dump);
  if (!served) return tl::unexpected(served.error());
  return std::move(served->ids);
}

Result<std::string> compare_ids(const std::vector<std::int32_t>& ids, const std::string& text,
                                const std::filesystem::path& folder) {
  constexpr std::size_t kMostBefore = 64;
  const auto gguf = gguf_of(folder);
  if (!gguf) return tl::unexpected(gguf.error());
  const auto tokenizer = Tokenizer::load(*gguf ? **gguf : folder / "tokenizer.json");
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  const auto own = tokenizer->encode(text);
  if (!own) return tl::unexpected(own.error());
  std::size_t alike = 0;
  std::size_t begins = 0;
  for (std::size_t before = 0; before <= std::min(kMostBefore, ids.size()); ++before) {
    const auto [end, other] =
        std::mismatch(own->begin(), own->end(), ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
    static_cast<void>(other);
    const auto count = static_cast<std::size_t>(end - own->begin());
    if (count == own->size()) return std::string();
    if (count > alike) alike = count, begins = before;
  }
  const std::size_t at = begins + alike;
  return fmt::format("the ids are not those of the text: {} at position {}, where the tokenizer has {}",
                     at < ids.size() ? std::to_string(ids[at]) : std::string("none"), at, (*own)[alike]);
}

Format served_format(RunView& run) {
  Facts facts(run);
  PlainArithmetic arithmetic;
  Recomputer recomputer(facts, arithmetic, {});
  return run.steps().empty() ? Format::f32 : recomputer.values().activation_format(run.steps().front().id);
}

struct ReferenceModel::Parts {
  EngineConfig config;
  bool casts_inputs = false;  ///< servers of the checkpoint do
  std::unique_ptr<kernels::Device> device;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const LoadedModel> model;
};

ReferenceModel::ReferenceModel(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ReferenceModel::~ReferenceModel() = default;

Result<std::unique_ptr<ReferenceModel>> ReferenceModel::load(const std::filesystem::path& folder,
                                                             std::stop_token stop) {
  auto parts = std::make_unique<Parts>();
  if (Status used = use_model_folder(parts->config, folder); !used) return tl::unexpected(used.error());
  const auto spec = read_model_spec(folder);
  if (!spec) return tl::unexpected(spec.error());
  parts->casts_inputs = spec->casts_inputs;
  parts->config.activation_format = Format::f32;
  parts->config.kv.format = Format::f32;
  auto device = kernels::make_device("cpu", 0);
  if (!device) return tl::unexpected(device.error());
  parts->device = std::move(*device);
  auto none = Tokenizer::none();
  if (!none) return tl::unexpected(none.error());
  parts->tokenizer = std::make_shared<const Tokenizer>(std::move(*none));
  const auto source = make_weight_source(parts->config.model);
  if (!source) return tl::unexpected(source.error());
  auto loaded = load_model(parts->config, *parts->device, **source, *parts->tokenizer, std::move(stop));
  if (!loaded) return tl::unexpected(loaded.error());
  parts->model = std::move(*loaded);
  return std::unique_ptr<ReferenceModel>(new ReferenceModel(std::move(parts)));
}

Result<FreeRun> ReferenceModel::run(DumpRun& dump, Format served_format, std::stop_token stop) const {
  FreeRun free;
  if (parts_->casts_inputs) {
    free.why = "inputs of products are cast, and a code that falls the other way is no rounding";
    return free;
  }
  const Result<Served> served = served_of(dump);
  if (!served) {
    free.why = served.error().message;
    return free;
  }
  EngineConfig config = parts_->config;
  constexpr std::int64_t kLeastBlock = 16;
  config.kv.blocks = std::max(config.kv.blocks, static_cast<std::int64_t>(served->ids.size()) / kLeastBlock + 4);
  const auto engine = Engine::create(config, *parts_->device, parts_->model, parts_->tokenizer);
  if (!engine) {
    free.why = engine.error().message;
    return free;
  }
  LayersProbe probe(*parts_->device);
  const std::vector<RequestSpec> requests{{.name = "dump", .parts = {TokensPart{served->ids}}, .max_tokens = 1}};
  if (const auto ran = (*engine)->run(requests, probe, {.progress = {}, .stop = std::move(stop)}); !ran)
    return tl::unexpected(ran.error());
  free.rounding = roundoff(served_format);
  const auto first_rows = static_cast<std::ptrdiff_t>(served->steps.front()->spans.front().rows);
  free.prompt.assign(served->ids.begin(), served->ids.begin() + first_rows);
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    const auto found = probe.layers.find(layer);
    if (found == probe.layers.end()) continue;
    if (auto one = compare(dump, *served, layer, found->second)) free.layers.push_back(std::move(*one));
  }
  if (const auto last = probe.layers.find(-1); last != probe.layers.end()) {
    if (auto one = compare(dump, *served, -1, last->second)) free.layers.push_back(std::move(*one));
  }
  if (free.layers.empty()) free.why = "no layer's output was dumped";
  judge(free);
  return free;
}

void ask_what_is_open(Verification& made, const FreeRun& free, double least) {
  std::vector<std::string> reasons;
  const auto at = std::find_if(free.layers.begin(), free.layers.end(),
                               [&](const FreeLayer& one) { return free.leaves_at && one.layer == *free.leaves_at; });
  if (at != free.layers.end()) {
    reasons.push_back(
        fmt::format("the free run leaves the model in {}, in {} of {} rows, and no checked output shows why",
                    at->layer < 0 ? std::string("the last norm") : fmt::format("layer {}", at->layer), at->rows_off,
                    at->rows.size()));
    for (const NotChecked& one : made.not_checked) {
      if (one.layer == at->layer) made.open_at.push_back(one.name);
    }
  }
  if (made.coverage() < least)
    reasons.push_back(fmt::format("{:.3g} % of the elements were checked, less than the {:.3g} % of --min-coverage",
                                  100 * made.coverage(), 100 * least));
  made.open = fmt::format("{}", fmt::join(reasons, "; "));
}

std::string free_run_summary(const FreeRun& free) {
  if (free.layers.empty()) return "not made: " + free.why;
  const double last = free.layers.back().error;
  if (!free.leaves_at)
    return fmt::format(
        "what was served stays with the model: off by {:.2e} at the end, {:.3g} times what one rounding is", last,
        last / free.rounding);
  const auto at = std::find_if(free.layers.begin(), free.layers.end(),
                               [&](const FreeLayer& one) { return one.layer == *free.leaves_at; });
  if (!std::isfinite(at->error))
    return fmt::format("what was served, or the model itself, holds NaN or Inf from {} on: nothing is measured there",
                       at->layer < 0 ? std::string("the last norm") : fmt::format("layer {}", at->layer));
  return fmt::format("what was served leaves the model in {}, by {:.2e}, and is off by {:.2e} at the end: {}",
                     at->layer < 0 ? std::string("the last norm") : fmt::format("layer {}", at->layer), at->error, last,
                     free.growth > 1.2   ? fmt::format("growing by {:.3g} a layer", free.growth)
                     : free.growth < 0.8 ? fmt::format("falling by {:.3g} a layer", free.growth)
                                         : std::string("not growing"));
}

}  // namespace nanscope
