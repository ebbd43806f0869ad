#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "instrument/dump/open_dump.h"
#include "instrument/dump/producers/producer.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/dump/diagnose_dump.h"
#include "tests/unit/instrument/dump/producers/raw_dump.h"

namespace nanscope {
namespace {

using testing::HasSubstr;

/// Written by tests/golden/dumps/make_producers.py.
const std::filesystem::path kDumps = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/dumps/producers";

std::unique_ptr<OpenDump> open(const std::string& name) {
  auto opened = OpenDump::open(kDumps / name, {.threads = 1, .progress = {}, .stop = {}, .sums = true});
  if (!opened) throw std::runtime_error(opened.error().message);
  return std::move(*opened);
}

const DumpTensor& find(const OpenDump& dump, const std::string& name) {
  const auto& tensors = dump.dump().tensors;
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const DumpTensor& t) { return t.name == name; });
  if (found == tensors.end()) throw std::runtime_error("no tensor " + name);
  return *found;
}

std::size_t place(const OpenDump& dump, const std::string& name) {
  return static_cast<std::size_t>(&find(dump, name) - dump.dump().tensors.data());
}

/// The class of the root cause and the tensor that it is in.
std::pair<std::string, std::string> cause(OpenDump& dump) {
  const auto diagnosis = diagnose_dump(dump);
  if (!diagnosis || !diagnosis->root_cause) return {};
  const Fault& fault = diagnosis->faults.at(*diagnosis->root_cause);
  return {std::string(fault.fault_class), fault.tensor};
}

bool noted(const OpenDump& dump, const std::string& text) {
  const auto& notes = dump.dump().notes;
  return std::any_of(notes.begin(), notes.end(),
                     [&](const RunNote& note) { return note.text.find(text) != std::string::npos; });
}

using Cause = std::pair<std::string, std::string>;

TEST(Producers, PytorchHooks) {
  const auto dump = open("pytorch_hooks");
  EXPECT_EQ(dump->dump().producer, "PyTorch forward hooks");
  EXPECT_EQ(dump->dump().unknown, 0U);
  EXPECT_EQ(find(*dump, "step_1/model.layers.0.mlp.down_proj.output").at.step, 1);
  EXPECT_EQ(cause(*dump), Cause("invalid-op", "step_0/model.layers.1.post_attention_layernorm.output"));
}

/// A file of each module, or of each layer: what the keys leave open, the file's name says.
TEST(PlainNames, OfAFileOfEachModule) {
  const auto name = [](const std::string& shown, const std::string& key) {
    ContainedTensor tensor;
    tensor.key = key;
    return plain_name({.path = shown, .shown = shown, .state = {}}, tensor);
  };
  const std::string q_proj = "step_0/model.layers.0.self_attn.q_proj";
  EXPECT_EQ(name(q_proj + ".safetensors", "output"), q_proj + ".output");
  EXPECT_EQ(name(q_proj + ".safetensors", "input.1"), q_proj + ".input.1");
  EXPECT_EQ(name("step_0/lm_head.npz", "output"), "step_0/lm_head.output");
  EXPECT_EQ(name("layer_3.npz", "q"), "layer_3.q");
  EXPECT_EQ(name("step_0/inputs.npz", "input_ids"), "step_0/input_ids");
  EXPECT_EQ(name("step_3.npz", "q"), "q");
  EXPECT_EQ(name("layer_3.npz", "model.norm.output"), "model.norm.output");
  EXPECT_EQ(name("model-00001-of-00002.safetensors", "lm_head.weight"), "lm_head.weight");
}

/// Written by tests/golden/dumps/make_fp8_cache.py: transformers' own fp8 cache, whose scale a prompt set for good.
std::unique_ptr<OpenDump> open_fp8_cache(const std::string& name) { return open("../transformers_fp8_cache/" + name); }

TEST(TransformersFp8Cache, TheLockedScaleIsFoundWhereItClips) {
  const auto dump = open_fp8_cache("clipped");
  const auto diagnosis = diagnose_dump(*dump);
  ASSERT_TRUE(diagnosis && diagnosis->root_cause);
  ASSERT_EQ(diagnosis->faults.size(), 1U);
  const Fault& fault = diagnosis->faults.front();
  EXPECT_EQ(fault.fault_class, "kv-scale-locked");
  EXPECT_EQ(fault.tensor, "request_2/step_00000/model.layers.0.self_attn.k_cache");
  EXPECT_EQ(fault.where.layer, 0);
  EXPECT_EQ(fault.where.tokens, (Range{6, 9}));
  EXPECT_THAT(fault.summary, HasSubstr("set where the largest value was 7.976 (request 0 step 0)"));
  EXPECT_EQ(diagnosis->spread.bad_tokens, 0);
}

