// What `nanscope inspect` says of checkpoints as their producers wrote them, and of the same with one thing wrong: what
// users met, by the thread that it is known by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "instrument/inspect/check.h"
#include "instrument/inspect/inspection.h"
#include "tests/unit/instrument/quantized/edited_checkpoint.h"

namespace nanscope::inspect_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Inspection inspect(const std::filesystem::path& folder, std::string_view loader) {
  InspectOptions options;
  options.loader = find_loader(loader);
  auto made = inspect_checkpoint(folder, options);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? *made : Inspection{};
}

std::vector<std::string> ids(const Inspection& made, Severity least = Severity::warning) {
  std::vector<std::string> found;
  for (const InspectFinding& one : made.findings) {
    if (one.severity >= least) found.push_back(one.id);
  }
  return found;
}

const InspectFinding& finding(const Inspection& made, std::string_view id) {
  static const InspectFinding none;
  for (const InspectFinding& one : made.findings) {
    if (one.id == id) return one;
  }
  ADD_FAILURE() << "no " << id;
  return none;
}

struct Healthy {
  const char* checkpoint;
  const char* loader;
};
class HealthyCheckpoints : public ::testing::TestWithParam<Healthy> {};

TEST_P(HealthyCheckpoints, HaveNothingWrong) {
  const auto [checkpoint, loader] = GetParam();
  const Inspection made = inspect(
      std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / checkpoint, loader);
  EXPECT_THAT(ids(made), IsEmpty());
  EXPECT_EQ(made.count(Fate::quantized), 7U);
  EXPECT_EQ(made.count(Fate::unclassified), 0U);
}

INSTANTIATE_TEST_SUITE_P(All, HealthyCheckpoints,
                         ::testing::Values(Healthy{"fp8-block", "vllm"}, Healthy{"fp8-block", "sglang"},
                                           Healthy{"fp8-block", "transformers"}, Healthy{"fp8-tensor", "transformers"},
                                           Healthy{"ct-fp8-tensor", "sglang"}, Healthy{"ct-fp8-tensor", "transformers"},
                                           Healthy{"ct-fp8-channel", "vllm"}, Healthy{"ct-nvfp4", "vllm"},
                                           Healthy{"ct-nvfp4", "sglang"}, Healthy{"ct-nvfp4", "transformers"},
                                           Healthy{"ct-mxfp4", "vllm"}, Healthy{"ct-mxfp8", "vllm"},
                                           Healthy{"modelopt-nvfp4", "vllm"}, Healthy{"modelopt-nvfp4", "sglang"},
                                           Healthy{"modelopt-mxfp8", "vllm"}, Healthy{"torchao-fp8", "vllm"},
                                           Healthy{"torchao-nvfp4", "transformers"}, Healthy{"torchao-nvfp4", "vllm"}));

struct Case {
  const char* thread;      ///< where users met it, or the loader's source
  const char* checkpoint;  ///< as its producer wrote it
  const char* loader;
  std::function<void(EditedCheckpoint&)> edit;
  const char* id;    ///< what is found
  const char* says;  ///< a part of the sentence
};

constexpr const char* kLayer = "model.layers.0.";

std::string in_layer(const std::string& name) { return kLayer + name; }

/// Scales of the cache beside k_proj and v_proj, as ModelOpt names them.
void add_kv_scales(EditedCheckpoint& checkpoint, float k, float v) {
  checkpoint.set(in_layer("self_attn.k_proj.k_scale"), {1}, {k});
  checkpoint.set(in_layer("self_attn.v_proj.v_scale"), {1}, {v});
}

void scale_by(EditedCheckpoint& checkpoint, const std::string& name, float factor) {
  checkpoint.set(name, {1}, {checkpoint.number(name) * factor});
}

/// The experts of a mixture, out of a dense MLP.
void to_experts(EditedCheckpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (name.find(".mlp.") != std::string::npos) names.push_back(name);
  }
  for (const std::string& name : names) {
    std::string to = name;
    to.replace(to.find(".mlp."), 5, ".mlp.experts.0.");
    checkpoint.rename(name, to);
  }
}

