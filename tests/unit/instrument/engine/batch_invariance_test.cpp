/// The bits of a request do not depend on who else is in the step, on chunks, padding, preemption, shared prefixes or
/// threads: random schedules against each request alone, one after another.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "engine_rig.h"

namespace nanscope {
namespace {

using testing::Knobs;

/// Bytes of each row of what an op put out, by request and position.
class RowProbe final : public Probe {
 public:
  using Rows = std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::vector<std::byte>>;
  explicit RowProbe(kernels::Device& device) : device_(device) {}

  Status on_step_begin(const StepRow& row) override {
    spans_ = row.all_spans();
    spans_in_steps += row.spans ? static_cast<std::int64_t>(row.spans->size()) : 1;
    ++steps;
    for (const Span& span : spans_) padding -= span.rows;
    padding += row.tokens;
    return {};
  }
  Status on_kv(const KvRow& row) override {
    if (row.action == KvAction::shared) ++shared;
    return {};
  }
  Status on_op(const ProbeOp& op) override {
    for (const ProbeTensor& tensor : op.outputs) {
      const std::string place = std::string(op.name) + std::to_string(op.layer) + std::string(tensor.role);
      if (op.name != "lm_head" && op.name != "mlp_residual" && op.name != "kv_store") continue;
      const std::size_t row = static_cast<std::size_t>(tensor.view.columns) * info(tensor.view.format).storage_bytes();
      std::vector<std::byte> bytes(row * static_cast<std::size_t>(tensor.view.rows));
      if (Status status = device_.download(bytes, tensor.view.data); !status) return status;
      const bool ends = tensor.axis == Axis::ends;
      for (std::size_t i = 0; i < spans_.size(); ++i) {
        const Span& span = spans_[i];
        for (std::int64_t at = span.row; at < span.row + span.rows; ++at) {
          const bool last = at == span.row + span.rows - 1;
          if (op.name == "lm_head" && !last) continue;
          const auto from =
              bytes.begin() + static_cast<std::ptrdiff_t>(row * (ends ? i : static_cast<std::size_t>(at)));
          std::vector<std::byte> now(from, from + static_cast<std::ptrdiff_t>(row));
          const auto [known, is_new] = rows.try_emplace({place, span.request, span.position(at)}, now);
          if (!is_new) ++again;
          if (known->second != now) ++changed;
        }
      }
    }
    return {};
  }

  Rows rows;
  std::int64_t spans_in_steps = 0;
  std::int64_t steps = 0;
  std::int64_t padding = 0;
  std::int64_t shared = 0;
  std::int64_t again = 0;    ///< rows that were computed before, and lost
  std::int64_t changed = 0;  ///< of them, to other bits