TEST(TransformersFp8Cache, OnePassVarianceOfWhatWasClippedEndsInToken0) {
  const auto dump = open_fp8_cache("nan");
  const auto diagnosis = diagnose_dump(*dump);
  ASSERT_TRUE(diagnosis && diagnosis->root_cause);
  std::vector<std::string> classes;
  for (const Fault& fault : diagnosis->faults) classes.emplace_back(fault.fault_class);
  EXPECT_THAT(classes, testing::ElementsAre("kv-scale-locked", "variance-collapse", "argmax-nan-fallback"));
  EXPECT_EQ(diagnosis->root_cause, 0U);
  EXPECT_EQ(diagnosis->faults[1].because, 0U);
  EXPECT_EQ(diagnosis->faults[1].tensor, "request_2/step_00000/model.layers.0.self_attn.inner_attn_ln.output");
  EXPECT_EQ(diagnosis->faults[2].because, 1U);
}

TEST(TransformersFp8Cache, ACacheForTheRequestAloneIsHealthy) {
  const auto dump = open_fp8_cache("healthy");
  const auto diagnosis = diagnose_dump(*dump);
  ASSERT_TRUE(diagnosis);
  EXPECT_TRUE(diagnosis->faults.empty());
}

/// MX checkpoints have a byte for 32 elements: E8M0, OCP MX 1.0 section 5.4.1.
TEST(Bytes, ThatAreScalesArePowersOfTwo) {
  const auto dump = open("../../../unit/instrument/quantized/checkpoints/ct-mxfp8");
  const DumpTensor& scale = find(*dump, "model.layers.0.mlp.down_proj.weight_scale");
  EXPECT_EQ(scale.dtype->name, "u8");
  EXPECT_EQ(scale.format, Format::e8m0);
  EXPECT_TRUE(scale.guessed);
}

/// Written by tests/golden/dumps/make_rotated_cache.py: a path of attention that reads rotated keys beside plain
/// queries.
TEST(RotatedCache, KeysThatAloneAreRotatedAreNamed) {
  const auto dump = open("../rotated_cache/wrong");
  const auto diagnosis = diagnose_dump(*dump);
  ASSERT_TRUE(diagnosis && diagnosis->root_cause);
  const Fault& fault = diagnosis->faults[*diagnosis->root_cause];
  EXPECT_EQ(fault.fault_class, "wrong-result");
  EXPECT_EQ(fault.tensor, "step_00001/model.layers.0.self_attn.o_proj.input");
  EXPECT_THAT(fault.summary, HasSubstr("keys rotated by a Hadamard matrix and queries not (llama.cpp #25382), in a "
                                       "cache of 8 bits explains 100 % of them"));
}

TEST(RotatedCache, OneThatIsTurnedBackIsHealthy) {
  const auto dump = open("../rotated_cache/healthy");
  const auto diagnosis = diagnose_dump(*dump);
  ASSERT_TRUE(diagnosis);
  EXPECT_TRUE(diagnosis->faults.empty());
}

TEST(Producers, SglangDumper) {
  const auto dump = open("sglang_dumper");
  EXPECT_EQ(dump->dump().producer, "SGLang dumper");
  const DumpTensor& gate = find(*dump, "dump_1/step_1/rank_0/model.layers.1.mlp.gate_up_proj.output");
  EXPECT_EQ(gate.at.step, 1);
  EXPECT_EQ(gate.at.rank, 0);
  EXPECT_EQ(gate.at.layer, 1);
  EXPECT_EQ(gate.at.role, "gate_up");
  // As they were recorded: a module's input comes before what is inside it.
  EXPECT_LT(place(*dump, "dump_1/step_0/rank_0/model.layers.1.mlp.inputs.0"),
            place(*dump, "dump_1/step_0/rank_0/model.layers.1.mlp.gate_up_proj.inputs.0"));
  EXPECT_EQ(cause(*dump), Cause("invalid-op", "dump_1/step_0/rank_0/model.layers.1.post_attention_layernorm.output"));
}