std::vector<Case> cases() {
  const std::string up = in_layer("mlp.up_proj");
  const std::string gate = in_layer("mlp.gate_proj");
  return {
      {"vllm-project/vllm #54623", "ct-fp8-channel", "vllm",
       [](EditedCheckpoint& one) {
         one.set(in_layer("self_attn.k_cache_scale"), {1}, {0.1F}),
             one.rename(in_layer("self_attn.k_cache_scale"), in_layer("self_attn.attn_k.k_scale"));
       },
       "kv-scale-name", "under names that vllm does not know"},
      {"vllm-project/vllm #25047", "ct-fp8-channel", "vllm",
       [](EditedCheckpoint& one) {
         one.replace_in_config("\"ignore\"", "\"kv_cache_scheme\": {\"num_bits\": 8}, \"ignore\"");
       },
       "kv-scale-missing", "1.0 is used"},
      {"vllm-project/vllm PR 47515", "ct-nvfp4", "vllm",
       [=](EditedCheckpoint& one) { scale_by(one, up + ".weight_global_scale", 2.14F); }, "global-scales-differ",
       "by up to 2.14 times in model.layers.0.mlp.gate_proj: that part's weights become up to 2.14 times smaller"},
      {"sgl-project/sglang PR 29151", "ct-nvfp4", "sglang",
       [=](EditedCheckpoint& one) {
         for (const std::string& name : one.ending("")) {
           if (name.starts_with(gate)) one.tensors.erase(name);
         }
         for (const char* part : {".weight_packed", ".weight_scale", ".weight_global_scale", ".input_global_scale"}) {
           one.rename(up + part, in_layer("mlp.gate_up_proj") + part);
         }
       },
       "fused-scalar", "give it to the first part"},
      {"vllm-project/vllm #45212, missing", "ct-nvfp4", "vllm",
       [](EditedCheckpoint& one) {
         to_experts(one);
         one.tensors.erase(in_layer("mlp.experts.0.down_proj.input_global_scale"));
       },
       "input-scale-missing", "1 of 7 weights"},
      {"vllm-project/vllm #45212, Inf", "ct-nvfp4", "vllm",
       [](EditedCheckpoint& one) {
         one.set(in_layer("mlp.down_proj.input_global_scale"), {1}, {std::numeric_limits<float>::infinity()});
       },
       "input-scale-invalid", "is inf"},
      {"vllm-project/vllm #54189", "ct-nvfp4", "vllm",
       [](EditedCheckpoint& one) {
         to_experts(one);
         for (const std::string& name : one.ending(".input_global_scale")) one.tensors.erase(name);
         const std::size_t at = one.config.find("\"input_activations\": {");
         one.config.replace(at, one.config.find('}', at) + 1 - at, "\"input_activations\": null");
       },
       "weight-only-experts", "every expert gives 0"},
      {"huggingface/transformers #48371", "ct-nvfp4", "transformers", to_experts, "global-scale-dropped",
       "without their scale of the whole"},
      {"unslothai/unsloth #6200", "fp8-block", "vllm",
       [=](EditedCheckpoint& one) { one.tensors.erase(gate + ".weight_scale_inv"); }, "scale-missing",
       "times larger than weights of that width are"},
      {"huggingface/transformers #47030", "fp8-block", "vllm",
       [](EditedCheckpoint& one) {
         for (const std::string& name : one.ending(".weight_scale_inv")) {
           auto& tensor = one.tensors.at(name);
           std::vector<float> values(tensor.bytes.size() / sizeof(float));
           std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
           for (float& value : values) value = std::exp2(std::ceil(std::log2(value)));
           one.set(name, tensor.shape, values);
         }
       },
       "scale-rounded", "blocks hold the largest code all the same"},
      {"modular/modular #6600", "ct-nvfp4", "transformers",
       [=](EditedCheckpoint& one) {
         // A multiplier under the divisor's name.
         one.set(up + ".weight_global_scale", {1}, {1 / one.number(up + ".weight_global_scale")});
       },
       "scale-inverted", "the other way round"},
      {"NVIDIA/Model-Optimizer PR 2038", "ct-nvfp4", "vllm",
       [=](EditedCheckpoint& one) {
         auto& scale = one.tensors.at(up + ".weight_scale");
         scale.shape.back() /= 2;
         scale.bytes.resize(scale.bytes.size() / 2);
       },
       "scale-shape", "half as wide"},
      {"NVIDIA/Model-Optimizer #20", "ct-fp8-channel", "vllm", [](EditedCheckpoint& one) { add_kv_scales(one, 1, 1); },
       "kv-scale-one", "clipped"},
      {"vllm kv_cache.py, v_scale of 0", "ct-fp8-channel", "vllm",
       [](EditedCheckpoint& one) { add_kv_scales(one, 0.1F, 0); }, "kv-scale-v-replaced", "without a word"},
      {"vllm kv_cache.py, both 0", "ct-fp8-channel", "vllm", [](EditedCheckpoint& one) { add_kv_scales(one, 0, 0); },
       "kv-scale-zero", "stops at an assertion"},
      {"sglang kv_cache.py, both 0", "ct-fp8-channel", "sglang",
       [](EditedCheckpoint& one) { add_kv_scales(one, 0, 0); }, "kv-scale-zero", "1.0 is used"},
      {"vllm kv_cache.py, NaN", "ct-fp8-channel", "vllm",
       [](EditedCheckpoint& one) { add_kv_scales(one, std::nanf(""), 0.1F); }, "kv-scale-nan", "not finite"},
      {"vllm kv_cache.py, v alone", "ct-fp8-channel", "vllm",
       [](EditedCheckpoint& one) { one.set(in_layer("self_attn.v_proj.v_scale"), {1}, {0.1F}); }, "kv-scale-v-alone",
       "no k_scale"},
      {"vllm fp8.py, per tensor under transformers' name", "fp8-tensor", "vllm", [](EditedCheckpoint&) {}, "scale-name",
       "as 'weight_scale_inv', where vllm looks for 'weight_scale'"},
      {"transformers, per tensor under vllm's name", "fp8-tensor", "transformers",
       [](EditedCheckpoint& one) {
         for (const std::string& name : one.ending(".weight_scale_inv"))
           one.rename(name, name.substr(0, name.size() - 4));
       },
       "scale-name", "as 'weight_scale', where transformers looks for 'weight_scale_inv'"},
      {"vllm fp8.py, activation_scheme", "fp8-block", "vllm",
       [](EditedCheckpoint& one) { one.replace_in_config("\"activation_scheme\": \"dynamic\",", ""); },
       "activation-scheme-missing", "has no activation_scheme"},
      {"vllm fp8.py, weight_block_size", "fp8-block", "vllm",
       [](EditedCheckpoint& one) {
         const std::size_t at = one.config.find("\"weight_block_size\": [");
         one.config.replace(at, one.config.find(']', at) + 1 - at, "\"weight_block_size\": null");
       },
       "scale-shape", "cannot be decoded"},
      {"vllm quant_utils.py, parts of a fused weight", "fp8-block", "vllm",
       [](EditedCheckpoint& one) {
         one.replace_in_config("\"lm_head\"", "\"lm_head\", \"model.layers.0.mlp.up_proj\"");
       },
       "fused-partly-listed", "which is refused"},
      {"a list that covers codes", "fp8-block", "vllm",
       [](EditedCheckpoint& one) {
         one.replace_in_config("\"lm_head\"", "\"lm_head\", \"model.layers.0.mlp.down_proj\"");
       },
       "listed-but-quantized", "takes the codes for the weights"},
      {"floats that the list leaves out", "fp8-block", "vllm",
       [](EditedCheckpoint& one) {
         one.tensors.erase(in_layer("mlp.down_proj.weight_scale_inv"));
         one.set(in_layer("mlp.down_proj.weight"), {64, 96}, std::vector<float>(64 * 96, 0.1F));
       },
       "plain-but-not-listed", "hold floats where vllm expects codes"},
      {"no quantization_config", "fp8-block", "vllm",
       [](EditedCheckpoint& one) { one.replace_in_config("\"quantization_config\"", "\"other\""); }, "config-missing",
       "has no quantization_config"},
      {"transformers and ModelOpt", "fp8-tensor", "transformers",
       [](EditedCheckpoint& one) {
         one.replace_in_config("\"quant_method\": \"fp8\"", "\"quant_method\": \"modelopt\"");
       },
       "method-unknown", "loads the codes as if they were the weights"},
      {"a scale that is NaN", "fp8-block", "sglang",
       [=](EditedCheckpoint& one) {
         one.set(up + ".weight_scale_inv", {3, 2}, {1, 1, std::nanf(""), 1, 1, 1});
       },
       "scale-invalid", "has nan at 2, and 1 of 6 in all"},
      {"ModelOpt, no scale of inputs", "modelopt-nvfp4", "vllm",
       [](EditedCheckpoint& one) {
         for (const std::string& name : one.ending(".input_scale")) one.tensors.erase(name);
       },
       "input-scale-missing", "7 of 7 weights"},
      {"ModelOpt, one scale of inputs is infinite", "modelopt-nvfp4", "vllm",
       [=](EditedCheckpoint& one) { scale_by(one, up + ".input_scale", std::numeric_limits<float>::infinity()); },
       "input-scale-invalid", "is inf"},
      {"ModelOpt, second scales that differ", "modelopt-nvfp4", "sglang",
       [=](EditedCheckpoint& one) { scale_by(one, up + ".weight_scale_2", 0.5F); }, "global-scales-differ",
       "up to 2 times larger"},
      {"ModelOpt, the second scale as a divisor", "modelopt-nvfp4", "vllm",
       [](EditedCheckpoint& one) {
         for (const std::string& name : one.ending(".weight_scale_2")) one.set(name, {1}, {1 / one.number(name)});
       },
       "scale-inverted", "the other way round"},
      {"ModelOpt, no second scale", "modelopt-nvfp4", "vllm",
       [](EditedCheckpoint& one) {
         for (const std::string& name : one.ending(".weight_scale_2")) one.tensors.erase(name);
       },
       "global-scale-missing", "have no scale of the whole"},
      {"fused per tensor", "ct-fp8-tensor", "vllm", [](EditedCheckpoint&) {}, "fused-requantized", "makes anew"},
  };
}

