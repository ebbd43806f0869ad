#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/why.h"
#include "instrument/recompute/arithmetic.h"
#include "scenarios/open_run.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/training_run.h"
#include "tests/read_text.h"
#include "tests/temporary_folder.h"

/// Scenarios that train: their files, their runs, their recordings.
namespace nanscope::scenarios {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::string_view kModel = R"([model]
weights = "random"
layers = 1
width = 16
heads = 2
kv_heads = 2
head_dim = 8
mlp_width = 24
[train]
text = "data/text.txt"
steps = 4
batch = 2
length = 8
learning_rate = 1e-2
)";

class TrainingScenario : public ::testing::Test {
 protected:
  TrainingScenario() {
    fs::create_directory(folder_ / "data");
    write_text("The light turns once in twelve seconds, and the keeper counts them all, night after night.\n");
  }

  void write_text(std::string_view text) const { std::ofstream(folder_ / "data/text.txt") << text; }
  fs::path write_file(const std::string& text) const {
    const fs::path path = folder_ / "small.toml";
    std::ofstream(path) << text;
    return path;
  }
  RunSpec spec() const {
    const auto scenario = load_training_scenario(write_file(std::string(kModel)));
    EXPECT_TRUE(scenario) << scenario.error().message;
    auto spec = resolve(*scenario);
    EXPECT_TRUE(spec) << spec.error().message;
    return *spec;
  }
  std::unique_ptr<Workbench> workbench() const { return Workbench::open("cpu", 1).value(); }

  TemporaryFolder folder_;
};

TEST_F(TrainingScenario, NeedsNoRequestsAndTakesNone) {
  const std::string head = "name = \"small\"\n" + std::string(kModel);
  const std::string tail = "[expect]\nverdict = \"clean\"\n";
  const auto scenario = parse_scenario(head + tail, folder_ / "small.toml");
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_TRUE(scenario->requests.empty());
  EXPECT_THAT(parse_scenario(head + "[[request]]\ntext = \"a\"\n" + tail, folder_ / "small.toml").error().message,
              HasSubstr("small.toml:16:1: a run that trains (train.steps above 0) answers no requests"));
  EXPECT_THAT(parse_scenario("name = \"small\"\n" + tail, folder_ / "small.toml").error().message,
              HasSubstr("at least one [[request]], or train.steps above 0"));
  EXPECT_THAT(load_scenario(write_file(std::string(kModel))).error().message, HasSubstr("needs name"))
      << "what is judged says what it is";
}

TEST_F(TrainingScenario, ItsTextLiesBesideTheFile) {
  const RunSpec found = spec();
  EXPECT_EQ(found.scenario, "small");
  EXPECT_EQ(found.config.train.text, (folder_ / "data/text.txt").string());
  EXPECT_EQ(found.config.train.text_hash.size(), 16U);
  const auto again = run_spec_from_json(to_json(found), "small");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->config.train.text_hash, found.config.train.text_hash);
  EXPECT_EQ(to_json(*again), to_json(found));

  EngineConfig changed = found.config;
  std::ofstream(folder_ / "other.txt") << "Another text, which is long enough to be trained on for a while.";
  ASSERT_TRUE(apply_settings(changed, std::vector{"train.text=" + (folder_ / "other.txt").string()}));
  EXPECT_NE(changed.train.text_hash, found.config.train.text_hash);
  fs::remove(folder_ / "data/text.txt");
  const auto scenario = load_training_scenario(folder_ / "small.toml");
  EXPECT_THAT(resolve(*scenario).error().message, HasSubstr("train.text: " + (folder_ / "data/text.txt").string()));
}

TEST_F(TrainingScenario, IsRecordedAndReplayed) {
  const auto bench = workbench();
  RunSpec tied = spec();
  tied.config.model.tied_head = true;  // its gradient has two parts
  RecordOptions options;
  options.path = folder_ / "run.nanscope";
  auto recorded = record(*bench, tied, options);
  ASSERT_TRUE(recorded) << recorded.error().message;
  const auto recording = Recording::open_checked(folder_ / "run.nanscope");
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->steps().value().size(), 12U);
  EXPECT_EQ(recording->requests().value().size(), 8U);
  std::set<std::tuple<std::int64_t, std::int64_t, std::string>> places;
  const std::vector<OpRow> ops = recording->ops({}).value();
  for (const OpRow& op : ops) {
    EXPECT_TRUE(places.emplace(op.step, op.layer, op.name).second) << op.step << '/' << op.layer << '/' << op.name;
    EXPECT_EQ(op.name.find('.'), std::string::npos) << op.name << ": a place ends there";
  }
  const auto replayed = replay(*workbench(), *recording);
  ASSERT_TRUE(replayed) << replayed.error().message;
  EXPECT_TRUE(replayed->same());
  EXPECT_EQ(replayed->verified, replayed->tensors);
  EXPECT_GT(replayed->tensors, 100);

  write_text("The light turns once in thirteen seconds, and the keeper counts them all, night after night.\n");
  EXPECT_THAT(replay(*workbench(), *recording).error().message, HasSubstr("is not the text of this run"));
  fs::remove(folder_ / "data/text.txt");
  EXPECT_THAT(replay(*workbench(), *recording).error().message, HasSubstr("data/text.txt"));
}