TEST(Producers, ForwardPassesGiveBackWhatIsStoredWithTheNextPass) {
  const auto dump = open("forward_passes");
  EXPECT_EQ(dump->dump().producer, "SGLang forward hooks");
  EXPECT_EQ(find(*dump, "rank_0/pass_0/lm_head.output").file, "TP0_PP0_Rank0_pid4711/Pass00001.pt");
  EXPECT_EQ(find(*dump, "rank_0/pass_1/input_ids").file, "TP0_PP0_Rank0_pid4711/Pass00001.pt");
  EXPECT_EQ(find(*dump, "rank_0/pass_2/model.norm.output").at.rank, 0);
  EXPECT_TRUE(noted(*dump, "stored with the next pass"));
  EXPECT_EQ(cause(*dump), Cause("invalid-op", "rank_0/pass_0/model.layers.1.post_attention_layernorm.output"));
}

TEST(Producers, FlashInfer) {
  for (const std::string kind : {"torch", "safetensors"}) {
    SCOPED_TRACE(kind);
    const auto dump = open("flashinfer_" + kind);
    EXPECT_EQ(dump->dump().producer, "FlashInfer level 10");
    EXPECT_EQ(dump->dump().expected, 10U);
    EXPECT_EQ(dump->dump().tensors.size(), 10U);
    const DumpTensor& weight = find(*dump, "20260102_030405_000_pid4711_rmsnorm_call0001/input.weight");
    EXPECT_EQ(weight.at.role, "weight");
    // Calls of one function are modules of their own.
    const DumpTensor& first = find(*dump, "20260102_030405_000_pid4711_rmsnorm_call0001/input.input");
    const DumpTensor& second = find(*dump, "20260102_030405_004_pid4711_rmsnorm_call0002/input.input");
    EXPECT_NE(first.at.op, second.at.op);
    EXPECT_NE(first.at.module, second.at.module);
    EXPECT_EQ(first.at.kind, OpKind::layer_norm);
    EXPECT_LT(place(*dump, "20260102_030405_000_pid4711_rmsnorm_call0001/input.input"),
              place(*dump, "20260102_030405_000_pid4711_rmsnorm_call0001/output.result"));
    EXPECT_LT(place(*dump, "20260102_030405_002_pid4711_silu_and_mul_call0001/output.result"),
              place(*dump, "20260102_030405_004_pid4711_rmsnorm_call0002/input.input"));
    EXPECT_TRUE(noted(*dump, "rmsnorm did not return: it has inputs alone"));
    EXPECT_EQ(cause(*dump), Cause("invalid-op", "20260102_030405_004_pid4711_rmsnorm_call0002/output.result"));
  }
}

TEST(Producers, OneCallOfFlashInfer) {
  const auto dump = open("flashinfer_torch/20260102_030405_004_pid4711_rmsnorm_call0002");
  EXPECT_EQ(dump->dump().producer, "FlashInfer level 10");
  EXPECT_EQ(cause(*dump), Cause("invalid-op", "output.result"));
}

TEST(Producers, MsprobeTensors) {
  const auto dump = open("msprobe_tensor");
  EXPECT_EQ(dump->dump().producer, "msprobe");
  EXPECT_EQ(dump->dump().unknown, 0U);
  EXPECT_EQ(dump->dump().expected, dump->dump().tensors.size());
  const DumpTensor& weight = find(*dump, "step0/rank0/model.layers.0.mlp.gate_up_proj.weight");
  EXPECT_EQ(weight.at.role, "weight");
  EXPECT_EQ(weight.at.step, 0);
  EXPECT_EQ(weight.at.rank, 0);
  EXPECT_LT(place(*dump, "step0/rank0/model.layers.1.mlp.input.0"),
            place(*dump, "step0/rank0/model.layers.1.mlp.gate_up_proj.input.0"));
  EXPECT_EQ(cause(*dump), Cause("invalid-op", "step0/rank0/model.layers.1.post_attention_layernorm.output.0"));
}