class Threads : public ::testing::TestWithParam<Case> {};

TEST_P(Threads, IsFound) {
  const Case& one = GetParam();
  EditedCheckpoint checkpoint(one.checkpoint);
  one.edit(checkpoint);
  const Inspection made = inspect(checkpoint.write(), one.loader);
  EXPECT_THAT(finding(made, one.id).text, HasSubstr(one.says)) << one.thread;
}

INSTANTIATE_TEST_SUITE_P(All, Threads, ::testing::ValuesIn(cases()));

TEST(InspectWeights, ThatHoldNanAreNamed) {
  EditedCheckpoint checkpoint("fp8-tensor");
  std::vector<float> values(32, 1.0F);
  values[16 + 3] = std::numeric_limits<float>::quiet_NaN();
  checkpoint.set("model.extra.weight", {2, 16}, values);
  const std::string text = finding(inspect(checkpoint.write(), "vllm"), "weight-not-finite").text;
  EXPECT_THAT(text, HasSubstr("row 1 of model.extra holds nan at column 3"));
}

/// A producer's checkpoint of packed codes, edited, as a loader finds it.
Inspection packed(const char* name, const char* loader, const std::function<void(EditedCheckpoint&)>& edit = {}) {
  EditedCheckpoint checkpoint(name);
  if (edit) edit(checkpoint);
  return inspect(checkpoint.write(), loader);
}

