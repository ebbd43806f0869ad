// Tiny checkpoints of every family against the logits that transformers computed of them (make_checkpoints.py): in f32,
// and in bf16 within what its roundings can do (rounding_bound.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/numbers/codec.h"
#include "core/numbers/decode_span.h"
#include "instrument/engine/model_folder.h"
#include "instrument/model/family.h"
#include "instrument/weights/safetensors.h"
#include "tests/read_text.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/engine/engine_rig.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

/// The folder of checkpoints: those of this folder, or freshly made ones.
fs::path checkpoints() {
  const char* other = std::getenv("NANSCOPE_CHECKPOINTS");
  return other != nullptr ? fs::path(other) : fs::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/model/checkpoints");
}

std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(checkpoints())) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

constexpr std::int64_t kDecoded = 16;

/// What transformers says: a row of logits for each token but the last.
struct Expected {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;
  std::int64_t vocabulary = 0;
  std::int64_t prompt = 0;
  std::vector<float> exact, bound;  ///< in bf16: the logits without its roundings, and how far these can move each
};

Expected expected_of(const fs::path& path) {
  Expected expected;
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  const auto values = [&](std::string_view name) {
    const SafetensorsEntry* entry = file.find(name);
    return entry == nullptr ? std::vector<float>() : safetensors_values(*entry, file.bytes(*entry)).value();
  };
  for (const float id : values("tokens")) expected.tokens.push_back(static_cast<std::int32_t>(id));
  expected.vocabulary = file.find("logits")->shape[1];
  expected.prompt = file.find("logits")->shape[0] + 1 - kDecoded;  // the last one was not fed back
  expected.logits = values("logits");
  expected.exact = values("exact");
  expected.bound = values("bound");
  return expected;
}

std::shared_ptr<const Tokenizer> no_tokenizer() {
  return std::make_shared<const Tokenizer>(std::move(Tokenizer::none().value()));
}

/// Logits row by row, and the tokens that were chosen.
struct Answer {
  std::vector<float> logits;
  std::vector<std::int32_t> tokens;
};

Answer answer_of(const EngineConfig& config, std::span<const std::int32_t> prompt, std::int64_t generated) {
  Answer answer;
  const auto device = kernels::make_device("cpu", 2).value();
  const auto source = make_weight_source(config.model);
  EXPECT_TRUE(source) << (source ? "" : source.error().message);
  if (!source) return answer;
  const auto tokenizer = no_tokenizer();
  const auto model = load_model(config, *device, **source, *tokenizer);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  if (!model) return answer;
  const auto engine = Engine::create(config, *device, *model, tokenizer);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  if (!engine) return answer;
  const RequestSpec request{
      .name = "ids", .parts = {TokensPart{{prompt.begin(), prompt.end()}}}, .max_tokens = static_cast<int>(generated)};
  testing::CollectProbe probe(*device);
  const auto run = (*engine)->run(std::vector{request}, probe);
  EXPECT_TRUE(run) << (run ? "" : run.error().message);
  if (!run) return answer;
  answer.tokens = run->requests.front().output_tokens;
  for (const testing::Seen& seen : probe.tensors) {
    if (seen.role != "logits" || seen.rank != 0) continue;
    std::vector<float> rows(static_cast<std::size_t>(seen.rows * seen.columns));
    decode(seen.format, seen.bytes, rows);
    answer.logits.insert(answer.logits.end(), rows.begin(), rows.end());
  }
  return answer;
}

