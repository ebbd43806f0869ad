#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdio>
#include <memory>

#include "tests/unit/core/recording/sample.h"

/// The views, read with the stock `sqlite3` shell where it is installed, else with its library.
namespace nanscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

bool shell_present() { return std::system("command -v sqlite3 >/dev/null 2>&1") == 0; }

std::vector<std::string> with_shell(const std::filesystem::path& path, const std::string& sql) {
  const std::string command = "sqlite3 -readonly -list '" + path.string() + "' \"" + sql + "\" 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe.get())) text.append(buffer, n);
  std::vector<std::string> lines;
  for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
    lines.push_back(text.substr(0, end));
  }
  return lines;
}

std::vector<std::string> with_library(const std::filesystem::path& path, const std::string& sql) {
  sqlite3* db = nullptr;
  sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr);
  std::vector<std::string> lines;
  const auto line = [](void* into, int columns, char** values, char**) {
    std::string text;
    for (int i = 0; i < columns; ++i) {
      if (i > 0) text += '|';
      if (values[i] != nullptr) text += values[i];
    }
    static_cast<std::vector<std::string>*>(into)->push_back(text);
    return 0;
  };
  char* message = nullptr;
  sqlite3_exec(db, sql.c_str(), line, &lines, &message);
  if (message != nullptr) lines.push_back(message);
  sqlite3_free(message);
  sqlite3_close(db);
  return lines;
}

class Views : public testing::Test {
 protected:
  void SetUp() override {
    auto writer = RecordingWriter::create(path_, sample::run_info()).value();
    writer->add(RequestRow{4, "clean", "[]", {1, 2, 3}, 0, {0}, "!"});
    writer->add(StepRow{1, 4, 0, StepKind::prefill, 10, 3, 13});
    const InputRow inputs[] = {{1, "x", 17, ""}, {1, "weight", 0, "layers.2.\"w\""}, {1, "k_pool", 0, ""}};
    writer->add(OpRow{1, 1, 2, "attn_norm", "layer_norm", "{}"}, inputs);
    TensorRow tensor{1, 1, "out", Format::e4m3, 3, 600, 1, 10, 0xfU << 28, false, sample::health(400, 5)};
    tensor.health.first_bad = 601;
    tensor.health.count = 900;
    tensor.health.sum = 89.4;
    tensor.health.pos_inf = tensor.health.neg_inf = 0;
    TensorDetail detail{{Health{}, sample::health(77, 5), empty_health()},
                        sample::many(static_cast<std::size_t>(level_shape(3, 600, 0).tiles()), 0)};
    detail.tokens[0].nan = 0x0102030405060708;
    detail.tokens[0].min = -448.0F;
    detail.tokens[0].max = 1.40129846e-45F;
    detail.tokens[0].absmax = 3.40282347e38F;
    detail.tokens[1].min = -0.15625F;
    detail.tokens[1].max = 1.0F;
    detail.tokens[1].absmax = 1.17549421e-38F;
    writer->add(tensor, detail, sample::noise(1800, 1));
    TensorRow single{2, 1, "stats", Format::f32, 1, 8, 1, 12, 2, false, Health{}};
    single.health.count = 8;
    single.health.max = 2.5F;
    writer->add(single, {{single.health}, {}});
    writer->add(OpRow{2, 1, -1, "lm_head", "gemm", "{}"}, {});
    writer->add(ScaleRow{1, 1, 2, "k", "locked", Format::e4m3, 0.5, ScaleSource::calibrated, 0, 1, 17, 12.5, true,
                         900.0, 0.25});
    writer->add(KvRow{1, 4, -1, 12, 3, 9, 10, KvAction::written, "attention", Format::e4m3});
    writer->add(TokenRow{4, 12, 7, "hi", TokenSource::prompt});
    writer->add(KernelRow{1, "norm", 1000, 2500, "{}"});
    writer->add(RunNote{"model/odd", "not understood"});
    ASSERT_TRUE(writer->commit_step());
    const auto finished = writer->finish(5);
    ASSERT_TRUE(finished) << finished.error().message;
    const EventRow events[] = {{1, "kv-scale-locked", 1, 0, "clips", "{}"},
                               {2, "variance-collapse", 0, 1, "nan", "{}"}};
    ASSERT_TRUE(write_events(path_, events));
  }