/// Every kind of op that a backward pass may have, all of it made again to the bit: sums of tied gradients, joined
/// sequences, operands of attention on blocks, a scale that an overflow halves.
TEST_F(TrainingScenario, IsReplayedWithEveryRounding) {
  write_text(
      "The light turns once in twelve seconds, and the keeper counts them all, night after night, until the morning.\n"
      "A ship comes in at noon with salt, rope and letters; the harbour master weighs the salt and reads the "
      "letters.\n");
  RunSpec all = spec();
  for (const char* setting : {"model.width=64",
                              "model.head_dim=32",
                              "model.tied_head=true",
                              "model.qk_norm=true",
                              "model.attention_softcap=20",
                              "model.logit_softcap=30",
                              "model.bias=true",
                              "train.length=32",
                              "train.steps=3",
                              "train.gradient_format=f16",
                              "train.loss_scaling=dynamic",
                              "train.loss_scale=16777216",
                              "train.blocks=mxfp4",
                              "train.stochastic=true",
                              "train.hadamard=true",
                              "attention.blocks_q=mxfp8",
                              "attention.blocks_k=mxfp4",
                              "attention.blocks_v=mxfp4",
                              "attention.blocks_p=mxfp8",
                              "attention.diagonal=exact"}) {
    ASSERT_TRUE(apply_settings(all.config, std::vector<std::string>{setting})) << setting;
  }
  RecordOptions options;
  options.path = folder_ / "run.nanscope";
  const auto recorded = record(*workbench(), all, options);
  ASSERT_TRUE(recorded) << recorded.error().message;
  const auto recording = Recording::open_checked(folder_ / "run.nanscope");
  ASSERT_TRUE(recording) << recording.error().message;
  const auto replayed = replay(*workbench(), *recording);
  ASSERT_TRUE(replayed) << replayed.error().message;
  EXPECT_TRUE(replayed->same());
  EXPECT_EQ(replayed->verified, replayed->tensors);
}

/// Experts and sinks: every op is made again to the bit, nothing in the recording looks like a fault, and the gradient
/// of an expert's weight leads back over the router's choice.
TEST_F(TrainingScenario, ExpertsAreReplayedDiagnosedAndFollowed) {
  RunSpec mixture = spec();
  for (const char* setting : {"model.experts=3", "model.experts_per_token=1", "model.expert_width=8",
                              "model.shared_expert_width=12", "model.router_bias=true", "model.attention_sinks=true",
                              "moe.score=softmax", "moe.normalise=false", "train.batch=3"}) {
    ASSERT_TRUE(apply_settings(mixture.config, std::vector<std::string>{setting})) << setting;
  }
  RecordOptions options;
  options.path = folder_ / "run.nanscope";
  const auto recorded = record(*workbench(), mixture, options);
  ASSERT_TRUE(recorded) << recorded.error().message;
  const auto recording = Recording::open_checked(options.path);
  ASSERT_TRUE(recording) << recording.error().message;
  std::set<std::tuple<std::int64_t, std::int64_t, std::string>> places;
  const std::vector<OpRow> ops = recording->ops({}).value();
  for (const OpRow& op : ops) {
    EXPECT_TRUE(places.emplace(op.step, op.layer, op.name).second) << op.step << '/' << op.layer << '/' << op.name;
  }
  const auto replayed = replay(*workbench(), *recording);
  ASSERT_TRUE(replayed) << replayed.error().message;
  EXPECT_TRUE(replayed->same());
  EXPECT_EQ(replayed->verified, replayed->tensors);

  const auto run = OpenRun::open(options.path).value();
  PlainArithmetic arithmetic;
  const auto diagnosis = diagnose(run->view(), arithmetic);
  ASSERT_TRUE(diagnosis) << diagnosis.error().message;
  EXPECT_TRUE(diagnosis->healthy());

  const Op* mix = run->view().find_op(2, 0, "expert_mix_grad");
  const Op* router = run->view().find_op(2, 0, "route_grad");
  const Op* softmax = run->view().find_op(2, 0, "softmax_0_grad");
  ASSERT_TRUE(mix != nullptr && router != nullptr && softmax != nullptr);
  EXPECT_EQ(mix->outputs.size(), 4U) << "of the weights and of three experts";
  EXPECT_EQ(softmax->outputs.size(), 2U) << "of the scores and of the sinks";
  const auto path = why(run->view(), Element{router->outputs.front(), 1, 2});
  ASSERT_TRUE(path) << path.error().message;
  ASSERT_GE(path->hops.size(), 2U);
  EXPECT_THAT(place_text(path->hops[0].where), HasSubstr("/route_grad.dlogits[1,2]"));
  EXPECT_THAT(place_text(path->hops[1].where), HasSubstr("/expert_mix_grad.dweights[1,0]"));
}