/// Logits of a run over the expected tokens, whatever is chosen: of the prompt in one step and of the decoded tokens up
/// to the first other one, then of all tokens given one by one.
std::vector<float> forced_logits(EngineConfig config, const Expected& expected) {
  const std::span<const std::int32_t> tokens = expected.tokens;
  const auto rows = static_cast<std::int64_t>(tokens.size()) - 1;
  const Answer free = answer_of(config, tokens.first(static_cast<std::size_t>(expected.prompt)), kDecoded);
  config.batch.requests = 2;
  config.batch.chunk = 1;
  std::vector<float> logits = answer_of(config, tokens.first(static_cast<std::size_t>(rows)), 1).logits;
  if (std::ssize(logits) != rows * expected.vocabulary || free.logits.size() != logits.size()) return {};
  const auto other = std::mismatch(free.tokens.begin(), free.tokens.end(), tokens.begin() + expected.prompt);
  // The row that chose another token is right itself.
  const std::int64_t same = std::min(rows, expected.prompt + (other.first - free.tokens.begin()));
  std::copy_n(free.logits.begin(), same * expected.vocabulary, logits.begin());
  return logits;
}

/// The checkpoint with its weights rounded to bf16, and activations in bf16.
void write_in_bf16(const fs::path& from, const fs::path& to) {
  const SafetensorsFile file = SafetensorsFile::open(from / "model.safetensors").value();
  std::vector<std::vector<std::uint16_t>> codes;
  std::vector<SafetensorsInput> inputs;
  codes.reserve(file.entries().size());
  for (const SafetensorsEntry& entry : file.entries()) {
    std::vector<std::uint16_t>& rounded = codes.emplace_back();
    const std::vector<float> values = safetensors_values(entry, file.bytes(entry)).value();
    for (const float value : values) {
      rounded.push_back(static_cast<std::uint16_t>(encode(Format::bf16, value, Overflow::saturate)));
    }
    inputs.push_back({entry.name, "BF16", entry.shape, std::as_bytes(std::span(rounded))});
  }
  const std::vector<std::byte> bytes = encode_safetensors(inputs).value();
  std::ofstream(to / "model.safetensors", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  std::string config = read_text(from / "config.json");
  const std::size_t dtype = config.find("\"float32\"");
  ASSERT_NE(dtype, std::string::npos);
  std::ofstream(to / "config.json") << config.replace(dtype, 9, "\"bfloat16\"");
}

/// How far a checkpoint's logits are off in bf16, in units of what its roundings can do; a NaN is infinitely far.
double off_in_bf16(const std::string& name, const Expected& expected, const testing::Knobs& changes = {}) {
  const TemporaryFolder folder;
  write_in_bf16(checkpoints() / name, folder.path());
  EngineConfig config;
  EXPECT_TRUE(use_model_folder(config, folder.path()));
  EXPECT_EQ(config.activation_format, Format::bf16);
  for (const auto& [knob, value] : changes) EXPECT_TRUE(set_knob(config, knob, value)) << knob;
  const std::vector<float> ours = forced_logits(config, expected);
  EXPECT_EQ(ours.size(), expected.exact.size());
  double worst = ours.size() == expected.exact.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < ours.size() && std::isfinite(worst); ++i) {
    const double ratio = std::abs(double{ours[i]} - double{expected.exact[i]}) / double{expected.bound[i]};
    worst = std::isnan(ratio) ? INFINITY : std::max(worst, ratio);
  }
  return worst;
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

class Families : public ::testing::TestWithParam<std::string> {};

void expect_logits(const EngineConfig& config, const std::string& name) {
  const Expected expected = expected_of(checkpoints() / name / "expected.safetensors");
  ASSERT_EQ(config.model.vocabulary, expected.vocabulary);
  const std::span<const std::int32_t> tokens = expected.tokens;
  const Answer answer = answer_of(config, tokens.first(static_cast<std::size_t>(expected.prompt)), kDecoded);
  EXPECT_EQ(answer.tokens, std::vector(expected.tokens.begin() + expected.prompt, expected.tokens.end()));
  ASSERT_EQ(answer.logits.size(), expected.logits.size());
  double worst = 0;
  for (std::size_t i = 0; i < answer.logits.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(answer.logits[i]) - static_cast<double>(expected.logits[i])));
  }
  const double relative = worst / largest(expected.logits);
  ::testing::Test::RecordProperty("relative_error", std::to_string(relative));
  std::printf("%-16s %.2e of the largest logit\n", name.c_str(), relative);
  EXPECT_LE(relative, 1e-5);
}

