#include "scenarios/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace nanscope::scenarios {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kSmall = R"(name = "small"
title = "A title"
threads = ["vllm-project/vllm#35219"]

[model]
layers = 2
init_scale = 0.5
recurrent_layers = [0, 1]

[kv]
format = "e4m3"
scrub = true

[[request]]
name = "first"
text = "hello"
max_tokens = 3

[[request]]
parts = [{text = "a"}, {text = "b"}]

[expect]
verdict = "fault"
class = "kv-scale-locked"
chain = ["values-clipped"]
requests_nan = ["request-1"]
hash = "00000000000000ff"
[expect.outputs]
first = "world"
1 = {all_bang = true}
[expect.places]
"0/0/1/inner_norm.out" = "variance-collapse"
)";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

std::string error_of(const std::string& text) {
  const auto scenario = parse_scenario(text, "dir/small.toml");
  EXPECT_FALSE(scenario.has_value());
  if (scenario) return "";
  EXPECT_EQ(scenario.error().message.find('\n'), std::string::npos) << scenario.error().message;
  return scenario.error().message;
}

TEST(ScenarioParsing, ReadsEveryPart) {
  const auto scenario = parse_scenario(kSmall, "dir/small.toml");
  ASSERT_TRUE(scenario.has_value()) << scenario.error().message;
  ASSERT_EQ(scenario->knobs.size(), 5u);
  EXPECT_EQ(scenario->knobs[0].name, "model.init_scale");
  EXPECT_EQ(scenario->knobs[0].value, "0.5");
  EXPECT_EQ(scenario->knobs[1].value, "2");
  EXPECT_EQ(scenario->knobs[2].value, "0,1");
  EXPECT_EQ(scenario->knobs[4].name, "kv.scrub");
  EXPECT_EQ(scenario->knobs[4].value, "true");
  EXPECT_EQ(scenario->knobs[1].where, "dir/small.toml:6:10");
  ASSERT_EQ(scenario->requests.size(), 2u);
  EXPECT_EQ(scenario->requests[0].max_tokens, 3);
  EXPECT_EQ(scenario->requests[1].name, "request-1");
  ASSERT_EQ(scenario->requests[1].parts.size(), 2u);
  EXPECT_EQ(scenario->requests[1].parts[1].text, "b");
  EXPECT_EQ(scenario->expect.verdict, Verdict::fault);
  EXPECT_EQ(*scenario->expect.hash, 255u);
  EXPECT_EQ(*scenario->expect.requests_nan, std::vector<std::size_t>{1});
  ASSERT_EQ(scenario->expect.outputs.size(), 2u);
  EXPECT_TRUE(scenario->expect.outputs[0].all_bang);
  EXPECT_EQ(scenario->expect.outputs[0].request, 1u);
  EXPECT_EQ(scenario->expect.outputs[1].text, "world");
  EXPECT_EQ(scenario->expect.places[0].place, "0/0/1/inner_norm.out");
}

TEST(ScenarioParsing, NamesTheLineOfWhatIsWrong) {
  EXPECT_THAT(error_of(replaced(kSmall, "title =", "titel =")),
              StartsWith("dir/small.toml:2:1: unknown key 'titel' in the scenario; did you mean 'title'?"));
  EXPECT_THAT(error_of(replaced(kSmall, "[kv]", "[kvv]")), HasSubstr("unknown key 'kvv'"));
  EXPECT_THAT(error_of(replaced(kSmall, "max_tokens = 3", "max_tokens = \"3\"")),
              StartsWith("dir/small.toml:17:14: max_tokens in [[request]] must be an integer, found a string"));
  EXPECT_THAT(error_of(replaced(kSmall, "max_tokens = 3", "max_tokens = -1")), HasSubstr("from 0 to 4096, found -1"));
  EXPECT_THAT(error_of(replaced(kSmall, "text = \"hello\"", "")),
              HasSubstr("a request needs text, image, tokens or parts"));
  EXPECT_THAT(error_of(replaced(kSmall, "text = \"hello\"", "image = \"none.png\"")), HasSubstr("none.png"));
  EXPECT_THAT(error_of(replaced(kSmall, "first = \"world\"", "frist = \"world\"")),
              HasSubstr("no request 'frist'; did you mean 'first'?"));
  EXPECT_THAT(error_of(replaced(kSmall, "[\"request-1\"]", "[2]")), HasSubstr("no request '2'"));
  EXPECT_THAT(error_of(replaced(kSmall, "\"fault\"", "\"broken\"")), HasSubstr("verdict"));
  EXPECT_THAT(error_of(replaced(kSmall, "\"fault\"", "\"clean\"")), HasSubstr("its verdict must be \"fault\""));
  EXPECT_THAT(error_of(replaced(kSmall, "00000000000000ff", "ff")), HasSubstr("16 hexadecimal digits"));
  EXPECT_THAT(error_of(replaced(kSmall, "name = \"small\"", "name = \"big\"")), HasSubstr("must be big.toml"));
  EXPECT_THAT(error_of(replaced(kSmall, "name = \"first\"", "name = \"request-1\"")), HasSubstr("second request"));
  EXPECT_THAT(error_of(replaced(kSmall, "layers = 2", "layers = {}")), HasSubstr("model.layers must be one value"));
  EXPECT_THAT(error_of(replaced(kSmall, "[expect]", "[expect")), StartsWith("dir/small.toml:"));
  EXPECT_THAT(error_of(""), HasSubstr("needs name"));
}

