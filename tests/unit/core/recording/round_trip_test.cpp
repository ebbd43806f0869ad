#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "tests/unit/core/recording/sample.h"

namespace nanscope {
namespace {

/// Writes one of everything to `writer`.
struct Everything {
  RequestRow request{7, "image", R"([{"text":"hi"}])", {5, -1, -1, 9, 9}, 2, {}, ""};
  StepRow step{1, 7, 0, StepKind::prefill, 2, 3, 5};
  OpRow op{1, 1, 4, "kv_store", "kv_store", R"({"scale":0.5})"};
  std::vector<InputRow> inputs{{1, "k", 0, ""}, {1, "scale", 0, "layers.4.k_scale"}};
  TensorDetail wide_detail{sample::many_of(600, 3, 20),
                           sample::many(static_cast<std::size_t>(level_shape(3, 600, 0).tiles()), 40)};
  std::vector<std::byte> wide_bytes = sample::noise(1800, 1);
  TensorRow wide{3,
                 1,
                 "k_codes",
                 Format::e4m3,
                 3,
                 600,
                 2,
                 2,
                 sample::hash_of(wide_bytes),
                 true,
                 sample::sum_of(wide_detail.tokens)};
  TensorRow single{4, 1, "stats", Format::f32, 1, 8, 1, 4, 1, false, sample::health_of(8, 12)};
  WeightRow weight{"w", Format::bf16, 3, 4, ~std::uint64_t{0}, sample::health(5)};
  ScaleRow scale{1, 1, 4,  "k",  "locked", Format::e4m3, 0.1,  ScaleSource::calibrated,
                 0, 1, 17, 12.5, true,     900.0,        0.049};
  KvRow kv{1, 7, -1, 12, 3, 9, 2, KvAction::scrubbed, "warm_up", Format::f32};
  TokenRow token{7, 2, -1, std::string("\xff\0!", 3), TokenSource::image};
  KernelRow kernel{1, "kv_store<e4m3>", 123456789012345, 42, R"({"grid":[1,1,1]})"};

  void add(RecordingWriter& writer) const {
    writer.add(request);
    writer.add(step);
    writer.add(op, inputs);
    writer.add(wide, wide_detail, wide_bytes);
    writer.add(single, {{single.health}, {}});
    writer.add(weight);
    writer.add(scale);
    writer.add(kv);
    writer.add(token);
    writer.add(kernel);
  }
};

void expect_same(const TensorRow& a, const TensorRow& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.op, b.op);
  EXPECT_EQ(a.role, b.role);
  EXPECT_EQ(a.format, b.format);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.channels, b.channels);
  EXPECT_EQ(a.heads, b.heads);
  EXPECT_EQ(a.first_token, b.first_token);
  EXPECT_EQ(a.hash, b.hash);
  EXPECT_EQ(a.stored, b.stored);
  EXPECT_TRUE(sample::same(a.health, b.health));
}

/// The short rows say what the long ones do.
void expect_glances(const Recording& r, const std::vector<TensorRow>& tensors) {
  std::vector<TensorGlance> glances;
  const auto take = [&](const TensorGlance& glance) {
    glances.push_back(glance);
    return true;
  };
  ASSERT_TRUE(r.for_each_glance({}, take));
  ASSERT_EQ(glances.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(glances[i].id, tensors[i].id);
    EXPECT_EQ(glances[i].op, tensors[i].op);
    EXPECT_EQ(glances[i].role, tensors[i].role);
    EXPECT_EQ(glances[i].format, tensors[i].format);
    EXPECT_EQ(glances[i].tokens, tensors[i].tokens);
    EXPECT_EQ(glances[i].channels, tensors[i].channels);
    EXPECT_EQ(glances[i].first_token, tensors[i].first_token);
    EXPECT_TRUE(glances[i].detailed);
    const Health& health = glances[i].health;
    EXPECT_EQ(health.count, tensors[i].health.count);
    EXPECT_EQ(health.nan, tensors[i].health.nan);
    EXPECT_EQ(health.pos_inf, tensors[i].health.pos_inf);
    EXPECT_EQ(health.neg_inf, tensors[i].health.neg_inf);
    EXPECT_EQ(health.saturated, tensors[i].health.saturated);
    EXPECT_EQ(health.clipped, tensors[i].health.clipped);
    EXPECT_EQ(health.absmax, tensors[i].health.absmax);
  }
  ASSERT_TRUE(r.for_each_glance(1, take));
  EXPECT_EQ(glances.size(), 2 * tensors.size());
  ASSERT_TRUE(r.for_each_op_name([&](const OpRow& op) {
    EXPECT_EQ(op.id, 1);
    EXPECT_EQ(op.step, 1);
    EXPECT_EQ(op.layer, 4);
    EXPECT_EQ(op.name, "kv_store");
    EXPECT_EQ(op.kind, "kv_store");
    return true;
  }));
}