/// What an expert puts out in a later step is NaN of weights that the optimizer made so.
TEST_F(TrainingScenario, ANanOfAnExpertIsFollowedIntoItsGradient) {
  RunSpec broken = spec();
  for (const char* setting : {"model.experts=3", "train.state_format=f16", "train.steps=2"}) {
    ASSERT_TRUE(apply_settings(broken.config, std::vector<std::string>{setting})) << setting;
  }
  RecordOptions options;
  options.path = folder_ / "run.nanscope";
  ASSERT_TRUE(record(*workbench(), broken, options));
  const auto run = OpenRun::open(options.path).value();
  const Op* expert = run->view().find_op(4, 0, "expert1_down_proj");
  ASSERT_NE(expert, nullptr);
  const Tensor* out = run->view().result(*expert);
  const std::vector<std::int64_t> rows = run->view().bad_rows(*out);
  ASSERT_FALSE(rows.empty());
  const auto path = why(run->view(), Element{out->id, rows.front(), 0});
  ASSERT_TRUE(path) << path.error().message;
  ASSERT_TRUE(path->origin) << path->conclusion;
  EXPECT_EQ(path->hops[*path->origin].op_kind, OpKind::adamw);
  EXPECT_THAT(path->conclusion, HasSubstr("eps = 1e-08 is 0 in f16"));
}

/// Ranks of data parallelism are steps of their own, and what one of them has of a gradient is followed into its own
/// backward and forward pass.
TEST_F(TrainingScenario, RanksAreReplayedAndFollowed) {
  RunSpec ranks = spec();
  for (const char* setting : {"train.ranks=2", "train.steps=2"}) {
    ASSERT_TRUE(apply_settings(ranks.config, std::vector<std::string>{setting})) << setting;
  }
  RecordOptions options;
  options.path = folder_ / "run.nanscope";
  ASSERT_TRUE(record(*workbench(), ranks, options));
  const auto recording = Recording::open_checked(folder_ / "run.nanscope");
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->steps().value().size(), 12U);
  const auto replayed = replay(*workbench(), *recording);
  ASSERT_TRUE(replayed) << replayed.error().message;
  EXPECT_TRUE(replayed->same());
  EXPECT_EQ(replayed->verified, replayed->tensors);

  const auto run = OpenRun::open(folder_ / "run.nanscope").value();
  const Step* step = run->view().find_step(2, 2, 1);
  ASSERT_NE(step, nullptr) << "the second training step's optimizer on rank 1";
  const Op* op = run->view().find_op(step->id, 0, "q_proj_weight_adamw");
  ASSERT_NE(op, nullptr);
  const auto path = why(run->view(), Element{op->outputs.front(), 1, 2});
  ASSERT_TRUE(path) << path.error().message;
  ASSERT_GE(path->hops.size(), 3U);
  EXPECT_EQ(place_text(path->hops[1].where), "@1/2/2/0/q_proj_weight_all_reduce.out[1,2]");
  EXPECT_EQ(place_text(path->hops[2].where), "@1/3/1/0/q_proj_grad.dweight[1,2]");
}