TEST(InspectIntegers, OfEachProducerAreLoaded) {
  for (const char* name :
       {"ct-int4", "ct-int4-asym", "ct-int3", "gptq-int4", "gptq-int4-v2", "gptq-int8", "awq-int4"}) {
    const Inspection made = packed(name, "vllm");
    EXPECT_THAT(ids(made), IsEmpty()) << name;
    EXPECT_EQ(made.count(Fate::quantized), 7) << name;
  }
  for (const char* name : {"bnb-nf4", "bnb-fp4", "gptq-int3"})
    EXPECT_THAT(ids(packed(name, "transformers")), IsEmpty());
}

TEST(InspectIntegers, ThatALoaderRefusesAreAnError) {
  const auto text = [](const char* name) { return finding(packed(name, "vllm"), "method-refused").text; };
  EXPECT_THAT(text("gptq-int3"), HasSubstr("vllm 0.33 loads GPTQ of 4 or 8 bits alone"));
  EXPECT_THAT(text("gptq-int4-asym"), HasSubstr("GPTQ with sym = true alone"));
  EXPECT_THAT(text("gptq-int4-desc-act"), HasSubstr("GPTQ with desc_act = false"));
  EXPECT_THAT(text("ct-int4-g-idx"), HasSubstr("without actorder group"));
  EXPECT_THAT(ids(packed("bnb-nf4", "vllm")), Contains("method-unknown"));
}

