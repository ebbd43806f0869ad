#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/dump/dump_run.h"
#include "instrument/dump/open_dump.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/dump/producers/raw_dump.h"

namespace nanscope {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& toml) {
  const auto read = Overrides::read(toml, "nanscope.toml");
  return read ? "" : read.error().message;
}

TEST(Overrides, NameRolesLayersAndPorts) {
  RawDump dump;
  dump.add("net.7.key_mem", "u8", {4, 8});
  dump.add("net.7.thing", "f32", {4, 8});
  dump.write("nanscope.toml",
             "[[name]]\npattern = 'net\\.(\\d+)\\.key_mem'\nrole = 'k_cache'\nlayer = '$1'\n"
             "[[name]]\npattern = 'thing$'\nop = 'down_proj'\nport = 'input'\nlayer = 3\n"
             "[[format]]\npattern = 'key_mem'\nformat = 'e5m2'\n"
             "[[name]]\npattern = 'nothing'\nrole = 'q'\n");
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const DumpTensor& cache = find_tensor(**opened, "net.7.key_mem");
  EXPECT_EQ(cache.at.role, "k_cache");
  EXPECT_EQ(cache.at.port, Port::state);
  EXPECT_EQ(cache.at.layer, 7);
  EXPECT_TRUE(cache.at.known);
  EXPECT_EQ(cache.format, Format::e5m2);
  EXPECT_EQ(cache.dtype->name, "u8");
  const DumpTensor& thing = find_tensor(**opened, "net.7.thing");
  EXPECT_EQ(thing.at.op, "down_proj");
  EXPECT_EQ(thing.at.role, "act");
  EXPECT_EQ(thing.at.kind, OpKind::gemm);
  EXPECT_EQ(thing.at.layer, 3);
  ASSERT_EQ((*opened)->dump().notes.size(), 1U);
  EXPECT_THAT((*opened)->dump().notes[0].text, HasSubstr(":13:1: the pattern nothing meets no tensor"));
}

/// The name of the scale that the store of a cache has, and its value.
std::string scale_of(DumpRun& run, const std::string& cache, std::int64_t layer) {
  for (const Step& step : run.steps()) {
    for (const Op& op : run.content(step.id).ops) {
      if (op.kind != OpKind::kv_store || op.layer != layer || run.output(op, cache) == nullptr) continue;
      const Tensor* scale = run.input(op, cache.substr(0, 1) + "_scale");
      if (scale == nullptr) return "none";
      const auto values = run.values(*scale);
      return values ? fmt::format("{} of {}", scale->name, values->front()) : "unread";
    }
  }
  return "no store";
}

TEST(Overrides, ScalesAreThoseOfTheStores) {
  RawDump dump;
  dump.add("layers.0.k_cache", "u8", {4, 8});
  dump.add("layers.0.v_cache", "u8", {4, 8});
  dump.add("layers.1.k_cache", "u8", {4, 8});
  dump.add("layers.1.v_cache", "u8", {4, 8});
  dump.add("my_factor", "f32", {});
  dump.write(
      "nanscope.toml",
      "[[scale]]\npattern = 'k_cache'\ntensor = 'my_factor'\n[[scale]]\npattern = 'layers.1.v_cache'\nvalue = 0.25\n");
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  DumpRun run((*opened)->dump(), **opened);
  EXPECT_EQ(scale_of(run, "k_cache", 0), "my_factor of 0");
  EXPECT_EQ(scale_of(run, "k_cache", 1), "my_factor of 0");
  EXPECT_EQ(scale_of(run, "v_cache", 0), "none");
  EXPECT_THAT(scale_of(run, "v_cache", 1), testing::EndsWith(" of 0.25")) << "a number has no name of its own";
}

TEST(Overrides, PlacesAreReadFromFolders) {
  RawDump dump;
  dump.add("x", "f32", {2, 2}, "engine-B/batch7/try3/gpu_x2");
  dump.write("nanscope.toml",
             "[places]\nrun = '^engine-(.)$'\nstep = '^batch(\\d+)$'\nrequest = '^try(\\d+)$'\nrank = '_x(\\d+)$'\n");
  const auto opened = dump.open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const TensorName& at = (*opened)->dump().tensors.front().at;
  EXPECT_EQ(at.run, "B");
  EXPECT_EQ(at.step, 7);
  EXPECT_EQ(at.request, 3);
  EXPECT_EQ(at.rank, 2);
}

std::vector<std::string> names_in_order(const std::string& toml) {
  RawDump dump;
  for (const char* name : {"layers.0.mlp.output", "layers.0.b", "layers.0.a", "layers.0.self_attn.output"}) {
    dump.add(name, "f32", {2, 2});
  }
  dump.write("nanscope.toml", toml);
  const auto opened = dump.open();
  std::vector<std::string> names;
  for (const DumpTensor& tensor : (*opened)->dump().tensors) names.push_back(tensor.name.substr(9));
  return names;
}

