#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/cli/command_fixture.h"

/// The command through its real binary: exit codes, one-line errors, files written and refused.
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using nanscope::testing::Command;
using nanscope::testing::Output;

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

TEST_F(Command, HelpAndVersion) {
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_THAT(
      run("--version").out,
      ::testing::ContainsRegex("^nanscope [0-9.]+ \\(([0-9a-f]{12}, 20[0-9-]{8}|not built from a git checkout)\\)\n$"));
  for (const char* name : {"run", "replay", "diagnose", "why", "diff", "verify", "inspect", "quantize", "scales",
                           "causality", "policies", "bits", "report", "scenarios", "serve", "probe", "scan", "merge"}) {
    const Output help = run(std::string(name) + " --help");
    EXPECT_EQ(help.code, 0) << name;
    EXPECT_THAT(help.out, HasSubstr("Usage")) << name;
  }
}

TEST_F(Command, BadUsageIsOneLine) {
  expect_refused("", "--help");
  expect_refused("nonsense", "nonsense");
  expect_refused("run", "SCENARIO");
  expect_refused("run small.toml --format yaml", "yaml");
  expect_refused("run absent.toml", "absent.toml");
  expect_refused("run no-such-name", "no-such-name");
  expect_refused("diagnose absent.nanscope", "absent.nanscope");
  expect_refused("bits -f e4m3", "no number");
  expect_refused("bits", "bits needs a VALUE");
}

TEST_F(Command, BadScenariosNameTheirLine) {
  write("small.toml", replaced(kSmall, "title", "titel"));
  expect_refused("run small.toml", "small.toml:2:1: unknown key 'titel'");
  write("small.toml", replaced(kSmall, "layers = 1", "layer = 1"));
  expect_refused("run small.toml", "small.toml:5:9: unknown knob 'model.layer'; did you mean 'model.layers'?");
  write("small.toml", replaced(kSmall, "heads = 1", "heads = \"x\""));
  expect_refused("run small.toml", "model.heads");
  write("small.toml", replaced(kSmall, "head_dim = 32", "head_dim = 31"));
  expect_refused("run small.toml", "small.toml");
  write("small.toml", replaced(kSmall, "weights = \"random\"", "weights = \"absent.safetensors\""));
  expect_refused("run small.toml", "absent.safetensors");
}

TEST_F(Command, RunReplayDiagnoseAndDiff) {
  const Output ran = run("run small.toml");
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_EQ(ran.err, "") << "no progress without a terminal";
  EXPECT_THAT(ran.out, HasSubstr("As expected."));
  EXPECT_THAT(ran.out, HasSubstr("nanscope replay small.nanscope"));
  const Output replayed = run("replay small.nanscope --format json");
  EXPECT_EQ(replayed.code, 0) << replayed.err;
  const auto report = nlohmann::json::parse(replayed.out);
  EXPECT_TRUE(report["same"].get<bool>());
  EXPECT_EQ(report["verified"], report["tensors"]);
  EXPECT_GT(report["tensors"].get<int>(), 10);
  EXPECT_EQ(run("diagnose small.nanscope").code, 0);
  EXPECT_EQ(nlohmann::json::parse(run("diagnose small.nanscope --format json").out)["schema"], "nanscope.diagnosis/3");
  fs::copy_file(folder_ / "small.nanscope", folder_ / "copy.nanscope");
  EXPECT_EQ(run("diff small.nanscope copy.nanscope").code, 0);
  const Output changed = run("replay small.nanscope --set kv.format=e5m2 -o other.nanscope");
  EXPECT_EQ(changed.code, 0) << changed.out << changed.err;
  const Output differs = run("diff small.nanscope other.nanscope");
  EXPECT_EQ(differs.code, 1) << differs.out;
  EXPECT_THAT(differs.out, HasSubstr("First"));
  EXPECT_THAT(run("replay small.nanscope --at lm_head").err, HasSubstr("nanscope: "));
  EXPECT_THAT(run("replay small.nanscope --at '0/0/-/lm_head.logits[0,0]'").out, HasSubstr(">"));
  EXPECT_EQ(run("why small.nanscope '0/0/-/lm_head.logits[0,0]'").code, 0);
}