TEST(InspectIntegers, OfAnotherLayoutAreANote) {
  const Inspection made = packed("awq-int4", "transformers", [](EditedCheckpoint& checkpoint) {
    checkpoint.replace_in_config("\"version\": \"gemm\"", "\"version\": \"gemv\"");
  });
  EXPECT_THAT(ids(made), IsEmpty());
  EXPECT_THAT(ids(made, Severity::note), Contains("not-decoded"));
}

TEST(InspectIntegers, WithoutTheIndexOfTheirGroupsAreAnError) {
  const Inspection made = packed("ct-int4-g-idx", "transformers", [](EditedCheckpoint& checkpoint) {
    for (const std::string& name : checkpoint.ending("weight_g_idx")) checkpoint.tensors.erase(name);
  });
  EXPECT_THAT(ids(made), Contains("g-idx-missing"));
  const Inspection gptq = packed("gptq-int4-desc-act", "transformers", [](EditedCheckpoint& checkpoint) {
    for (const std::string& name : checkpoint.ending(".g_idx")) checkpoint.tensors.erase(name);
  });
  EXPECT_THAT(ids(gptq), Contains("g-idx-missing"));
}

/// Rows 3, 8, 15, 16, 17 and 31 of each of the seven weights have zero point 0 in their second group; that of row 17 is
/// stored as -2, since row 16 borrows from it.
TEST(InspectZeroPoints, ThatAreStoredAsOnesAreReadDifferently) {
  EXPECT_THAT(finding(packed("gptq-int4-asym", "transformers"), "zero-point-wraps").text,
              HasSubstr("35 zero points of 7 modules"));
  EXPECT_THAT(ids(packed("gptq-int4", "transformers")), IsEmpty());
}

TEST(InspectZeroPoints, ThatALoaderDoesNotReadAreAnError) {
  const Inspection made = packed("gptq-int4", "vllm", [](EditedCheckpoint& checkpoint) {
    checkpoint.tensors.at(checkpoint.ending("q_proj.qzeros").front()).bytes.front() = std::byte{0x76};
  });
  EXPECT_THAT(finding(made, "zero-points-ignored").text, HasSubstr("1 zero point of 1 module"));
}

/// What a loader makes of the scales of the KV cache, by what is in the file and what it is told.
struct KvCase {
  const char* row;
  const char* checkpoint;
  const char* loader;
  const char* dtype;  ///< of the cache
  std::function<void(EditedCheckpoint&)> edit;
  std::vector<std::string> ids;  ///< all that begin with "kv-"
  const char* says;              ///< a part of the first; empty: there is none
};

void add_one(EditedCheckpoint& checkpoint, const std::string& name, std::vector<float> values,
             std::vector<std::int64_t> shape = {1}) {
  checkpoint.set(in_layer("self_attn." + name), std::move(shape), values);
}

