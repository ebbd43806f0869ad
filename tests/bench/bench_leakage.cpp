/// bench_leakage TEXT HELD_OUT [STEPS [SEEDS [CSV [KNOB=VALUE]...]]]: the table of "Future leakage in block-quantized
/// attention": small models are trained alike (data, initial weights, steps) with attention on MXFP4, with the tile on
/// the diagonal unquantized, and without blocks. The loss of text that none of them saw, all positions at once and
/// token by token.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/engine/knobs.h"
#include "instrument/engine/weight_source.h"
#include "instrument/tokenizer/shipped.h"
#include "instrument/train/trainer.h"

namespace nanscope {
namespace {

constexpr std::int64_t kHeldOutTokens = 32768;

struct Mode {
  std::string_view name;
  std::vector<std::pair<std::string_view, std::string_view>> knobs;
};

const std::vector<Mode>& modes() {
  const std::vector<std::pair<std::string_view, std::string_view>> blocks{{"attention.blocks_q", "mxfp4"},
                                                                          {"attention.blocks_k", "mxfp4"},
                                                                          {"attention.blocks_v", "mxfp4"},
                                                                          {"attention.blocks_p", "mxfp4"},
                                                                          {"train.stochastic", "true"}};
  static const std::vector<Mode> all = [&] {
    std::vector<Mode> made{{"leaky", blocks}, {"fixed", blocks}, {"unquantized", {}}};
    made[1].knobs.emplace_back("attention.diagonal", "exact");
    return made;
  }();
  return all;
}

/// Weights of four times the usual size, and no decay: what a later token leaves in a scale moves an earlier value by a
/// hundredth of it. Where weights grow most in training, the MLP's part of the residual drowns that.
constexpr std::pair<std::string_view, std::string_view> kModel[] = {{"model.weights", "random"},
                                                                    {"model.init_scale", "4"},
                                                                    {"model.layers", "2"},
                                                                    {"model.width", "64"},
                                                                    {"model.heads", "2"},
                                                                    {"model.kv_heads", "2"},
                                                                    {"model.head_dim", "32"},
                                                                    {"model.mlp_width", "256"},
                                                                    {"model.norm", "rms_norm"},
                                                                    {"kv.format", "f32"},
                                                                    {"kv.prefix_cache", "false"},
                                                                    {"train.batch", "16"},
                                                                    {"train.length", "32"},
                                                                    {"train.warm_up", "20"},
                                                                    {"train.decay", "cosine"},
                                                                    {"train.beta2", "0.95"},
                                                                    {"train.learning_rate", "0.002"},
                                                                    {"train.weight_decay", "0"}};

struct Losses {
  double parallel = 0;
  double autoregressive = 0;
  double last_training = 0;
  double seconds = 0;
};

struct Series {
  std::vector<double> values;

  double mean() const {
    double sum = 0;
    for (const double one : values) sum += one;
    return sum / static_cast<double>(values.size());
  }
  /// Of the mean.
  double standard_error() const {
    const double center = mean();
    double squares = 0;
    for (const double one : values) squares += (one - center) * (one - center);
    const auto n = static_cast<double>(values.size());
    return n > 1 ? std::sqrt(squares / (n - 1) / n) : 0;
  }
};

[[noreturn]] void stop(const std::string& why) {
  fmt::print(stderr, "bench_leakage: {}\n", why);
  std::exit(2);
}

template <class T>
T value_of(Result<T> result) {
  if (!result) stop(result.error().message);
  return std::move(*result);
}

std::vector<std::vector<std::int32_t>> sequences_of(const train::TrainingText& text, std::int64_t length) {
  std::vector<std::vector<std::int32_t>> sequences;
  const std::int64_t most = std::min(kHeldOutTokens, std::ssize(text.tokens)) / (length + 1);
  for (std::int64_t i = 0; i < most; ++i) {
    const auto at = text.tokens.begin() + i * (length + 1);
    sequences.emplace_back(at, at + length + 1);
  }
  return sequences;
}

class Bench {
 public:
  Bench(std::string path, std::string held_out, std::int64_t steps, std::span<char*> settings)
      : path_(std::move(path)),
        held_out_(std::move(held_out)),
        settings_(settings.begin(), settings.end()),
        steps_(steps),
        device_(value_of(kernels::make_device("cpu", 0))),
        tokenizer_(std::make_shared<const Tokenizer>(value_of(load_shipped_tokenizer()))) {}