TEST_F(Command, AReportIsAPageThatIsNotOverwritten) {
  ASSERT_EQ(run("run small.toml").code, 0);
  const Output written = run("report small.nanscope");
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.out, "small.html\n");
  const std::string page = read("small.html");
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("o fault found"));
  EXPECT_THAT(page, HasSubstr("</html>"));
  write("small.html", "precious");
  expect_refused("report small.nanscope", "--force");
  EXPECT_EQ(read("small.html"), "precious");
  EXPECT_EQ(run("report small.nanscope --force").code, 0);
  expect_refused("report absent.nanscope -o other.html", "absent.nanscope");
  expect_refused("report small.nanscope -o absent/other.html", "absent/other.html");
  EXPECT_FALSE(fs::exists(folder_ / "other.html"));
}

TEST_F(Command, CausalityWritesAMapAndTakesDumps) {
  const Output mapped = run("causality future-leakage --change value --map leak.csv");
  EXPECT_EQ(mapped.code, 1) << mapped.err;
  EXPECT_THAT(read("leak.csv"), StartsWith("token,0,1,2,3,4,5,6,7,8,9,10,11,12\n0,"));
  EXPECT_EQ(run("causality future-leakage --change value --tokens 3 --map leak.png").code, 1);
  EXPECT_THAT(read("leak.png"), StartsWith("\x89PNG"));
  expect_refused("causality future-leakage --map leak.csv", "leak.csv");
  expect_refused("causality future-leakage --map leak.txt", "ends in .csv or .png");
  ASSERT_EQ(run("run future-leakage -o leak.nanscope --capture all").code, 0);
  ASSERT_EQ(run("export leak.nanscope -o dump").code, 0);
  const Output one = run("causality dump --format json");
  EXPECT_EQ(one.code, 1) << one.err;
  EXPECT_THAT(one.out, HasSubstr("\"from\": \"one run\""));
  EXPECT_THAT(run("causality dump").out, HasSubstr("the mask ends 1 key too late"));
  // Its two requests differ in their last token alone.
  const Output two = run("causality dump/request_0 dump/request_1");
  EXPECT_EQ(two.code, 1) << two.err;
  EXPECT_THAT(two.out, HasSubstr("which differ from token 12 on"));
  expect_refused("causality dump dump", "the prompts are the same");
  expect_refused("causality dump --map leak.csv --force", "--map needs a target that nanscope can run");
  expect_refused("causality dump absent", "absent");
  write("x.npy", "\x93NUMPY");
  expect_refused("causality x.npy", "x.npy");
}

/// Figures of Llama 3.1 8B: 8.03 billion parameters, 128 KiB of cache a token in bf16; 16 GiB of it are 131072 tokens.
TEST_F(Command, MemoryNeedsAConfigurationAlone) {
  write("config.json", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "torch_dtype": "bfloat16", "tie_word_embeddings": false})");
  const Output output = run("memory config.json --context 131072 --gpus 24,80G,10");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("llama: 8.03 billion parameters\nWeights   14.96 GiB"));
  EXPECT_THAT(output.out, HasSubstr("bf16       131 kB  16.00 GiB     16.00 GiB      0 requests      4 requests  "
                                    "weights do not fit"));
  const auto json = nlohmann::json::parse(run("memory config.json --weights nvfp4 --kv e4m3 --format json").out);
  EXPECT_EQ(json["parameters"], 8030261248);
  EXPECT_EQ(json["caches"][0]["format"], "e4m3");
  EXPECT_EQ(json["caches"][0]["token_bytes"], 65536.0);
  EXPECT_EQ(json["stored_bytes"], nullptr);
  for (const char* wrong : {"--kv fp7", "--weights fp7", "--gpus x", "--gpus 0", "--context 0"}) {
    const Output refused = run(std::string("memory config.json ") + wrong);
    EXPECT_EQ(refused.code, 2) << wrong;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
  EXPECT_THAT(run("memory nowhere.json").err, HasSubstr("nowhere.json: cannot open"));
}