std::vector<KvCase> kv_cases() {
  const float nan = std::nanf("");
  const auto both = [](float k, float v) { return [=](EditedCheckpoint& one) { add_kv_scales(one, k, v); }; };
  const auto k_alone = [](EditedCheckpoint& one) { add_one(one, "k_proj.k_scale", {0.1F}); };
  const auto v_alone = [](EditedCheckpoint& one) { add_one(one, "attn.v_scale", {0.1F}); };
  const auto heads = [](EditedCheckpoint& one) {
    add_one(one, "k_scale", {0.1F, 0.2F}, {2, 1, 1});
    add_one(one, "v_scale", {0.1F, 0.2F}, {2, 1, 1});
  };
  const auto states = [](EditedCheckpoint& one) {
    one.replace_in_config("\"ignore\"", "\"kv_cache_scheme\": {\"num_bits\": 8}, \"ignore\"");
  };
  const auto nvfp4 = [](EditedCheckpoint& one) {
    add_kv_scales(one, 0.1F, 0.1F);
    one.replace_in_config("\"quant_method\": \"fp8\"",
                          "\"quant_method\": \"modelopt\", \"kv_cache_quant_algo\": \"NVFP4\"");
  };
  using Ids = std::vector<std::string>;
  const Ids no_q = {"kv-scale-q-missing"};
  return {
      {"neither", "fp8-tensor", "vllm", "fp8", [](EditedCheckpoint&) {}, {}, ""},
      {"neither, stated",
       "ct-fp8-channel",
       "vllm",
       "auto",
       states,
       {"kv-scale-missing"},
       "1.0 is used, without a word"},
      {"neither, stated", "ct-fp8-channel", "sglang", "auto", states, {"kv-scale-missing"}, "1.0 is used, without"},
      {"k and v", "fp8-tensor", "vllm", "fp8", both(0.1F, 0.2F), no_q, "1.0 is used"},
      {"k and v", "fp8-tensor", "sglang", "fp8", both(0.1F, 0.2F), {}, ""},
      {"k, v and q",
       "fp8-tensor",
       "vllm",
       "fp8",
       [](EditedCheckpoint& one) { add_kv_scales(one, 0.1F, 0.2F), add_one(one, "q_proj.q_scale", {0.3F}); },
       {},
       ""},
      {"only k_scale", "fp8-tensor", "sglang", "fp8", k_alone, {"kv-scale-k-for-both"}, "taken for V as well"},
      {"only kv_scale",
       "fp8-tensor",
       "sglang",
       "fp8",
       [](EditedCheckpoint& one) { add_one(one, "kv_scale", {0.1F}); },
       {"kv-scale-k-for-both"},
       "taken for V as well"},
      {"only v_scale", "fp8-tensor", "vllm", "fp8", v_alone, {"kv-scale-v-alone", "kv-scale-q-missing"}, "assertion"},
      {"only v_scale", "fp8-tensor", "sglang", "fp8", v_alone, {"kv-scale-v-alone"}, "assertion"},
      {"v is 0",
       "fp8-tensor",
       "vllm",
       "fp8",
       both(0.1F, 0),
       {"kv-scale-v-replaced", "kv-scale-q-missing"},
       "k_scale is taken"},
      {"v is 0", "fp8-tensor", "sglang", "fp8", both(0.1F, 0), {"kv-scale-v-replaced"}, "k_scale is taken"},
      {"both 0", "fp8-tensor", "vllm", "fp8", both(0, 0), {"kv-scale-zero", "kv-scale-q-missing"}, "assertion"},
      {"both 0", "fp8-tensor", "sglang", "fp8", both(0, 0), {"kv-scale-zero"}, "1.0 is used"},
      {"NaN", "fp8-tensor", "vllm", "fp8", both(0.1F, nan), {"kv-scale-nan", "kv-scale-q-missing"}, "assertion"},
      {"NaN", "fp8-tensor", "sglang", "fp8", both(nan, 0.1F), {"kv-scale-nan"}, "assertion"},
      {"two numbers", "fp8-tensor", "vllm", "fp8", heads, {"kv-scale-shape", "kv-scale-q-missing"}, "loading stops"},
      {"two numbers", "fp8-tensor", "sglang", "fp8", heads, {}, ""},
      {"of heads, compressed-tensors", "ct-fp8-channel", "vllm", "fp8", heads, no_q, "1.0 is used"},
      {"no fp8 cache",
       "fp8-tensor",
       "vllm",
       "bfloat16",
       both(0.1F, 0.2F),
       {"kv-scale-not-used"},
       "a cache of bfloat16 has none"},
      {"auto, quant_method fp8",
       "fp8-tensor",
       "vllm",
       "auto",
       both(0.1F, 0.2F),
       {"kv-scale-not-used"},
       "quant_method fp8"},
      {"auto, kv_cache_scheme",
       "ct-fp8-channel",
       "sglang",
       "auto",
       [=](EditedCheckpoint& one) { states(one), add_kv_scales(one, 0.1F, 0.2F); },
       {},
       ""},
      {"by token and head",
       "fp8-tensor",
       "vllm",
       "fp8_per_token_head",
       both(0.1F, 0.2F),
       {"kv-scale-not-used"},
       "are dropped"},
      {"e5m2 beside fp8", "fp8-tensor", "vllm", "fp8_e5m2", [](EditedCheckpoint&) {}, {"kv-dtype-refused"}, "refuses"},
      {"NVFP4", "fp8-tensor", "sglang", "auto", nvfp4, {"kv-scale-nvfp4"}, "6 times off"},
      {"Quark",
       "fp8-tensor",
       "sglang",
       "fp8",
       [](EditedCheckpoint& one) {
         add_one(one, "k_proj.output_scale", {0.1F}), add_one(one, "v_proj.output_scale", {0});
       },
       {"kv-scale-v-replaced"},
       "k_scale is taken"},
      {"a cache's own",
       "fp8-tensor",
       "sglang",
       "fp8",
       [](EditedCheckpoint& one) { add_one(one, "k_cache.scale", {0.1F}); },
       {"kv-scale-k-for-both"},
       "taken for V"},
  };
}