void expect_everything(const Recording& r, const Everything& e) {
  const auto requests = r.requests().value();
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].id, 7);
  EXPECT_EQ(requests[0].name, "image");
  EXPECT_EQ(requests[0].prompt, e.request.prompt);
  EXPECT_EQ(requests[0].prompt_tokens, e.request.prompt_tokens);
  EXPECT_EQ(requests[0].cached_tokens, 2);
  EXPECT_EQ(requests[0].output_tokens, (std::vector<std::int32_t>{0, 0, 1}));
  EXPECT_EQ(requests[0].output_text, "!!\"");

  const auto step = r.step(1).value();
  EXPECT_EQ(step.request, 7);
  EXPECT_EQ(step.index, 0);
  EXPECT_EQ(step.kind, StepKind::prefill);
  EXPECT_EQ(step.first_token, 2);
  EXPECT_EQ(step.tokens, 3);
  EXPECT_EQ(step.context, 5);
  EXPECT_EQ(r.find_step(7, 0).value()->id, 1);
  EXPECT_FALSE(r.find_step(7, 1).value());

  const auto op = r.op(1).value();
  EXPECT_EQ(op.step, 1);
  EXPECT_EQ(op.layer, 4);
  EXPECT_EQ(op.name, "kv_store");
  EXPECT_EQ(op.kind, "kv_store");
  EXPECT_EQ(op.attributes, e.op.attributes);
  const auto inputs = r.inputs_of(1).value();
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0].role, "k");
  EXPECT_EQ(inputs[1].op, 1);
  EXPECT_EQ(inputs[1].weight, "layers.4.k_scale");

  const auto tensors = r.tensors_of(1).value();
  ASSERT_EQ(tensors.size(), 2U);
  expect_glances(r, tensors);
  expect_same(tensors[0], e.wide);
  expect_same(tensors[1], e.single);
  EXPECT_TRUE(sample::same(r.token_health(3).value(), e.wide_detail.tokens));
  EXPECT_TRUE(sample::same(r.tiles(3, 0).value().tiles, e.wide_detail.tiles));
  EXPECT_TRUE(sample::same(r.tiles(3, 1).value().tiles, {merge_all(e.wide_detail.tiles)}));
  EXPECT_FALSE(r.tiles(3, 2));
  EXPECT_TRUE(sample::same(r.token_health(4).value(), {e.single.health}));
  EXPECT_TRUE(sample::same(r.tiles(4, 0).value().tiles, {e.single.health}));
  EXPECT_EQ(r.tensor_bytes(3).value().value(), e.wide_bytes);
  EXPECT_EQ(r.tensor_bytes(3, 1799, 1).value().value(), std::vector{e.wide_bytes[1799]});
  EXPECT_FALSE(r.tensor_bytes(3, 1799, 2));
  EXPECT_FALSE(r.tensor_bytes(4).value());

  const auto weight = r.weights().value().at(0);
  EXPECT_EQ(weight.name, "w");
  EXPECT_EQ(weight.format, Format::bf16);
  EXPECT_EQ(weight.rows, 3);
  EXPECT_EQ(weight.columns, 4);
  EXPECT_EQ(weight.hash, ~std::uint64_t{0});
  EXPECT_TRUE(sample::same(weight.health, e.weight.health));
}