  Losses run(const Mode& mode, std::int64_t seed) {
    const auto begin = std::chrono::steady_clock::now();
    const EngineConfig config = config_of(mode, seed);
    train::TrainingText text = value_of(train::load_training_text(config.train, *tokenizer_));
    EngineConfig other = config;
    other.train.text = held_out_;
    const auto held_out =
        sequences_of(value_of(train::load_training_text(other.train, *tokenizer_)), config.train.length);
    auto source = value_of(make_weight_source(config.model));
    const auto model = value_of(load_model(config, *device_, *source, *tokenizer_));
    auto trainer = value_of(train::Trainer::create(config, *device_, model, tokenizer_, std::move(text)));
    NullProbe nobody;
    Losses losses;
    for (std::int64_t step = 0; step < steps_; ++step) {
      losses.last_training = value_of(trainer->step(nobody, {})).loss;
    }
    losses.parallel = value_of(trainer->evaluate(held_out, false));
    losses.autoregressive = value_of(trainer->evaluate(held_out, true));
    losses.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return losses;
  }

 private:
  EngineConfig config_of(const Mode& mode, std::int64_t seed) const {
    EngineConfig config;
    const auto set = [&](std::string_view name, std::string_view value) {
      if (Status done = set_knob(config, name, value); !done) stop(done.error().message);
    };
    for (const auto& [name, value] : kModel) set(name, value);
    for (const auto& [name, value] : mode.knobs) set(name, value);
    set("train.text", path_);
    set("train.steps", fmt::format("{}", steps_));
    set("train.seed", fmt::format("{}", seed));
    set("model.seed", fmt::format("{}", seed));
    for (const std::string_view one : settings_) {
      const std::size_t equals = std::min(one.find('='), one.size());
      set(one.substr(0, equals), one.substr(std::min(equals + 1, one.size())));
    }
    if (Status done = check(config); !done) stop(done.error().message);
    return config;
  }

  std::string path_;
  std::string held_out_;
  std::vector<std::string> settings_;
  std::int64_t steps_;
  std::unique_ptr<kernels::Device> device_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

void print_row(const Mode& mode, const Series& parallel, const Series& autoregressive, const Series& gap) {
  const double error = gap.standard_error();
  const bool all_zero = gap.mean() == 0 && error == 0;
  fmt::print("{:<12} {:>7.4f} +- {:.4f}   {:>7.4f} +- {:.4f}   {:>+8.5f} +- {:.5f}   {}\n", mode.name, parallel.mean(),
             parallel.standard_error(), autoregressive.mean(), autoregressive.standard_error(), gap.mean(), error,
             all_zero    ? std::string("equal in every bit")
             : error > 0 ? fmt::format("{:.1f} standard errors", gap.mean() / error)
                         : std::string("one seed"));
}

int run(std::span<char*> args) {
  if (args.size() < 3) stop("usage: bench_leakage TEXT HELD_OUT [STEPS [SEEDS [CSV [KNOB=VALUE]...]]]");
  const auto number = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t given = args.size() > i ? std::strtoll(args[i], nullptr, 10) : otherwise;
    if (given < 1) stop(fmt::format("'{}' is no number above 0", args[i]));
    return given;
  };
  const std::int64_t steps = number(3, 1500);
  const std::int64_t seeds = number(4, 5);
  std::FILE* csv = args.size() > 5 ? std::fopen(args[5], "w") : nullptr;
  if (csv != nullptr) fmt::print(csv, "mode,seed,parallel,autoregressive,gap\n");
  Bench bench(args[1], args[2], steps, args.size() > 6 ? args.subspan(6) : std::span<char*>());
  std::vector<std::string> rows;
  fmt::print("{} steps, {} seeds, mean and standard error over seeds, nats a token\n", steps, seeds);
  fmt::print("{:<12} {:>17}   {:>17}   {:>19}\n", "attention", "parallel", "autoregressive", "gap");
  for (const Mode& mode : modes()) {
    Series parallel;
    Series autoregressive;
    Series gap;
    for (std::int64_t seed = 1; seed <= seeds; ++seed) {
      const Losses losses = bench.run(mode, seed);
      fmt::print(stderr, "{} seed {}: {:.0f} s, last training loss {:.3f}, {:.5f} / {:.5f}\n", mode.name, seed,
                 losses.seconds, losses.last_training, losses.parallel, losses.autoregressive);
      parallel.values.push_back(losses.parallel);
      autoregressive.values.push_back(losses.autoregressive);
      gap.values.push_back(losses.autoregressive - losses.parallel);
      if (csv != nullptr) {
        fmt::print(csv, "{},{},{:.17g},{:.17g},{:.17g}\n", mode.name, seed, losses.parallel, losses.autoregressive,
                   gap.values.back());
      }
    }
    print_row(mode, parallel, autoregressive, gap);
    std::fflush(stdout);
  }
  if (csv != nullptr && std::fclose(csv) != 0) stop(fmt::format("{}: cannot be written", args[5]));
  return 0;
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) { return nanscope::run({argv, static_cast<std::size_t>(argc)}); }