class KvScales : public ::testing::TestWithParam<KvCase> {};

TEST_P(KvScales, AreTakenAsTheLoaderDoes) {
  const KvCase& one = GetParam();
  EditedCheckpoint checkpoint(one.checkpoint);
  one.edit(checkpoint);
  InspectOptions options;
  options.loader = find_loader(one.loader);
  options.kv_cache_dtype = one.dtype;
  const auto made = inspect_checkpoint(checkpoint.write(), options);
  ASSERT_TRUE(made) << made.error().message;
  std::vector<std::string> found = ids(*made, Severity::note);
  std::erase_if(found, [](const std::string& id) { return !id.starts_with("kv-"); });
  EXPECT_THAT(found, ::testing::ElementsAreArray(one.ids)) << one.row << ", " << one.loader;
  if (one.ids.empty()) return;
  EXPECT_THAT(finding(*made, one.ids.front()).text, HasSubstr(one.says)) << one.row;
}

INSTANTIATE_TEST_SUITE_P(All, KvScales, ::testing::ValuesIn(kv_cases()));

/// What openai/gpt-oss ships: its config leaves attention out by names that only transformers reads as expressions.
TEST(HealthyCheckpoint, OfExpertsAloneIsTakenByAll) {
  for (const char* loader : {"vllm", "sglang", "transformers"}) {
    const Inspection made = inspect(
        std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / "gpt-oss-mxfp4",
        loader);
    EXPECT_THAT(ids(made), IsEmpty()) << loader;
    EXPECT_EQ(made.count(Fate::quantized), 2U);
    EXPECT_EQ(made.count(Fate::ignored), 7U);
  }
}

/// Weights whose scale the loader does not find are neither codes with scales nor floats to it.
TEST(Fates, OfCodesThatTheLoaderHasNoUseForAreUnclassified) {
  const std::filesystem::path folder = NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints";
  const Inspection unknown = inspect(folder / "modelopt-nvfp4", "transformers");
  EXPECT_EQ(unknown.count(Fate::unclassified), 7U);
  EXPECT_EQ(unknown.count(Fate::quantized), 0U);
  EXPECT_EQ(finding(unknown, "method-unknown").modules.size(), 7U);
  EXPECT_EQ(inspect(folder / "fp8-tensor", "vllm").count(Fate::unclassified), 7U);
}

/// Which layers change, and by how much: against the definition, in double precision.
TEST(Changes, AreToldOfEachModule) {
  const std::filesystem::path folder = NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints";
  const auto change = [](const Inspection& made, const std::string& module) {
    for (const InspectedModule& one : made.modules) {
      if (one.path == module) return one.change;
    }
    return -1.0;
  };
  const Inspection by_bf16 = inspect(folder / "ct-nvfp4", "transformers");
  EXPECT_EQ(finding(by_bf16, "decoded-by-bf16").changes.size(), 7U);
  const double rounding = change(by_bf16, in_layer("mlp.up_proj"));
  EXPECT_GT(rounding, 5e-4);  // bf16 has 8 bits: within 2^-9 of each, 2^-9 / sqrt(3) of many
  EXPECT_LT(rounding, 0x1p-9);
  EXPECT_THAT(ids(inspect(folder / "ct-fp8-channel", "transformers"), Severity::note), IsEmpty());  // f32 scales
  EditedCheckpoint checkpoint("ct-nvfp4");
  scale_by(checkpoint, in_layer("mlp.up_proj.weight_global_scale"), 2);
  const Inspection merged = inspect(checkpoint.write(), "vllm");
  EXPECT_THAT(finding(merged, "global-scales-differ").modules, ::testing::ElementsAre(in_layer("mlp.gate_proj")));
  EXPECT_DOUBLE_EQ(change(merged, in_layer("mlp.gate_proj")), 0.5);
  EXPECT_EQ(change(merged, in_layer("mlp.up_proj")), 0);
  const Inspection fused = inspect(folder / "ct-fp8-tensor", "vllm");
  // One part of each group has the largest scale and stays.
  EXPECT_EQ(finding(fused, "fused-requantized").modules.size(), 3U);
}