TEST(Overrides, OrderIsNaturalOrThatOfPatterns) {
  using testing::ElementsAre;
  EXPECT_THAT(names_in_order("order = 'natural'\n"), ElementsAre("a", "b", "mlp.output", "self_attn.output"));
  EXPECT_THAT(names_in_order("order = ['mlp', 'b$']\n"), ElementsAre("mlp.output", "b", "self_attn.output", "a"));
  EXPECT_THAT(names_in_order("order = 'recorded'\n"), ElementsAre("self_attn.output", "mlp.output", "a", "b"));
}

TEST(Overrides, AreRefusedWithLineAndReason) {
  EXPECT_THAT(error_of("[[nam]]\npattern = 'x'\n"), HasSubstr("nanscope.toml:1:3: unknown key 'nam'"));
  EXPECT_THAT(error_of("[[nam]]\npattern = 'x'\n"), HasSubstr("did you mean 'name'?"));
  EXPECT_THAT(error_of("[[name]]\npatern = 'x'\n"), HasSubstr("needs a pattern"));
  EXPECT_THAT(error_of("[[name]]\npattern = '('\nrole = 'q'\n"), HasSubstr("nanscope.toml:1:1: pattern '(': wrong at"));
  EXPECT_THAT(error_of("[[name]]\npattern = 'x'\nrole = 'k_cach'\n"), HasSubstr("did you mean 'k_cache'?"));
  EXPECT_THAT(error_of("[[name]]\npattern = 'x'\nlayer = 'two'\n"), HasSubstr(":3:9: layer must be a number"));
  EXPECT_THAT(error_of("[[name]]\npattern = 'x'\n"), HasSubstr("says nothing"));
  EXPECT_THAT(error_of("[[format]]\npattern = 'x'\nformat = 'e4m4'\n"), HasSubstr("unknown format 'e4m4'"));
  EXPECT_THAT(error_of("[[scale]]\npattern = 'x'\n"), HasSubstr("expected either tensor"));
  EXPECT_THAT(error_of("[places]\nsteps = 'x'\n"), HasSubstr("did you mean 'step'?"));
  EXPECT_THAT(error_of("order = 'random'\n"), HasSubstr("nanscope.toml:1:9: order must be"));
  EXPECT_THAT(error_of("x = \n"), HasSubstr("nanscope.toml:1:"));
  EXPECT_THAT(error_of("\"y\\n\" = 1"), AllOf(HasSubstr("unknown key 'y\\n'"), Not(HasSubstr("\n"))));
  EXPECT_THAT(error_of("[[name]]\npattern = \"(\\n\"\nrole = 'q'\n"),
              AllOf(HasSubstr("pattern '(\\n'"), Not(HasSubstr("\n"))));
  EXPECT_THAT(error_of("x=t\n"), AllOf(HasSubstr("nanscope.toml:1:"), Not(HasSubstr("\n"))));
  EXPECT_THAT(error_of("[ # no name\n"), HasSubstr("nanscope.toml:1:3: "));
}

/// Strings and comments hold what they like. Elsewhere toml++ refuses, and must not be led into what its compiler was
/// promised: found by fuzzing, each seen by UBSan.
TEST(Overrides, BytesBeyondAsciiStandInStringsAndComments) {
  EXPECT_THAT(error_of("\xEF\xB6\xBF"), HasSubstr("nanscope.toml:1:1: "));
  EXPECT_THAT(error_of("order = 'natural'\n  \xC3\xA9 = 1\n"), HasSubstr("nanscope.toml:2:3: "));
  for (const char* text : {"a=-8'\xC7\xBF", "a=0e1='\xEF\xBB\xBB('", "\"\"\"\\\xEF\xB8\xBF'", "z1=1[\"\xD7\x9C",
                           "a=1979-05-27 '\xC7\xBF'"}) {
    EXPECT_THAT(error_of(text), HasSubstr("nanscope.toml:1:")) << text;
  }
  EXPECT_THAT(error_of("'\xC3\xA9'.\"\xC3\xA9\" = [ '\xC3\xA9',\t{x = '\xC3\xA9'},\n'\xC3\xA9']"),
              HasSubstr("unknown key '\xC3\xA9'"));
  EXPECT_EQ(error_of("\xEF\xBB\xBF# \xC3\xA9\n[[name]]\npattern = \"\"\"\xC3\xA9\"\"\"\nrole = 'q'\n"), "");
}

TEST(Overrides, AFormatMustFitWhatIsStored) {
  RawDump dump;
  dump.add("x", "f32", {2, 2});
  dump.write("nanscope.toml", "[[format]]\npattern = 'x'\nformat = 'e4m3'\n");
  const auto opened = dump.open();
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message, HasSubstr("x is stored as f32, of 32 bits, expected 8 for e4m3"));
}

/// (a+)+$ on a's takes steps beyond any count: a match has a limit.
TEST(Overrides, PatternsHaveALimit) {
  RawDump dump;
  dump.add(std::string(64, 'a') + "!", "f32", {2, 2});
  dump.write("nanscope.toml", "[[name]]\npattern = '^(a|a|aa)+$'\nrole = 'q'\n");
  const auto opened = dump.open();
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message, HasSubstr("match limit exceeded"));
}

}  // namespace
}  // namespace nanscope