/// The second forward pass of the last rank: AdamW's eps is 0 in f16, so that its first step makes NaN of weights whose
/// gradient is 0 there: the way back from a logit of the second training step leads over the weight's version to the
/// optimizer, of bits that a replay re-made.
TEST_F(TrainingScenario, ANanIsFollowedFromALaterStepIntoTheOptimizer) {
  for (const std::int64_t ranks : {1, 2}) {
    RunSpec broken = spec();
    ASSERT_TRUE(apply_settings(broken.config, std::vector<std::string>{"train.state_format=f16", "train.steps=2",
                                                                       fmt::format("train.ranks={}", ranks)}));
    RecordOptions options;
    options.path = folder_ / fmt::format("ranks-{}.nanscope", ranks);
    ASSERT_TRUE(record(*workbench(), broken, options));
    const auto run = OpenRun::open(options.path).value();
    std::optional<Element> logit;
    for (const Op& op : run->view().content(4 * ranks).ops) {
      const Tensor* out = op.outputs.empty() ? nullptr : run->view().tensor(op.outputs.front());
      if (op.kind != OpKind::gemm || out == nullptr || out->role != "logits") continue;
      const std::vector<std::int64_t> rows = run->view().bad_rows(*out);
      ASSERT_FALSE(rows.empty());
      logit = Element{out->id, rows.front(), 0};
    }
    ASSERT_TRUE(logit);
    const auto path = why(run->view(), *logit);
    ASSERT_TRUE(path) << path.error().message;
    ASSERT_TRUE(path->origin) << path->conclusion;
    const Hop& origin = path->hops[*path->origin];
    EXPECT_EQ(origin.op_kind, OpKind::adamw);
    EXPECT_EQ(origin.where.rank, ranks - 1) << "the optimizer of the rank whose forward pass read it";
    EXPECT_EQ(path->hops[*path->origin - 1].kind, HopKind::weight);
    EXPECT_THAT(path->conclusion, HasSubstr("eps = 1e-08 is 0 in f16"));
  }
}

/// With keys on blocks along the channels the forward pass leaks nothing; the gradient of queries reads them in blocks
/// along the tokens. A block's scale in MXFP4 is that of its largest magnitude (OCP MX 1.0: 2^(floor(log2 max) - 2), at
/// least E8M0's 2^-127).
TEST_F(TrainingScenario, AGradientThatReadsKeysUnderLaterTokensScalesLeaks) {
  write_text(
      "The light turns once in twelve seconds, and the keeper counts them all, night after night, until the morning.\n"
      "A ship comes in at noon with salt, rope and letters; the harbour master weighs the salt and reads the "
      "letters.\n");
  const auto found = [&](const std::string& more) {
    RunSpec spec = this->spec();
    for (const std::string& setting :
         {std::string("model.width=64"), std::string("model.head_dim=32"), std::string("train.length=32"),
          std::string("train.steps=1"), std::string("attention.blocks_q=mxfp4"),
          std::string("attention.blocks_k=mxfp4"), std::string("attention.blocks_p=mxfp4"), more}) {
      EXPECT_TRUE(apply_settings(spec.config, std::vector<std::string>{setting})) << setting;
    }
    RecordOptions options;
    options.path = folder_ / (more + ".nanscope");
    EXPECT_TRUE(record(*workbench(), spec, options));
    auto run = OpenRun::open(options.path).value();
    PlainArithmetic arithmetic;
    auto diagnosis = diagnose(run->view(), arithmetic);
    EXPECT_TRUE(diagnosis) << diagnosis.error().message;
    return std::pair(std::move(run), std::move(*diagnosis));
  };
  const auto leaking = found("train.attention_blocks=true");
  const auto& run = leaking.first;
  const Diagnosis& leaks = leaking.second;
  ASSERT_EQ(leaks.faults.size(), 1U) << "all sequences do alike";
  const Fault& fault = leaks.faults.front();
  EXPECT_EQ(fault.fault_class, "future-leakage");
  EXPECT_EQ(fault.where.step, 1) << "the backward pass";
  EXPECT_THAT(fault.where.op, HasSubstr("_k_quantise_grad"));
  EXPECT_THAT(fault.summary, HasSubstr("for the gradient of their queries"));
  const auto count = [&](const char* name) { return std::get<std::int64_t>(*find(fault.evidence, name)); };
  EXPECT_EQ(std::get<std::string>(*find(fault.evidence, "operand")), "k");
  EXPECT_EQ(count("block"), 0);

  const Op* op = run->view().op(fault.where.op_id);
  ASSERT_NE(op, nullptr);
  const Tensor* keys = run->view().input(*op, "x");
  ASSERT_NE(keys, nullptr);
  const auto scale_up_to = [&](std::int64_t last) {
    double largest = 0;
    for (std::int64_t row = 0; row <= last; ++row) {
      const auto values = run->view().row_values(*keys, row);
      largest = std::max(largest, std::abs(double{(*values)[static_cast<std::size_t>(fault.where.channels->first)]}));
    }
    return std::exp2(std::max(std::floor(std::log2(largest)) - 2, -127.0));
  };
  EXPECT_EQ(std::get<double>(*find(fault.evidence, "scale")), scale_up_to(31));
  EXPECT_EQ(std::get<double>(*find(fault.evidence, "scale")), scale_up_to(count("owner")));
  EXPECT_EQ(std::get<double>(*find(fault.evidence, "past_scale")), scale_up_to(count("token")));
  EXPECT_LT(count("token"), count("owner"));

  for (const char* healthy : {"train.attention_blocks=false", "attention.diagonal=exact"}) {
    EXPECT_TRUE(found(healthy).second.healthy()) << healthy;
  }
}