/// Rows of a height that is no multiple of the block's: transformers takes another height, vLLM refuses a part of a
/// fused weight unless it is the last.
TEST(RaggedBlocks, AreToldByLoader) {
  EditedCheckpoint checkpoint("fp8-block");
  const auto make = [&](const std::string& module, std::int64_t rows, std::int64_t columns) {
    EditedCheckpoint::Tensor codes{"F8_E4M3", {rows, columns}, {}};
    codes.bytes.resize(static_cast<std::size_t>(rows * columns), std::byte{0x38});
    checkpoint.tensors[module + ".weight"] = codes;
    const std::int64_t high = (rows + 31) / 32;
    const std::int64_t wide = (columns + 31) / 32;
    checkpoint.set(module + ".weight_scale_inv", {high, wide},
                   std::vector<float>(static_cast<std::size_t>(high * wide), 0.01F));
  };
  make(in_layer("mlp.down_proj"), 48, 96);  // two blocks of 24 rows to transformers
  const Inspection halves = inspect(checkpoint.write(), "transformers");
  EXPECT_THAT(finding(halves, "ragged-rows").text, HasSubstr("up to 8 rows or columns of 48"));
  EXPECT_THAT(ids(inspect(checkpoint.write(), "vllm")), IsEmpty());
  make(in_layer("mlp.down_proj"), 50, 96);
  make(in_layer("mlp.gate_proj"), 80, 64);
  const Inspection refused = inspect(checkpoint.write(), "vllm");
  EXPECT_THAT(finding(refused, "ragged-fused").modules, ::testing::ElementsAre(in_layer("mlp.gate_proj")));
  make(in_layer("mlp.down_proj"), 33, 96);
  EXPECT_THAT(finding(inspect(checkpoint.write(), "transformers"), "ragged-refused").modules,
              Contains(in_layer("mlp.down_proj")));
  make(in_layer("mlp.gate_proj"), 96, 64);
  make(in_layer("mlp.up_proj"), 80, 64);
  EXPECT_THAT(ids(inspect(checkpoint.write(), "vllm")), Not(Contains("ragged-fused")));
  EXPECT_THAT(ids(inspect(checkpoint.write(), "sglang")), Contains("ragged-fused"));
}

/// How each loader reads a list of modules.
TEST(Lists, AreReadAsEachLoaderDoes) {
  QuantizationConfig config;
  config.ignored = {"model.layers.1", "re:.*gate$", "*.self_attn*", "down_proj"};
  EXPECT_FALSE(listed_by_name(config, "model.layers.1.mlp.up_proj"));
  EXPECT_TRUE(listed_by_beginning(config, "model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(listed_by_beginning(config, "model.layers.11.mlp.up_proj"));
  EXPECT_TRUE(listed_by_beginning(config, "model.layers.11.mlp.down_proj"));
  EXPECT_TRUE(listed_by_expression(config, "model.layers.0.mlp.gate"));
  EXPECT_FALSE(listed_by_expression(config, "model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(listed_by_wildcard(config, "model.layers.0.self_attn.q_proj"));
  config.ignored = {"a.q_proj", "a.k_proj"};
  EXPECT_FALSE(listed_by_name(config, "a.qkv_proj"));
  config.ignored.emplace_back("a.v_proj");
  EXPECT_TRUE(listed_by_name(config, "a.qkv_proj"));
}

/// An expression of the checkpoint that would take for ever, or is none, matches nothing.
TEST(Lists, HostileExpressionsMatchNothing) {
  QuantizationConfig config;
  config.ignored = {"re:(a+)+$", "re:[", "(("};
  const std::string name(200, 'a');
  EXPECT_FALSE(listed_by_expression(config, name + "b"));
  EXPECT_FALSE(listed_by_beginning(config, name + "b"));
}

}  // namespace
}  // namespace nanscope::inspect_test