TEST_F(Command, MissedExpectationKeepsTheRecording) {
  write("small.toml", replaced(kSmall, "requests_nan = []", "requests_nan = [0]"));
  const Output ran = run("run small.toml");
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, HasSubstr("requests with NaN logits"));
  fs::create_directory(folder_ / "suite");
  fs::copy_file(folder_ / "small.toml", folder_ / "suite/small.toml");
  std::ofstream(folder_ / "suite/other.toml") << replaced(kSmall, "\"small\"", "\"other\"");
  const Output suite = run("run suite --format junit");
  EXPECT_EQ(suite.code, 1);
  EXPECT_THAT(suite.out, HasSubstr("tests=\"2\" failures=\"1\""));
  EXPECT_THAT(suite.out, HasSubstr("nanscope diagnose nanscope-failures/small.nanscope"));
  EXPECT_TRUE(fs::exists(folder_ / "nanscope-failures/small.nanscope"));
  EXPECT_FALSE(fs::exists(folder_ / "nanscope-failures/other.nanscope"));
}

TEST_F(Command, NeverOverwritesWhatIsNotItsOwn) {
  write("small.nanscope", "precious");
  expect_refused("run small.toml", "--force");
  EXPECT_EQ(read("small.nanscope"), "precious");
  EXPECT_EQ(run("run small.toml --force").code, 0);
  EXPECT_EQ(run("run small.toml").code, 0) << "a recording of the same scenario is replaced";
}

TEST_F(Command, ADumpIsReadWithoutItsDamagedFiles) {
  fs::create_directories(folder_ / "dump");
  write("dump/data.raw", std::string(16, '\0'));
  write("dump/manifest.jsonl", R"({"name": "x", "file": "data.raw", "dtype": "f32", "shape": [2, 2]})");
  write("dump/cut.npy", "\x93NUMPY");
  const Output whole = run("diagnose dump");
  EXPECT_EQ(whole.code, 2) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("damaged, 1 part could not be read"));
  EXPECT_THAT(whole.out, HasSubstr("cut.npy: not read: "));
  EXPECT_THAT(whole.err, StartsWith("nanscope: not read: dump/cut.npy: "));
  EXPECT_EQ(std::count(whole.err.begin(), whole.err.end(), '\n'), 1) << whole.err;
  const Output same = run("diff dump dump");
  EXPECT_EQ(same.code, 2) << "a part is not known to be the same";
  EXPECT_THAT(same.out, HasSubstr("1 tensor compared: 1 equal"));
  expect_refused("diagnose dump/cut.npy", "cut.npy: ");
  write("dump/nanscope.toml", "[[name]]\npatern = 'x'\n");
  expect_refused("diagnose dump", "nanscope.toml:1:1: ");
  write("build_1.vis.db", "SQLite format 3");
  expect_refused("diagnose build_1.vis.db", "no table of msprobe");
}

TEST_F(Command, ATraceIsWrittenOfATracedRunAlone) {
  ASSERT_EQ(run("run small.toml").code, 0);
  expect_refused("trace small.nanscope", "no kernel activity is recorded");
  ASSERT_EQ(run("run small.toml --trace").code, 0);
  const Output traced = run("trace small.nanscope");
  EXPECT_EQ(traced.code, 0) << traced.err;
  EXPECT_THAT(traced.out, HasSubstr("small.trace.json"));
  EXPECT_FALSE(nlohmann::json::parse(read("small.trace.json"))["traceEvents"].empty());
  expect_refused("trace small.nanscope", "small.trace.json: exists");
  EXPECT_EQ(run("trace small.nanscope --force").code, 0);
  expect_refused("trace absent.nanscope -o t.json", "absent.nanscope");
}

TEST_F(Command, ForeignAndCutRecordingsAreRefused) {
  ASSERT_EQ(run("run small.toml").code, 0);
  const std::string whole = read("small.nanscope");
  write("cut.nanscope", whole.substr(0, whole.size() / 3));
  write("text.nanscope", "this is no recording");
  for (const char* command : {"diagnose", "replay"}) {
    expect_refused(std::string(command) + " cut.nanscope", "cut.nanscope");
    expect_refused(std::string(command) + " text.nanscope", "text.nanscope");
  }
  expect_refused("why small.nanscope 9/9/9/nothing", "");
  expect_refused("replay small.nanscope --set kv.fromat=bf16", "did you mean 'kv.format'?");
  expect_refused("replay small.nanscope --set kv.format", "SETTING=VALUE");
}

}  // namespace
