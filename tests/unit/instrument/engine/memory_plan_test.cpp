#include "instrument/engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "instrument/engine/model_folder.h"
#include "instrument/weights/safetensors.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Storage storage(std::string_view name) { return find_storage(name).value(); }

MemoryOptions stored(std::string_view weights, std::string_view others, std::string_view cache) {
  return {.weights = storage(weights), .others = storage(others), .cache = storage(cache)};
}

/// Shapes of the 8B model of Llama 3.1.
EngineConfig llama_8b() {
  EngineConfig config;
  ModelConfig& model = config.model;
  model.layers = 32;
  model.width = 4096;
  model.heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.mlp_width = 14336;
  model.vocabulary = 128256;
  model.norm = kernels::NormKind::rms_norm;
  model.patch_size = 0;
  return config;
}

/// Each tiny checkpoint that transformers wrote holds as many numbers as its configuration says.
TEST(MemoryPlan, CountsTheParametersOfEveryFamily) {
  int families = 0;
  for (const auto& folder : fs::directory_iterator(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/model/checkpoints")) {
    EngineConfig config;
    ASSERT_TRUE(use_model_folder(config, folder.path())) << folder.path();
    const SafetensorsFile file = SafetensorsFile::open(folder.path() / "model.safetensors").value();
    std::int64_t numbers = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      std::int64_t count = 1;
      for (const std::int64_t extent : entry.shape) count *= extent;
      numbers += count;
    }
    EXPECT_EQ(plan_memory(config, stored("bf16", "bf16", "bf16")).parameters, numbers) << folder.path();
    ++families;
  }
  EXPECT_GE(families, 30);
}

/// Published: 8.03 billion parameters. Of the cache: 2 x 32 layers x 8 heads x 128 channels x 2 bytes = 128 KiB.
TEST(MemoryPlan, IsThatOfAPublishedModel) {
  MemoryOptions options = stored("bf16", "bf16", "bf16");
  options.context = 1024;
  options.batch = 3;
  const MemoryPlan plan = plan_memory(llama_8b(), options);
  EXPECT_EQ(plan.parameters, 8030261248);
  EXPECT_EQ(plan.active, plan.parameters);
  EXPECT_EQ(plan.weight_bytes, 2.0 * 8030261248);
  EXPECT_EQ(plan.token_bytes, 131072);
  EXPECT_EQ(plan.request_bytes, 1024.0 * 131072);
  EXPECT_EQ(plan.cache_bytes, 3 * 1024.0 * 131072);
  const double embedding_and_head = 2.0 * 128256 * 4096;
  EXPECT_EQ(plan.products, 8030261248 - static_cast<std::int64_t>(embedding_and_head) - 65 * 4096);
}

TEST(MemoryPlan, BlocksHaveScales) {
  EXPECT_EQ(storage("e4m3").bytes(4, 64), 256);
  EXPECT_EQ(storage("mxfp4").bytes(4, 64), 4 * (32 + 2));  // two blocks of 32, a byte each
  EXPECT_EQ(storage("nvfp4").bytes(4, 64), 4 * (32 + 4));  // four blocks of 16
  EXPECT_EQ(storage("mxfp4").bytes(1, 40), 20 + 2);        // the last block is ragged
  EXPECT_THAT(find_storage("fp7").error().message, HasSubstr("'fp7' is no format"));
}

TEST(MemoryPlan, WindowsKeepNoMoreThanTheyRead) {
  EngineConfig config = llama_8b();
  config.model.window = 100;
  config.model.full_layers = {0, 1};
  MemoryOptions options = stored("bf16", "bf16", "bf16");
  options.context = 1000;
  EXPECT_EQ(plan_memory(config, options).request_bytes, 4096.0 * (2 * 1000 + 30 * 100));
  options.context = 50;
  EXPECT_EQ(plan_memory(config, options).request_bytes, 131072.0 * 50);
}

/// A latent of 512 and a rotated part of 64 in 61 layers: 70272 bytes a token in bf16, as DeepSeek-V3's report has it.
TEST(MemoryPlan, LatentsAreKeptInPlaceOfKeys) {
  EngineConfig config = llama_8b();
  config.model.layers = 61;
  config.model.heads = config.model.kv_heads = 128;
  config.model.kv_rank = 512;
  config.model.head_dim = 192;
  config.model.value_dim = 128;
  config.model.rotated = 64;
  const MemoryPlan plan = plan_memory(config, stored("bf16", "bf16", "bf16"));
  EXPECT_TRUE(plan.latent);
  EXPECT_EQ(plan.token_bytes, 70272);
  EXPECT_EQ(plan.expanded_token_bytes, 61.0 * 128 * (192 + 128) * 2);
}

TEST(MemoryPlan, ATokenMeetsSomeExperts) {
  EngineConfig config = llama_8b();
  config.model.experts = 8;
  config.model.experts_per_token = 2;
  const MemoryPlan plan = plan_memory(config, stored("bf16", "bf16", "bf16"));
  const std::int64_t expert = 3LL * 4096 * 14336;
  EXPECT_EQ(plan.parameters - plan.active, 32 * 6 * expert);
}

}  // namespace
}  // namespace nanscope