  std::vector<std::string> query(const std::string& sql) const {
    auto lines = with_library(path_, sql);
    if (shell_present()) {
      EXPECT_EQ(with_shell(path_, sql), lines);
    }
    return lines;
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "v.nanscope";
};

TEST_F(Views, CompletenessInWords) {
  EXPECT_THAT(query("SELECT state, completeness FROM v_completeness"),
              ElementsAre("complete|2 of 5 expected ops captured"));
}

TEST_F(Views, StepsWithTheirSequences) {
  EXPECT_THAT(query("SELECT * FROM v_steps"), ElementsAre("1|prefill|0|||3|1|4|0|0..2|10..12|13"));
  EXPECT_THAT(query("SELECT * FROM v_notes"), ElementsAre("1|model/odd|not understood"));
}

TEST_F(Views, OpsWithTheirPlaces) {
  EXPECT_THAT(query("SELECT id, place, phase, layer, kind FROM v_ops"),
              ElementsAre("1|4/0/2/attn_norm|prefill|2|layer_norm", "2|4/0/-/lm_head|prefill|-|gemm"));
}

TEST_F(Views, InputsAreTensorsOrWeights) {
  EXPECT_THAT(query("SELECT place, slot, role, tensor, weight FROM v_inputs WHERE op = 1"),
              ElementsAre("4/0/2/attn_norm|0|x|17|", "4/0/2/attn_norm|1|weight||layers.2.\"w\"",
                          "4/0/2/attn_norm|2|k_pool|0|"));
}

TEST_F(Views, TensorsWithHealthInColumns) {
  EXPECT_THAT(query("SELECT place, format, shape, hash, nan, bad, saturated, stored, round(mean, 6) FROM v_tensors"),
              ElementsAre("4/0/2/attn_norm.out|e4m3|3x600|00000000f0000000|5|5|404|1|0.099888",
                          "4/0/2/attn_norm.stats|f32|1x8|0000000000000002|0|0|0|0|0.0"));
}

TEST_F(Views, BadOnesByTheirFirstBadElement) {
  EXPECT_THAT(query("SELECT first_bad, bad, elements, kind FROM v_bad"),
              ElementsAre("4/0/2/attn_norm.out[11,1]|5|900|layer_norm"));
}

TEST_F(Views, TokenHealthIsDecodedFromTheBlob) {
  const std::string columns =
      "SELECT token, elements, nan, pos_inf, saturated, clipped, first_bad FROM v_token_health ";
  EXPECT_THAT(query(columns + "WHERE tensor = 1 ORDER BY token"),
              ElementsAre("10|0|72623859790382856|0|0|0|-1", "11|1077|5|2|81|85|77", "12|0|0|0|0|0|-1"));
  EXPECT_THAT(query(columns + "WHERE tensor = 2"), ElementsAre("12|8|0|0|0|0|-1"));
  EXPECT_THAT(query("SELECT printf('%.9g %.9g %.9g', min, max, absmax) FROM v_token_health ORDER BY tensor, token"),
              ElementsAre("-448 1.40129846e-45 3.40282347e+38", "-0.15625 1 1.17549421e-38", "Inf -Inf 0", "0 2.5 0"));
}

TEST_F(Views, LedgersAndHistories) {
  EXPECT_THAT(query("SELECT place, target, scale, source, locked, headroom, verdict FROM v_scales"),
              ElementsAre("4/0/2/attn_norm|k|0.5|calibrated|yes|0.25|clips"));
  EXPECT_THAT(query("SELECT block, slots, action, request, step, layer, tokens, writer, format FROM v_kv"),
              ElementsAre("12|3..8|written|4|0|all|10..15|attention|e4m3"));
  EXPECT_THAT(query("SELECT * FROM v_tokens"), ElementsAre("4|12|7|hi|prompt"));
  EXPECT_THAT(query("SELECT place, kernel, microseconds FROM v_kernels"), ElementsAre("4/0/2/attn_norm|norm|2.5"));
  EXPECT_THAT(query("SELECT request, output_text, prompt_tokens FROM v_requests"), ElementsAre("4|!|3"));
  EXPECT_THAT(query("SELECT id, fault, place, because, summary FROM v_events"),
              ElementsAre("1|kv-scale-locked|4/0/2/attn_norm.out|0|clips", "2|variance-collapse||1|nan"));
}

TEST_F(Views, EveryViewCanBeReadWhole) {
  for (const std::string& name : query("SELECT name FROM sqlite_schema WHERE type = 'view'")) {
    const auto lines = query("SELECT count(*) > 0 FROM " + name);
    EXPECT_THAT(lines, ElementsAre("1")) << name;
  }
}

}  // namespace
}  // namespace nanscope