/// Calls of functions, as level L1 writes them: which call is in the name, booleans are not measured, and of a linear
/// function's arguments the second is the weight.
TEST(Producers, MsprobeFunctionsAreCalls) {
  const auto tensor = [](const std::string& type, const std::string& shape, const std::string& max) {
    return R"({"type": "torch.Tensor", "dtype": "torch.)" + type + R"(", "shape": )" + shape + R"(, "Max": )" + max +
           R"(, "Min": )" + max + R"(, "Mean": )" + max + R"(, "Norm": )" + max + "}";
  };
  const std::string row = "[1, 12, 8]";
  const auto linear = [&](int call, const std::string& weight, const std::string& out) {
    return R"("Functional.linear.)" + std::to_string(call) + R"(.forward": {"input_args": [)" +
           tensor("float32", row, "1.0") + ", " + tensor("float32", "[8, 8]", weight) + R"(], "output": [)" +
           tensor("float32", row, out) + "]}";
  };
  RawDump dump;
  dump.write("step0/rank0/dump.json",
             R"({"task": "statistics", "level": "L1", "data": {"Tensor.cos.0.forward": {"input_args": [)" +
                 tensor("float32", row, "9.0") + R"(], "output": [)" + tensor("float32", row, "0.5") + "]}, " +
                 linear(0, "1.0", "1.0") + R"(, "Tensor.__le__.0.forward": {"input_args": [], "output": [)" +
                 tensor("bool", row, "null") + "]}, " + linear(1, "NaN", "NaN") +
                 R"(, "Functional.softmax.0.forward": {"input_args": [)" + tensor("float32", "[1, 2, 12, 12]", "NaN") +
                 R"(], "output": [)" + tensor("float32", "[1, 2, 12, 12]", "NaN") + "]}}}");
  const auto opened = dump.open();
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_FALSE(noted(**opened, "neither its file nor its statistics"));
  EXPECT_EQ((*opened)->dump().expected, 10U);
  EXPECT_EQ((*opened)->dump().tensors.size(), 10U);
  EXPECT_EQ(find(**opened, "step0/rank0/Functional.linear.1.input.1").at.role, "weight");
  EXPECT_EQ(find(**opened, "step0/rank0/Functional.linear.1.input.1").at.step, 0);
  EXPECT_EQ(find(**opened, "step0/rank0/Functional.softmax.0.output.0").at.kind, OpKind::softmax);
  EXPECT_EQ(find(**opened, "step0/rank0/Tensor.cos.0.input.0").at.role, "x") << "a word, not the model's cosines";
  EXPECT_EQ(cause(**opened), Cause("weight-corruption", "step0/rank0/Functional.linear.1.input.1"));
}

/// A bias is the third argument; a module's output comes after what is inside it; only booleans go without figures.
TEST(Producers, MsprobeCallsStandWhereTheyRan) {
  const auto tensor = [](const std::string& max) {
    return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1, 12, 8], "Max": )" + max + R"(, "Min": )" +
           max + R"(, "Mean": )" + max + R"(, "Norm": )" + max + "}";
  };
  const auto call = [&](const std::string& name, const std::string& inputs, const std::string& max) {
    return '"' + name + R"(": {"input_args": [)" + inputs + R"(], "output": [)" + tensor(max) + "]}";
  };
  const std::string in = tensor("1.0");
  RawDump dump;
  dump.write("step0/rank0/dump.json", R"({"task": "statistics", "level": "mix", "data": {)" +
                                          call("Functional.linear.0.forward", in + ", " + in + ", " + in, "1.0") +
                                          ", " + call("Module.zeta.beta.Beta.forward.0", in, "null") + ", " +
                                          call("Module.zeta.alpha.Alpha.forward.0", in, "1.0") + ", " +
                                          call("Module.zeta.Zeta.forward.0", in, "1.0") + "}}");
  const auto opened = dump.open();
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(find(**opened, "step0/rank0/Functional.linear.0.input.2").at.role, "bias");
  EXPECT_TRUE(noted(**opened, "neither its file nor its statistics"));
  EXPECT_LT(place(**opened, "step0/rank0/zeta.input.0"), place(**opened, "step0/rank0/zeta.alpha.input.0"));
  EXPECT_LT(place(**opened, "step0/rank0/zeta.alpha.output.0"), place(**opened, "step0/rank0/zeta.output.0"));
}

