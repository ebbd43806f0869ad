// What checkpoints of each producer say of the inputs of their products.
#include "instrument/quantized/product_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/quantized/edited_checkpoint.h"

namespace nanscope {
namespace {

/// "e4m3 by row" of the first weight of a checkpoint that is quantized; empty: its input stays as it is.
std::string inputs_of(const EditedCheckpoint& checkpoint) {
  const std::filesystem::path folder = checkpoint.write();
  const auto config = read_quantization_config(folder);
  if (!config) return config.error().message;
  const auto files = CheckpointFiles::open(folder).value();
  for (const StoredModule& module : stored_modules(files)) {
    if (!module.path.ends_with("down_proj")) continue;
    const GemmAttributes made = product_of(module, *config);
    std::string text = made.input_format.value_or("");
    if (made.input_scales) text += " by " + *made.input_scales;
    if (made.input_group) text += " of " + std::to_string(*made.input_group);
    return text;
  }
  return "no such module";
}

std::string inputs_of(const char* name) { return inputs_of(EditedCheckpoint(name)); }

/// compressed-tensors' checkpoint with other keys for its inputs.
std::string with_inputs(const std::string& keys) {
  EditedCheckpoint checkpoint("ct-int4");
  checkpoint.replace_in_config("\"input_activations\": null", "\"input_activations\": {" + keys + "}");
  return inputs_of(checkpoint);
}

TEST(ProductInputs, StayAsTheyAreWhereWeightsAloneAreQuantized) {
  for (const char* name : {"ct-int4", "gptq-int4", "awq-int4", "bnb-nf4", "plain"})
    EXPECT_EQ(inputs_of(name), "") << name;
}

TEST(ProductInputs, AreCastAsTheConfigSays) {
  EXPECT_EQ(inputs_of("fp8-block"), "e4m3 by group of 32");
  EXPECT_EQ(inputs_of("ct-fp8-tensor"), "e4m3 by fixed");
  EXPECT_EQ(with_inputs(R"("num_bits": 8, "type": "int", "strategy": "token", "dynamic": true)"), "int8 by row");
  EXPECT_EQ(with_inputs(R"("num_bits": 8, "type": "float", "strategy": "token", "dynamic": true)"), "e4m3 by row");
  EXPECT_EQ(with_inputs(R"("num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": true)"), "e4m3 by tensor");
  EXPECT_EQ(with_inputs(R"("num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, "dynamic": true)"),
            "e4m3 by group of 128");
  EXPECT_EQ(with_inputs(R"("num_bits": 8, "type": "int", "strategy": "tensor", "dynamic": false, "symmetric": false)"),
            "int8 by fixed");
}

TEST(ProductInputs, AreUnknownWhereTheConfigSaysACastThatIsNotComputed) {
  for (const char* name : {"modelopt-nvfp4", "modelopt-mxfp8", "torchao-fp8", "ct-mxfp8"})
    EXPECT_EQ(inputs_of(name), "unknown") << name;
  EXPECT_EQ(with_inputs(R"("num_bits": 4, "type": "int", "strategy": "token", "dynamic": true)"), "unknown");
  EXPECT_EQ(with_inputs(R"("num_bits": 8, "type": "int", "strategy": "token", "dynamic": true, "symmetric": false)"),
            "unknown");
  EXPECT_EQ(with_inputs(R"("num_bits": 8, "type": "float", "strategy": "group", "group_size": 32, "dynamic": true,
                           "scale_dtype": "torch.uint8")"),
            "unknown");
}

TEST(ProductInputs, AreUnknownWhereScalesAreRoundedToPowersOfTwo) {
  EditedCheckpoint checkpoint("fp8-block");
  checkpoint.replace_in_config("\"quant_method\": \"fp8\"", "\"quant_method\": \"fp8\", \"scale_fmt\": \"ue8m0\"");
  EXPECT_EQ(inputs_of(checkpoint), "unknown");
}

TEST(ProductInputs, OfAnotherTypeAreRefused) {
  EXPECT_THAT(with_inputs(R"("num_bits": "eight")"), ::testing::HasSubstr("input_activations: num_bits"));
}

}  // namespace
}  // namespace nanscope