void expect_ledgers(const Recording& r, const Everything& e) {
  const auto scale = r.scales().value().at(0);
  EXPECT_EQ(scale.step, 1);
  EXPECT_EQ(scale.op, 1);
  EXPECT_EQ(scale.layer, 4);
  EXPECT_EQ(scale.target, "k");
  EXPECT_EQ(scale.policy, "locked");
  EXPECT_EQ(scale.format, Format::e4m3);
  EXPECT_EQ(scale.scale, 0.1);
  EXPECT_EQ(scale.source, ScaleSource::calibrated);
  EXPECT_EQ(scale.calibrated_request, 0);
  EXPECT_EQ(scale.calibrated_step, 1);
  EXPECT_EQ(scale.calibrated_tokens, 17);
  EXPECT_EQ(scale.calibrated_absmax, 12.5);
  EXPECT_TRUE(scale.locked);
  EXPECT_EQ(scale.absmax, 900.0);
  EXPECT_EQ(scale.headroom, 0.049);

  const auto kv = r.kv_history().value().at(0);
  EXPECT_EQ(kv.step, 1);
  EXPECT_EQ(kv.request, 7);
  EXPECT_EQ(kv.layer, -1);
  EXPECT_EQ(kv.block, 12);
  EXPECT_EQ(kv.slot_begin, 3);
  EXPECT_EQ(kv.slot_end, 9);
  EXPECT_EQ(kv.first_token, 2);
  EXPECT_EQ(kv.action, KvAction::scrubbed);
  EXPECT_EQ(kv.writer, "warm_up");
  EXPECT_EQ(kv.format, Format::f32);

  const auto token = r.tokens(7).value().at(0);
  EXPECT_EQ(token.position, 2);
  EXPECT_EQ(token.token, -1);
  EXPECT_EQ(token.text, e.token.text);
  EXPECT_EQ(token.source, TokenSource::image);

  const auto kernel = r.kernels(1).value().at(0);
  EXPECT_EQ(kernel.op, 1);
  EXPECT_EQ(kernel.name, e.kernel.name);
  EXPECT_EQ(kernel.start_ns, e.kernel.start_ns);
  EXPECT_EQ(kernel.duration_ns, 42);
  EXPECT_EQ(kernel.details, e.kernel.details);
}

void finish_requests(RecordingWriter& writer, const Everything& e) {
  RequestRow finished = e.request;
  finished.output_tokens = {0, 0, 1};
  finished.output_text = "!!\"";
  writer.update_request(finished);
}

TEST(RoundTrip, EveryRowTypeOfAFile) {
  const TemporaryFolder folder;
  const auto path = folder / "a.nanscope";
  const Everything e;
  {
    auto writer = RecordingWriter::create(path, sample::run_info()).value();
    e.add(*writer);
    ASSERT_TRUE(writer->commit_step());
    finish_requests(*writer, e);
    const auto status = writer->finish(2);
    ASSERT_TRUE(status) << status.error().message;
  }
  EXPECT_FALSE(std::filesystem::exists(path.string() + "-journal"));
  auto r = Recording::open(path);
  ASSERT_TRUE(r) << r.error().message;
  expect_everything(*r, e);
  expect_ledgers(*r, e);
  EXPECT_EQ(r->state().value(), RunState::complete);
  const auto counts = r->counts().value();
  EXPECT_EQ(counts.requests, 1);
  EXPECT_EQ(counts.steps, 1);
  EXPECT_EQ(counts.ops, 1);
  EXPECT_EQ(counts.expected_ops, 2);
  EXPECT_EQ(counts.tensors, 2);
  EXPECT_EQ(counts.stored_tensors, 1);
  const RunInfo info = sample::run_info();
  EXPECT_EQ(r->info().nanscope_version, info.nanscope_version);
  EXPECT_EQ(r->info().created, info.created);
  EXPECT_EQ(r->info().scenario, info.scenario);
  EXPECT_EQ(r->info().config, info.config);
  EXPECT_EQ(r->info().device, info.device);
  EXPECT_EQ(r->info().isa, info.isa);
  EXPECT_EQ(r->info().build, info.build);
  EXPECT_EQ(r->info().cpu_features, info.cpu_features);
  EXPECT_EQ(r->info().float_environment, info.float_environment);
  EXPECT_EQ(r->info().capture, info.capture);
  EXPECT_EQ(r->info().expected_ops, 2);
  const auto status = r->check();
  EXPECT_TRUE(status) << status.error().message;
}

TEST(RoundTrip, EveryRowTypeInMemory) {
  const Everything e;
  auto writer = RecordingWriter::create_in_memory(sample::run_info()).value();
  e.add(*writer);
  ASSERT_TRUE(writer->commit_step());
  finish_requests(*writer, e);
  auto r = writer->finish_in_memory(1);
  ASSERT_TRUE(r) << r.error().message;
  expect_everything(*r, e);
  expect_ledgers(*r, e);
  EXPECT_EQ(r->state().value(), RunState::complete);
  EXPECT_EQ(r->path(), ":memory:");
}