std::vector<std::uint64_t> bits_of(const train::StepReport& report) {
  return {static_cast<std::uint64_t>(report.step),
          std::bit_cast<std::uint64_t>(report.loss),
          std::bit_cast<std::uint64_t>(report.gradient_norm),
          std::bit_cast<std::uint64_t>(report.learning_rate),
          std::bit_cast<std::uint64_t>(report.loss_scale),
          static_cast<std::uint64_t>(report.skipped)};
}

/// Trains four steps, and two steps twice with a folder in between: losses and files are the same.
void expect_same_over_a_stop(const RunSpec& of, const fs::path& folder,
                             const std::function<std::unique_ptr<Workbench>()>& open) {
  const auto steps = [&](TrainingRun& run, int count) {
    std::vector<std::vector<std::uint64_t>> all;
    for (int i = 0; i < count; ++i) {
      const auto report = run.step();
      EXPECT_TRUE(report) << report.error().message;
      all.push_back(bits_of(*report));
    }
    return all;
  };
  const auto bench = open();
  auto whole = TrainingRun::create(*bench, of).value();
  auto expected = steps(*whole, 4);
  ASSERT_TRUE(whole->save(folder / "whole", false));

  const auto first_bench = open();
  auto first = TrainingRun::create(*first_bench, of).value();
  auto found = steps(*first, 2);
  ASSERT_TRUE(first->save(folder / "part", false));
  first.reset();
  const auto second_bench = open();
  auto second = TrainingRun::create(*second_bench, of).value();
  const Status resumed = second->resume(folder / "part");
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(second->done(), 2);
  for (auto& one : steps(*second, 2)) found.push_back(std::move(one));
  ASSERT_TRUE(second->save(folder / "part", false));
  EXPECT_EQ(found, expected);
  for (const char* file : {"model.safetensors", "optimizer-4.safetensors", "trainer.json"}) {
    EXPECT_EQ(read_text(folder / "part" / file), read_text(folder / "whole" / file)) << file;
  }
}

TEST_F(TrainingScenario, GoesOnWhereItWasSaved) {
  for (const char* folder : {"dense", "mixture"}) fs::create_directory(folder_ / folder);
  expect_same_over_a_stop(spec(), folder_ / "dense", [&] { return workbench(); });
  RunSpec mixture = spec();
  for (const char* setting : {"model.experts=3", "model.attention_sinks=true", "moe.score=softmax_of_chosen"}) {
    ASSERT_TRUE(apply_settings(mixture.config, std::vector<std::string>{setting})) << setting;
  }
  expect_same_over_a_stop(mixture, folder_ / "mixture", [&] { return workbench(); });
}

TEST_F(TrainingScenario, ARecordingBeginsWithItsRun) {
  const RunSpec of = spec();
  const auto bench = workbench();
  auto run = TrainingRun::create(*bench, of, {.path = folder_ / "run.nanscope"}).value();
  ASSERT_TRUE(run->step());
  ASSERT_TRUE(run->save(folder_ / "model", false));
  run.reset();
  const auto cut = Recording::open_checked(folder_ / "run.nanscope");
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->state().value(), RunState::interrupted);
  EXPECT_EQ(cut->steps().value().size(), 3U);

  auto second = TrainingRun::create(*bench, of, {.path = folder_ / "second.nanscope"}).value();
  EXPECT_THAT(second->resume(folder_ / "model").error().message, HasSubstr("a recording begun now would lack"));
}

}  // namespace
}  // namespace nanscope::scenarios