/// A tree of calls with printed values: the statistics are read, in the order of the calls.
TEST(Producers, TransformersDebuggerTree) {
  const auto tensor = [](const std::string& extreme) {
    return R"~({"shape": "torch.Size([1, 2, 4])", "dtype": "torch.float16", "value": ["tensor([[["], "mean": "tensor()~" +
           extreme + R"~()", "std": "tensor(1.)", "min": "tensor(-2.5000e+00)", "max": "tensor()~" + extreme +
           R"~(, dtype=torch.float16)"})~";
  };
  const auto leaf = [&](const std::string& module, const std::string& in, const std::string& out) {
    return R"~({"module_path": "M.model.layers.0.mlp.)~" + module + R"~(", "inputs": {"args": [)~" + tensor(in) +
           R"~(]}, "outputs": )~" + tensor(out) + "}";
  };
  const std::string tree =
      R"~({"module_path": "M", "inputs": {"args": [{"shape": "torch.Size([1, 2])", "dtype": "torch.int64"}]},)~"
      R"~("children": [{"module_path": "M.model.layers.0.mlp", "inputs": {"kwargs": {"hidden_states": )~" +
      tensor("1.0000e+00") + R"~(}}, "children": [)~" + leaf("up_proj", "1.0000e+00", "3.0000e+00") + ", " +
      leaf("down_proj", "2.", "inf") + "]}]}";
  RawDump dump;
  dump.write("M_debug_tree_SUMMARY.json", tree);
  dump.write("M_debug_tree_FULL_TENSORS.json", tree);
  const auto opened = dump.open();
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->dump().producer, "transformers debugger");
  ASSERT_EQ((*opened)->dump().tensors.size(), 5U) << "once, and real ones alone";
  EXPECT_EQ((*opened)->dump().tensors[0].name, "M.model.layers.0.mlp.input");
  EXPECT_EQ((*opened)->dump().tensors[0].health.max, 1);
  EXPECT_EQ((*opened)->dump().tensors[0].health.absmax, 2.5F);
  EXPECT_EQ((*opened)->dump().tensors[4].health.pos_inf, 1U);
  EXPECT_EQ(cause(**opened), Cause("f16-overflow", "M.model.layers.0.mlp.down_proj.output"));
  EXPECT_EQ((*opened)->dump().tensors[3].health.max, 2);
  dump.write("M_debug_tree_FULL_TENSORS.json", tree.substr(0, 40));
  const auto damaged = dump.open();
  ASSERT_FALSE(damaged);
}

/// Modules in the order of their calls, arguments by their number, and nothing of what lies in files.
TEST(Producers, TransformersDebuggerNamesArgumentsAndLeavesFilesToTheirReader) {
  const auto tensor = [](const std::string& value) {
    return R"~({"shape": "torch.Size([1, 2, 4])", "dtype": "torch.float16", "value": )~" + value +
           R"~(, "mean": "tensor(1.)", "std": "tensor(1.)", "min": "tensor(0.)", "max": "tensor(2.)"})~";
  };
  const auto tree = [&](const std::string& value) {
    const std::string one = tensor(value);
    return R"~({"module_path": "M", "children": [{"module_path": "M.zeta (Zeta)", "inputs": {"args": [)~" + one + ", " +
           one + R"~(]}, "outputs": )~" + one + R"~(}, {"module_path": "M.alpha", "outputs": )~" + one + "}]}";
  };
  RawDump dump;
  dump.write("M_debug_tree_FULL_TENSORS.json", tree(R"(["tensor([[["])"));
  const auto opened = dump.open();
  ASSERT_TRUE(opened) << opened.error().message;
  std::vector<std::string> names;
  for (const DumpTensor& one : (*opened)->dump().tensors) names.push_back(one.name);
  EXPECT_THAT(names, testing::ElementsAre("M.zeta.input", "M.zeta.input.1", "M.zeta.output", "M.alpha.output"));
  dump.write("M_debug_tree_FULL_TENSORS.json", tree(R"("./M.zeta.safetensors")"));
  dump.add("model.layers.0.mlp.output", "f32", {2, 4});
  const auto in_files = dump.open();
  ASSERT_TRUE(in_files) << in_files.error().message;
  EXPECT_EQ((*in_files)->dump().tensors.size(), 1U);
}

/// Figures in the first step are texts, in the second the bare words that Python writes.
TEST(Producers, MsprobeStatisticsHaveHealthAndNoElements) {
  const auto dump = open("msprobe_statistics");
  for (const std::string step : {"step0", "step1"}) {
    const DumpTensor& bad = find(*dump, step + "/rank0/model.layers.1.post_attention_layernorm.output.0");
    EXPECT_EQ(bad.health.nan, 1U);
    EXPECT_FALSE(dump->values(bad, 0, 1).has_value());
    EXPECT_FALSE(dump->bytes(bad).has_value());
  }
  const DumpTensor& good = find(*dump, "step0/rank0/model.embed_tokens.output.0");
  const auto elements = open("msprobe_tensor");
  const DumpTensor& same = find(*elements, good.name);
  EXPECT_FLOAT_EQ(good.health.max, same.health.max);
  EXPECT_FLOAT_EQ(good.health.absmax, same.health.absmax);
  EXPECT_NEAR(good.health.sum, same.health.sum, 1e-5);
  EXPECT_NEAR(good.health.sum_sq, same.health.sum_sq, 1e-4);
  EXPECT_TRUE(noted(*dump, "statistics alone"));
  const auto diagnosis = diagnose_dump(*dump);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(cause(*dump), Cause("invalid-op", "step0/rank0/model.layers.1.post_attention_layernorm.output.0"));
  // What follows in the pass is not born anew.
  EXPECT_EQ(diagnosis->faults.size(), 1U);
}

/// That there is a NaN is proven, in which tokens and how many is not, and is not said.
TEST(Producers, MsprobeStatisticsAreNotOverstated) {
  const auto dump = open("msprobe_statistics");
  EXPECT_TRUE(dump->dump().tensors.front().stated);
  const auto diagnosis = diagnose_dump(*dump);
  ASSERT_TRUE(diagnosis.has_value());
  const Fault& fault = diagnosis->faults.front();
  EXPECT_FALSE(fault.where.tokens);
  EXPECT_THAT(fault.summary, HasSubstr("holds NaN, and what goes in"));
  EXPECT_EQ(find(fault.evidence, "nan"), nullptr);
  EXPECT_NE(find(fault.evidence, "nan_at_least"), nullptr);
  EXPECT_TRUE(diagnosis->spread.at_least);
  EXPECT_EQ(diagnosis->spread.bad_tokens, 2);  // one in each of two passes
  EXPECT_EQ(diagnosis->spread.tokens, 6);
}

/// The graph that msprobe makes of a dump.json holds the same tensors and figures, in the same order.
TEST(Producers, MsprobeGraphsHoldTheSameStatistics) {
  const auto graph = open("msprobe_graph");
  const auto directory = open("msprobe_statistics");
  EXPECT_EQ(graph->dump().producer, "msprobe");
  ASSERT_EQ(graph->dump().tensors.size(), directory->dump().tensors.size());
  for (std::size_t i = 0; i < graph->dump().tensors.size(); ++i) {
    const DumpTensor& a = graph->dump().tensors[i];
    const DumpTensor& b = directory->dump().tensors[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_TRUE(a.stated);
    EXPECT_EQ(a.health.nan, b.health.nan);
    EXPECT_EQ(a.health.absmax, b.health.absmax) << a.name;
    EXPECT_EQ(a.health.sum_sq, b.health.sum_sq) << a.name;
  }
  EXPECT_EQ(cause(*graph), Cause("invalid-op", "step0/rank0/model.layers.1.post_attention_layernorm.output.0"));
  EXPECT_TRUE(noted(*graph, "28 of its 56 nodes are of the run that it was compared with"));
}

TEST(Producers, DamagedMsprobeGraphsAreRefusedInOneLine) {
  const TemporaryFolder folder;
  const auto source = kDumps / "msprobe_graph" / "compare_20260102030405.vis.db";
  const auto refusal = [&](const std::filesystem::path& file) {
    const auto opened = OpenDump::open(file, {.threads = 1, .progress = {}, .stop = {}, .sums = true});
    return opened ? std::string() : opened.error().message;
  };
  std::ifstream whole(source, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(whole), {}};
  const auto write = [&](const std::string& text) {
    std::ofstream(folder / "x.vis.db", std::ios::binary | std::ios::trunc) << text;
    return folder / "x.vis.db";
  };
  EXPECT_THAT(refusal(write(bytes.substr(0, 20000))), HasSubstr("the database is damaged"));
  EXPECT_THAT(refusal(write("no database at all")), HasSubstr("x.vis.db"));
  std::string torn = bytes;
  for (std::size_t at = 0; (at = torn.find("\"Max\": ", at)) != std::string::npos;) torn[at + 5] = ';';
  EXPECT_THAT(refusal(write(torn)),
              testing::ContainsRegex("table tb_nodes, node '[^']+': character [0-9]+: not JSON here"));
  std::ofstream(folder / "x.vis.db-wal") << "pages";
  EXPECT_THAT(refusal(write(bytes)), HasSubstr("changes lie in x.vis.db-wal and not in it"));
}

TEST(Producers, TransformerEngine) {
  const auto dump = open("transformer_engine");
  EXPECT_EQ(dump->dump().producer, "TransformerEngine DumpTensors");
  const DumpTensor& weight = find(*dump, "tensor_dumps/rank_0/iter_000001/layers.0.layernorm_mlp.fc1.weight");
  EXPECT_EQ(weight.at.step, 1);
  EXPECT_EQ(weight.at.rank, 0);
  EXPECT_EQ(weight.at.layer, 0);
  EXPECT_EQ(weight.at.role, "weight");
  EXPECT_EQ(cause(*dump), Cause("invalid-op", "tensor_dumps/rank_0/iter_000000/layers.1.layernorm_mlp.fc1.output"));
}

TEST(Producers, TensorRtLlmModulesFollowFromTheirClassesAndPlaces) {
  const auto dump = open("tensorrt_llm");
  EXPECT_EQ(dump->dump().producer, "TensorRT-LLM debug hooks");
  EXPECT_EQ(dump->dump().unknown, 0U);
  const DumpTensor& down = find(*dump, "rank0/step_1/model.layers.1.mlp.down_proj.input.0");
  EXPECT_EQ(down.file, "rank0/1.LlamaForCausalLM-1.LlamaModel-3.LlamaDecoderLayer-2.GatedMLP-2.Linear-input.x.pt");
  EXPECT_EQ(down.at.rank, 0);
  EXPECT_LT(place(*dump, "rank0/step_1/model.layers.1.mlp.input.0"),
            place(*dump, "rank0/step_1/model.layers.1.mlp.gate_up_proj.output.0"));
  EXPECT_LT(place(*dump, "rank0/step_1/model.layers.0.output.0"), place(*dump, "rank0/step_1/model.layers.1.input.0"));
  EXPECT_EQ(cause(*dump), Cause("invalid-op", "rank0/step_1/model.layers.1.post_attention_layernorm.output.0"));
}

TEST(Producers, LlamaCpp) {
  const auto dump = open("llamacpp");
  EXPECT_EQ(dump->dump().producer, "llama.cpp logits");
  EXPECT_EQ(find(*dump, "llamacpp-tiny/logits").shape, (std::vector<std::int64_t>{1, 16}));
  EXPECT_EQ(find(*dump, "llamacpp-tiny/tokens").at.role, "tokens");
  EXPECT_EQ(cause(*dump), Cause("argmax-nan-fallback", "llamacpp-tiny/logits"));
}

TEST(Producers, Checkpoint) {
  const auto dump = open("checkpoint");
  EXPECT_EQ(dump->dump().producer, "model checkpoint");
  EXPECT_EQ(find(*dump, "model.layers.0.self_attn.q_proj.weight_scale_inv").at.role, "weight");
  EXPECT_EQ(find(*dump, "model.layers.0.self_attn.q_proj.weight_scale_inv").at.form, Form::scale);
  EXPECT_TRUE(noted(*dump, "weights of a qwen3 model, quantized by fp8"));
  const auto& notes = dump->dump().notes;
  const auto unscaled = std::find_if(notes.begin(), notes.end(), [](const RunNote& note) {
    return note.tensor == "model.layers.0.self_attn.k_proj.weight";
  });
  ASSERT_NE(unscaled, notes.end());
  EXPECT_THAT(unscaled->text, HasSubstr("without a scale"));
  EXPECT_EQ(cause(*dump), Cause("weight-corruption", "model.norm.weight"));
}

}  // namespace
}  // namespace nanscope