/// Two sequences in a step of another rank, padding between them; what stands before every step; what was never dumped.
void add_batch(RecordingWriter& writer) {
  OpRow parameter{1, 0, -1, "lm_head.weight", "parameter", "{}"};
  writer.add(parameter, {});
  TensorRow weight{1, 1, "weight", Format::bf16, 4, 2, 1, 0, 3, false, sample::health_of(8, 1)};
  weight.axis = Axis::none;
  weight.name = "model/lm_head.weight";
  writer.add(weight, {}, sample::noise(16, 1));
  StepRow step{3, 0, 0, StepKind::decode, 0, 6, 0};
  step.rank = 1;
  step.batch = 2;
  step.run = "b";
  step.pass = "rank1/step_003";
  step.placed = false;
  step.spans = {{7, 2, 0, 2, 9, 11}, {8, 0, 4, 1, 0, 1}};
  writer.add(step);
  OpRow op{2, 3, -1, "lm_head", "gemm", "{}"};
  op.by_name = false;
  const InputRow inputs[] = {{2, "weight", 1, ""}};
  writer.add(op, inputs);
  TensorRow out{2, 2, "out", Format::f32, 2, 4, 1, 0, 4, false, sample::health_of(8, 2)};
  out.axis = Axis::ends;
  out.guessed = true;
  out.health.sum = std::numeric_limits<double>::quiet_NaN();
  writer.add(out, {}, sample::noise(32, 1));
  TensorRow unknown{3, 2, "hidden", Format::f32, 1, 4, 1, 5, 0, false, empty_health()};
  unknown.axis = Axis::part;
  unknown.sequence = 1;
  unknown.known = false;
  writer.add(unknown);
  TensorRow stated{4, 2, "stats", Format::f32, 6, 4, 1, 0, 0, false, sample::health(4)};
  stated.stated = true;
  writer.add(stated);
  StepRow nobody{4, 0, 0, StepKind::prefill, 0, 2, 0};
  nobody.spans.emplace();
  writer.add(nobody);
  writer.add(RunNote{"model/odd", "its name says nothing that is known"});
  writer.set_expected_tensors(9);
}

TEST(RoundTrip, SequencesRanksAndWhatWasNotDumped) {
  auto writer = RecordingWriter::create_in_memory(sample::run_info()).value();
  add_batch(*writer);
  ASSERT_TRUE(writer->commit_step());
  const auto r = writer->finish_in_memory();
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->schema(), 4U);
  const auto whole = r->check();
  EXPECT_TRUE(whole) << whole.error().message;

  const std::vector<StepRow> steps = r->steps().value();
  ASSERT_EQ(steps.size(), 2U);
  const StepRow& step = steps[0];
  EXPECT_EQ(step.rank, 1);
  EXPECT_EQ(step.batch, 2);
  EXPECT_EQ(step.run, "b");
  EXPECT_EQ(step.pass, "rank1/step_003");
  EXPECT_FALSE(step.placed);
  EXPECT_EQ(step.tokens, 6);
  ASSERT_EQ(step.spans->size(), 2U);
  EXPECT_EQ(step.request, 7) << "the first sequence's";
  EXPECT_EQ(step.index, 2);
  EXPECT_EQ(step.first_token, 9);
  EXPECT_EQ(step.context, 11);
  const Span& second = step.spans->back();
  EXPECT_EQ(std::tie(second.request, second.index, second.row, second.rows, second.first_token, second.context),
            std::make_tuple(8, 0, 4, 1, 0, 1));
  EXPECT_TRUE(steps[1].spans->empty()) << "rows of nobody";
  EXPECT_EQ(r->find_step(8, 0).value()->id, 3) << "by its second sequence";
  EXPECT_EQ(r->steps(8).value().size(), 1U);
  EXPECT_EQ(r->step(3).value().spans->size(), 2U);

  OpFilter before;
  before.step = 0;
  ASSERT_EQ(r->ops(before).value().size(), 1U);
  EXPECT_EQ(r->ops(before).value()[0].name, "lm_head.weight");
  TensorFilter parameters;
  parameters.step = 0;
  ASSERT_EQ(r->tensors(parameters).value().size(), 1U);
  EXPECT_EQ(r->tensors(parameters).value()[0].axis, Axis::none);
  EXPECT_EQ(r->tensors(parameters).value()[0].name, "model/lm_head.weight");
  EXPECT_FALSE(r->op(2).value().by_name);
  EXPECT_EQ(r->inputs_of(2).value()[0].tensor, 1);

  const auto tensors = r->tensors_of(2).value();
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].axis, Axis::ends);
  EXPECT_TRUE(tensors[0].guessed);
  EXPECT_TRUE(std::isnan(tensors[0].health.sum));
  EXPECT_EQ(tensors[1].axis, Axis::part);
  EXPECT_EQ(tensors[1].sequence, 1);
  EXPECT_FALSE(tensors[1].known);
  EXPECT_TRUE(tensors[2].stated);
  EXPECT_FALSE(tensors[2].axis) << "not said";

  const auto notes = r->notes().value();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].tensor, "model/odd");
  EXPECT_EQ(r->counts()->tensors, 3) << "without the one that was never dumped";
  EXPECT_EQ(r->counts()->expected_tensors, 9);
}

}  // namespace
}  // namespace nanscope
