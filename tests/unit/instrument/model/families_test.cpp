// Tiny checkpoints of every family against the logits that transformers computed of them (make_checkpoints.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "instrument/engine/model_folder.h"
#include "instrument/model/family.h"
#include "instrument/weights/safetensors.h"
#include "tests/unit/instrument/engine/engine_rig.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

/// The folder of checkpoints: those of this folder, or freshly made ones.
fs::path checkpoints() {
  const char* other = std::getenv("NANSCOPE_CHECKPOINTS");
  return other != nullptr ? fs::path(other) : fs::path(NANSCOPE_CHECKPOINT_DIR);
}

std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(checkpoints())) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// What transformers says: a row of logits for each token but the last.
struct Expected {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;
  std::int64_t vocabulary = 0;
  std::int64_t prompt = 0;
};

Expected expected_of(const fs::path& folder) {
  Expected expected;
  const SafetensorsFile file = SafetensorsFile::open(folder / "expected.safetensors").value();
  const SafetensorsEntry& tokens = *file.find("tokens");
  const std::vector<float> ids = safetensors_values(tokens, file.bytes(tokens)).value();
  for (const float id : ids) expected.tokens.push_back(static_cast<std::int32_t>(id));
  const SafetensorsEntry& logits = *file.find("logits");
  expected.vocabulary = logits.shape[1];
  expected.prompt = logits.shape[0] - 15;  // sixteen tokens were decoded, the last of them was not fed back
  expected.logits = safetensors_values(logits, file.bytes(logits)).value();
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

Answer answer_of(const EngineConfig& config, const Expected& expected) {
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
  const std::vector<std::int32_t> prompt(expected.tokens.begin(), expected.tokens.begin() + expected.prompt);
  testing::CollectProbe probe(*device);
  const auto run =
      (*engine)->run(std::vector{RequestSpec{.name = "ids", .parts = {TokensPart{prompt}}, .max_tokens = 16}}, probe);
  EXPECT_TRUE(run) << (run ? "" : run.error().message);
  if (!run) return answer;
  answer.tokens = run->requests.front().output_tokens;
  for (const testing::Seen& seen : probe.tensors) {
    if (seen.role != "logits") continue;
    const std::vector<float> rows = seen.floats();
    answer.logits.insert(answer.logits.end(), rows.begin(), rows.end());
  }
  return answer;
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

class Families : public ::testing::TestWithParam<std::string> {};

TEST_P(Families, LogitsAreThoseOfTransformers) {
  const fs::path folder = checkpoints() / GetParam();
  EngineConfig config;
  const Status used = use_model_folder(config, folder);
  ASSERT_TRUE(used) << used.error().message;
  const Expected expected = expected_of(folder);
  ASSERT_EQ(config.model.vocabulary, expected.vocabulary);
  const Answer answer = answer_of(config, expected);
  EXPECT_EQ(answer.tokens, std::vector(expected.tokens.begin() + expected.prompt, expected.tokens.end()));
  ASSERT_EQ(answer.logits.size(), expected.logits.size());
  double worst = 0;
  for (std::size_t i = 0; i < answer.logits.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(answer.logits[i]) - static_cast<double>(expected.logits[i])));
  }
  const double relative = worst / largest(expected.logits);
  RecordProperty("relative_error", std::to_string(relative));
  std::printf("%-16s %.2e of the largest logit\n", GetParam().c_str(), relative);
  EXPECT_LE(relative, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Families, ::testing::ValuesIn(folders()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

/// Every family has a checkpoint here.
TEST(Families, AllAreCompared) {
  std::set<std::string> compared;
  for (const std::string& name : folders()) {
    EngineConfig config;
    const Status used = use_model_folder(config, checkpoints() / name);
    EXPECT_TRUE(used) << used.error().message;
    compared.insert(config.model.family);
  }
  for (const ModelFamily* family : model_families())
    EXPECT_TRUE(compared.contains(std::string(family->name))) << family->name;
}

}  // namespace
}  // namespace nanscope