 private:
  kernels::Device& device_;
  std::vector<Span> spans_;
};

/// A model on two devices that differ in threads.
struct Variant {
  EngineConfig config;
  std::vector<std::unique_ptr<kernels::Device>> devices;
  std::vector<std::shared_ptr<const LoadedModel>> models;
};

Variant make_variant(const Knobs& knobs) {
  Variant made;
  made.config = testing::tiny_config({{"model.vocabulary", "61"}, {"kv.block_size", "4"}});
  for (const auto& [name, value] : knobs) EXPECT_TRUE(set_knob(made.config, name, value)) << name;
  for (const int threads : {1, 3}) {
    made.devices.push_back(kernels::make_device("cpu", threads).value());
    auto weights = make_weight_source(made.config.model).value();
    made.models.push_back(
        load_model(made.config, *made.devices.back(), *weights, *testing::shipped_tokenizer()).value());
  }
  return made;
}

struct Draw {
  std::mt19937_64 random;
  std::int64_t operator()(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  }
};

/// Prompts that often begin alike.
std::vector<RequestSpec> draw_requests(Draw& draw) {
  std::vector<RequestSpec> requests;
  for (std::int64_t i = draw(2, 5); i > 0; --i) {
    TokensPart part;
    const std::int64_t shared = draw(0, 1) * draw(4, 9);
    for (std::int64_t at = 0; at < shared; ++at) part.ids.push_back(static_cast<std::int32_t>(7 * at % 61));
    for (std::int64_t at = draw(1, 11); at > 0; --at) part.ids.push_back(static_cast<std::int32_t>(draw(0, 60)));
    RequestSpec request{.name = "r" + std::to_string(i), .parts = {part}, .max_tokens = static_cast<int>(draw(1, 5))};
    request.arrive = draw(0, 6);
    requests.push_back(std::move(request));
  }
  return requests;
}

EngineConfig draw_schedule(Draw& draw, EngineConfig config) {
  config.batch.requests = draw(2, 6);
  config.batch.chunk = draw(0, 1) * draw(1, 7);
  config.batch.pad_to = draw(0, 1) * draw(1, 9);
  config.batch.pad_rows = draw(0, 1) == 1 ? PadRows::masked : PadRows::zero;
  config.kv.blocks = draw(8, 20);
  config.kv.prefix_cache = draw(0, 2) > 0;
  config.kv.reuse = draw(0, 1) == 1 ? BlockReuse::lifo : BlockReuse::fifo;
  return config;
}

RowProbe run_on(const Variant& variant, const EngineConfig& config, std::span<const RequestSpec> requests,
                std::size_t device, std::vector<RequestRow>& rows) {
  auto engine = Engine::create(config, *variant.devices[device], variant.models[device], testing::shipped_tokenizer());
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  RowProbe probe(*variant.devices[device]);
  Result<RunResult> run = (*engine)->run(requests, probe);
  EXPECT_TRUE(run) << (run ? "" : run.error().message);
  if (run) rows = std::move(run->requests);
  return probe;
}

TEST(BatchInvariance, RandomSchedulesKeepEachRequestsBits) {
  std::vector<Variant> variants;
  variants.push_back(make_variant({}));
  variants.push_back(make_variant({{"kv.format", "e4m3"}, {"kv.policy", "per_token"}, {"model.positions", "64"}}));
  variants.push_back(make_variant({{"model.recurrent_layers", "1"}, {"kv.format", "bf16"}, {"kv.block_size", "8"}}));
  variants.push_back(make_variant({{"model.experts", "3"}, {"model.experts_per_token", "2"}, {"engine.pad", "left"}}));
  variants.push_back(make_variant({{"model.recurrent_layers", "1"},
                                   {"model.norm", "rms_norm"},
                                   {"model.delta_key_heads", "1"},
                                   {"model.delta_value_heads", "2"},
                                   {"model.delta_key_dim", "4"},
                                   {"model.delta_value_dim", "4"},
                                   {"model.attention_gate", "true"},
                                   {"model.parallel", "true"},
                                   {"model.shared_norm", "true"},
                                   {"kv.block_size", "8"}}));
  constexpr int kSchedules = 520;
  Draw draw{std::mt19937_64(20261125)};
  std::int64_t spans = 0, steps = 0, padding = 0, shared = 0, again = 0;
  for (int i = 0; i < kSchedules && !::testing::Test::HasFailure(); ++i) {
    Variant& variant = variants[static_cast<std::size_t>(i) % variants.size()];
    EngineConfig alone = variant.config;
    if (draw(0, 2) == 0) alone.sampling = {0.8F, draw(0, 1000)};
    const std::vector<RequestSpec> requests = draw_requests(draw);
    const EngineConfig config = draw_schedule(draw, alone);
    alone.kv.prefix_cache = false;
    std::vector<RequestRow> expected, got;
    const RowProbe serial = run_on(variant, alone, requests, 0, expected);
    const RowProbe batched = run_on(variant, config, requests, 1, got);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t at = 0; at < got.size(); ++at) EXPECT_EQ(got[at].output_tokens, expected[at].output_tokens) << i;
    std::int64_t compared = 0;
    for (const auto& [place, bytes] : batched.rows) {
      const auto known = serial.rows.find(place);
      if (known == serial.rows.end()) continue;  // logits within a prompt
      ++compared;
      EXPECT_EQ(bytes, known->second) << "schedule " << i << ": " << std::get<0>(place) << " of request "
                                      << std::get<1>(place) << " at " << std::get<2>(place);
    }
    EXPECT_GT(compared, 0);
    spans += batched.spans_in_steps, steps += batched.steps, padding += batched.padding, shared += batched.shared;
    again += batched.again;
    EXPECT_EQ(batched.changed, 0) << i;
  }
  // What was drawn did happen.
  EXPECT_GT(spans, steps + steps / 2);
  EXPECT_GT(padding, kSchedules);
  EXPECT_GT(again, kSchedules);
  EXPECT_GT(shared, kSchedules / 10);
}

/// What the test above must be able to see.
TEST(BatchInvariance, AScaleOfTheWholeStepLetsOtherRequestsIn) {
  Variant variant = make_variant({{"kv.format", "e4m3"}, {"kv.policy", "per_step"}});
  const std::vector<RequestSpec> requests{{.name = "a", .parts = {TokensPart{{1, 2, 3}}}, .max_tokens = 2},
                                          {.name = "b", .parts = {TokensPart{{40, 50, 60}}}, .max_tokens = 2}};
  std::vector<RequestRow> rows;
  const RowProbe serial = run_on(variant, variant.config, requests, 0, rows);
  variant.config.batch.requests = 2;
  const RowProbe batched = run_on(variant, variant.config, requests, 0, rows);
  std::int64_t changed = 0;
  for (const auto& [place, bytes] : batched.rows) changed += bytes != serial.rows.at(place) ? 1 : 0;
  EXPECT_GT(changed, 0);
}

}  // namespace
}  // namespace nanscope