TEST(ScenarioParsing, ReadsTransients) {
  const auto with = [](const std::string& table) {
    return replaced(kSmall, "[expect]", "[[transient]]\n" + table + "\n[expect]");
  };
  const auto scenario =
      parse_scenario(with("step = 3\nuntil = 5\nshift = 0.5\nseed = 7\nweights = \"layers.*.q_proj.weight\"\n"
                          "[[transient]]\nstep = 9\nmultiply = 4\nweights = [\"a\", \"b\"]\n"
                          "[[transient]]\nstep = 9\nload = \"random\"\ninit_scale = 2.0\n"
                          "[[transient]]\nstep = 9\nforget = \"scores\"\nstart = 3"),
                     "dir/small.toml");
  ASSERT_TRUE(scenario.has_value()) << scenario.error().message;
  ASSERT_EQ(scenario->transients.size(), 4u);
  EXPECT_EQ(scenario->transients[0].kind, TransientKind::shift);
  EXPECT_EQ(scenario->transients[0].until, 5);
  EXPECT_EQ(scenario->transients[0].seed, 7u);
  EXPECT_EQ(scenario->transients[0].weights, std::vector<std::string>{"layers.*.q_proj.weight"});
  EXPECT_EQ(scenario->transients[1].size, 4);
  EXPECT_EQ(scenario->transients[1].until, 9);
  EXPECT_EQ(scenario->transients[2].init_scale, 2);
  EXPECT_EQ(scenario->transients[3].start, 3);
  EXPECT_EQ(error_of(with("step = 3")), "dir/small.toml:22:1: a transient needs one of multiply, shift, load, forget");
  for (const auto& [table, error] :
       {std::pair("multiply = 2", "a transient needs the step"),
        {"step = 0\nmultiply = 2", "from 1 to"},
        {"step = 1\nmultiply = 2\nshift = 1", "needs one of"},
        {"step = 1\nmultiply = -2", "dir/small.toml:24:12: multiply must be a number above 0"},
        {"step = 1\nmultiply = 2\nuntil = 3", "until goes with shift"},
        {"step = 1\nmultiply = 2\nseed = 3", "seed goes with"},
        {"step = 1\nforget = \"cache\"", "only \"scores\""},
        {"step = 1\nforget = \"scores\"\nweights = \"a\"", "weights goes with"},
        {"step = 1\nmultiply = 2\nweigths = \"a\"", "did you mean 'weights'"},
        {"step = 4\nshift = 2\nuntil = 3", "from 4 to"}}) {
    EXPECT_THAT(error_of(with(table)), HasSubstr(error)) << table;
  }
}

TEST(ScenarioFiles, MissingFileAndEmptyFolderAreErrors) {
  const TemporaryFolder temporary;
  const auto& folder = temporary.path();
  EXPECT_FALSE(load_scenario(folder / "absent.toml").has_value());
  const auto none = scenario_files(folder);
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message, HasSubstr("no scenario"));
  EXPECT_FALSE(scenario_files(folder / "absent").has_value());
  std::ofstream(folder / "b.toml") << "";
  std::ofstream(folder / "a.toml") << "";
  const auto two = scenario_files(folder);
  ASSERT_TRUE(two.has_value());
  ASSERT_EQ(two->size(), 2u);
  EXPECT_EQ(two->front().filename(), "a.toml");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace nanscope::scenarios