TEST_P(Families, LogitsAreThoseOfTransformers) {
  EngineConfig config;
  const Status used = use_model_folder(config, checkpoints() / GetParam());
  ASSERT_TRUE(used) << used.error().message;
  expect_logits(config, GetParam());
}

/// The families that cannot be cut in two parts are those whose check says why.
TEST_P(Families, OnTwoRanksTheyAreToo) {
  EngineConfig config;
  ASSERT_TRUE(use_model_folder(config, checkpoints() / GetParam()));
  config.ranks.count = 2;
  if (const Status cut = check(config); !cut) {
    EXPECT_THAT(cut.error().message, ::testing::HasSubstr("ranks"));
    return;
  }
  expect_logits(config, GetParam());
}

TEST_P(Families, LogitsInBf16AreWithinWhatItsRoundingsCanDo) {
  const Expected expected = expected_of(checkpoints() / GetParam() / "expected_bf16.safetensors");
  ASSERT_EQ(expected.bound.size(), expected.exact.size());
  const auto judged =
      std::count_if(expected.bound.begin(), expected.bound.end(), [](float b) { return std::isfinite(b); });
  // Of freshly made checkpoints a token may have experts that rounding can change.
  if (std::getenv("NANSCOPE_CHECKPOINTS") == nullptr) {
    EXPECT_EQ(judged, std::ssize(expected.bound));
  }
  double theirs = 0;
  double bounds = 0;
  for (std::size_t i = 0; i < expected.bound.size(); ++i) {
    if (!std::isfinite(expected.bound[i])) continue;
    theirs =
        std::max(theirs, std::abs(double{expected.logits[i]} - double{expected.exact[i]}) / double{expected.bound[i]});
    bounds += double{expected.bound[i]} / static_cast<double>(judged);
  }
  const double ours = off_in_bf16(GetParam(), expected);
  std::printf("%-16s ours %.2f, theirs %.2f of the bound, which is %.3f of the largest logit, mean of %lld\n",
              GetParam().c_str(), ours, theirs, bounds / largest(expected.exact), static_cast<long long>(judged));
  EXPECT_LE(ours, 1);
  EXPECT_LE(theirs, 1);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Families, ::testing::ValuesIn(folders()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

/// A bound that another model keeps to would say nothing.
TEST(Families, AnotherModelIsBeyondItsBoundInBf16) {
  struct Other {
    std::string checkpoint, knob, value;
  };
  for (const Other& other : {Other{"llama3", "rope.scaling", "none"}, Other{"llama2", "model.rope_base", "20000"},
                             Other{"mistral", "model.window", "5"}, Other{"gemma2", "model.logit_softcap", "22"},
                             Other{"olmo2", "norm.eps", "0.1"}, Other{"qwen2-moe", "moe.normalise", "true"},
                             Other{"gpt2", "kv.format", "e4m3"}}) {
    const Expected expected = expected_of(checkpoints() / other.checkpoint / "expected_bf16.safetensors");
    const double off = off_in_bf16(other.checkpoint, expected, {{other.knob, other.value}});
    std::printf("%-10s %s=%s: %.2f\n", other.checkpoint.c_str(), other.knob.c_str(), other.value.c_str(), off);
    EXPECT_GT(off, 1) << other.checkpoint << ' ' << other.knob;
  }
}

/// Every family that transformers knows has a checkpoint here.
TEST(Families, AllAreCompared) {
  std::set<std::string> compared;
  for (const std::string& name : folders()) {
    EngineConfig config;
    const Status used = use_model_folder(config, checkpoints() / name);
    EXPECT_TRUE(used) << used.error().message;
    compared.insert(config.model.family);
  }
  for (const ModelFamily* family : model_families()) {
    if (family->name == "reference") continue;  // reference_folder_test.cpp
    EXPECT_TRUE(compared.contains(std::string(family->name))) << family->name;
  }
}

}  // namespace
}  // namespace nanscope
