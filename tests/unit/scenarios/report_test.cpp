#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "scenarios/report/answer.h"
#include "scenarios/report/counterfactual_report.h"
#include "scenarios/report/diagnosis_report.h"
#include "scenarios/report/run_report.h"
#include "scenarios/report/why_report.h"

namespace nanscope::report {
namespace {

/// Compares with tests/unit/scenarios/golden/<name>; UPDATE_GOLDEN=1 rewrites the file instead.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(NANSCOPE_SOURCE_DIR) + "/tests/unit/scenarios/golden/" + name;
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << name;
}

Front small_front() {
  using enum CellHealth;
  Front front{.request = 2, .step = 0, .first_token = 0, .tokens = 12, .rows = {}};
  front.rows.push_back({"embed", -1, 1, std::vector<CellHealth>(12, healthy), true});
  front.rows.push_back(
      {"layer 0",
       0,
       0,
       {healthy, healthy, clipped, clipped, inf, nan, healthy, healthy, healthy, healthy, healthy, healthy},
       true});
  front.rows.push_back({"layer 1", 1, 0, std::vector<CellHealth>(12, nan), true});
  front.rows.push_back({"head",
                        -1,
                        9,
                        {absent, absent, absent, absent, absent, absent, absent, absent, absent, absent, absent, nan},
                        false});
  return front;
}

scenarios::Analysis small_analysis() {
  scenarios::Analysis analysis;
  analysis.target = "small.nanscope";
  analysis.info.scenario = "small";
  analysis.info.device = "cpu";
  analysis.info.isa = "avx2";
  analysis.info.config = R"({"knobs":{"model.layers":2,"model.width":64,"model.norm":"layer_norm",
                             "kv.format":"e4m3","kv.policy":"locked"}})";
  analysis.counts = {.requests = 2, .steps = 9, .ops = 300, .expected_ops = 300, .tensors = 400, .stored_tensors = 0};
  scenarios::RequestOutcome fine;
  fine.row.id = 0;
  fine.row.name = "text";
  fine.row.output_text = " a \x1b[31mlamp\n";
  fine.prompt_tokens = 7;
  scenarios::RequestOutcome broken;
  broken.row.id = 1;
  broken.row.name = "image-and-text";
  broken.row.output_text = "!!!!!!!!";
  broken.row.cached_tokens = 16;
  broken.prompt_tokens = 21;
  broken.image_tokens = 12;
  broken.nan_logits = true;
  analysis.requests = {fine, broken};
  analysis.front = small_front();
  Event clipped;
  clipped.kind = "values-clipped";
  clipped.where.request = 1;
  clipped.where.step = 0;
  clipped.where.layer = 1;
  clipped.where.op = "kv_store";
  clipped.where.role = "v_codes";
  clipped.where.op_id = 12;
  clipped.tensor = "1/0/1/kv_store.v_codes";
  clipped.text = "3072 values of V clipped, headroom 0.48";
  Event broken_norm = clipped;
  broken_norm.kind = "variance-collapse";
  broken_norm.where.op = "inner_norm";
  broken_norm.where.role = "out";
  broken_norm.tensor = "1/0/1/inner_norm.out";
  broken_norm.text = "the narrowest row has one distinct value, and its variance is below zero";
  broken_norm.because = 0;
  broken_norm.fault = 1;
  analysis.diagnosis.chain = {clipped, broken_norm};
  Fault fault;
  fault.fault_class = "kv-scale-locked";
  fault.where = clipped.where;
  fault.tensor = clipped.tensor;
  fault.evidence = {{"headroom", 0.48}, {"clipped", std::int64_t{3072}}};
  fault.summary = "The scale clips.";
  fault.fix = "Set kv.format=bf16.";
  fault.certainty = Certainty::proved;
  Fault born = fault;
  born.fault_class = "variance-collapse";
  born.breaks = true;
  born.because = 0;
  born.where = broken_norm.where;
  born.tensor = broken_norm.tensor;
  Fault apart = fault;
  apart.fault_class = "wrong-result";
  apart.summary = "Two channels are swapped.";
  analysis.diagnosis.faults = {fault, born, apart};
  analysis.diagnosis.root_cause = 0;
  analysis.diagnosis.spread = {.first_bad_tensor = "x", .bad_tokens = 21, .tokens = 28};
  analysis.diagnosis.checks = {{"kv-scale-locked", Checked::found, "the least headroom of 4 KV stores is 0.48"},
                               {"saturation", Checked::excluded, "the largest share of codes at the top is 1 %"},
                               {"rank-divergence", Checked::not_in_dump, "one rank: dump all of them"},
                               {"weight-corruption", Checked::not_looked_at, "model.safetensors could not be read"}};
  analysis.diagnosis.recomputation = {90, 1, 5000, 4999, {{"1/0/1/router.out", "no weight was dumped"}}};
  analysis.diagnosis.coverage.outputs = 91;
  analysis.diagnosis.coverage.judged = 90;
  analysis.diagnosis.coverage.gaps = {{"no weight was dumped", 1, "1/0/1/router.out"}};
  analysis.diagnosis.warnings = {{"headroom-falling", fault.where, fault.tensor, {}, "It falls.", "Watch it.", 2}};
  analysis.diagnosis.notes = {{"blob.bin", "is of no format that is known"}};
  analysis.digest = 0;
  return analysis;
}

RunContext small_context() {
  return {.command = "run",
          .title = "A small title",
          .recording = "small.nanscope",
          .judged = true,
          .missed = {{"verdict", "clean", "fault (kv-scale-locked)"}}};
}

TEST(Report, RunInUnicode) {
  expect_golden("run_unicode.txt",
                run_text(small_analysis(), small_context(), {.width = 100, .utf8 = true, .color = false}));
}

TEST(Report, RunInAscii) {
  const std::string text = run_text(small_analysis(), small_context(), {.width = 80, .utf8 = false, .color = false});
  expect_golden("run_ascii.txt", text);
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
}

/// A dump's requests are sequences that nobody asked or answered anything in.
TEST(Report, OfADumpNoRequestsAreTold) {
  scenarios::Analysis analysis = small_analysis();
  const Terminal terminal{.width = 100, .utf8 = true, .color = false};
  EXPECT_NE(run_text(analysis, small_context(), terminal).find("\nRequests\n"), std::string::npos);
  analysis.info.device = kDumpDevice;
  EXPECT_EQ(run_text(analysis, small_context(), terminal).find("\nRequests\n"), std::string::npos);
}

TEST(Report, RunInColourHasTheSameLetters) {
  std::string text = run_text(small_analysis(), small_context(), {.width = 100, .utf8 = true, .color = true});
  ASSERT_NE(text.find('\x1b'), std::string::npos);
  std::string bare;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
      continue;
    }
    bare += text[i];
  }
  EXPECT_EQ(bare, run_text(small_analysis(), small_context(), {.width = 100, .utf8 = true, .color = false}));
}

TEST(Report, NoLineIsWiderThanTheTerminal) {
  for (const int width : {60, 80, 100}) {
    std::istringstream lines(
        run_text(small_analysis(), small_context(), {.width = width, .utf8 = true, .color = false}));
    for (std::string line; std::getline(lines, line);) {
      const bool to_copy = line.find("  nanscope ") != std::string::npos;
      EXPECT_TRUE(display_width(line) <= width || to_copy) << line;
    }
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Report, TheAnswerIsFirstAndFiveLines) {
  scenarios::Analysis analysis = small_analysis();
  analysis.diagnosis.faults[0].summary =
      "the v scale of layer 1 was set where the largest value was 5.359 (request 0, step 0) and clips here, where it "
      "is "
      "42.55: 448 x 0.05359 = 24.01 is the largest that fits; 256 values are cut off in 1 store of request 2";
  RunContext context = small_context();
  context.missed.clear();
  analysis.diagnosis.coverage.judged = 91;
  analysis.diagnosis.coverage.gaps.clear();
  const Terminal terminal{.width = 100, .utf8 = true, .color = false};
  const Answer short_answer = answer(analysis, context, terminal);
  const std::vector<std::string> lines = lines_of(short_answer.text);
  ASSERT_EQ(lines.size(), 5U) << short_answer.text;
  EXPECT_EQ(lines[0], "Verdict   small: kv-scale-locked (+2 more), 1 of 2 requests answers from NaN; as expected");
  EXPECT_EQ(lines[1], "Place     1/0/1/kv_store.v_codes: request 1, step 0, layer 1");
  EXPECT_EQ(lines[2].substr(0, 30), "Cause     the v scale of layer");
  EXPECT_TRUE(lines[3].ends_with("the largest that fits …")) << lines[3] << ": whole clauses, none cut within";
  EXPECT_EQ(lines[4], "Fix       Set kv.format=bf16.");
  EXPECT_FALSE(short_answer.whole);
  const std::string whole = run_text(analysis, context, terminal);
  EXPECT_TRUE(whole.starts_with(short_answer.text + '\n'));
  EXPECT_NE(whole.find("cut off in 1 store of"), std::string::npos) << "what was left out stands below";
}

TEST(Report, WhatWasMissedIsInTheAnswer) {
  const std::string text = answer(small_analysis(), small_context(), {.width = 100, .utf8 = true, .color = false}).text;
  EXPECT_NE(text.find("; NOT as expected\nExpected  verdict: clean, found fault (kv-scale-locked)\n"),
            std::string::npos)
      << text;
}

TEST(Report, AHealthyRunSaysWhatItsVerdictRestsOn) {
  scenarios::Analysis analysis = small_analysis();
  analysis.diagnosis.faults.clear();
  analysis.diagnosis.root_cause.reset();
  RunContext context = small_context();
  context.missed.clear();
  analysis.diagnosis.coverage.judged = 91;
  analysis.diagnosis.coverage.gaps.clear();
  const Terminal terminal{.width = 100, .utf8 = true, .color = false};
  EXPECT_EQ(answer(analysis, context, terminal).text,
            "Verdict   small: clean, every output was recomputed and explained, 28 tokens; as expected\n"
            "Coverage  91 of 91 outputs recomputed, 99.98 % of 5000 elements explained by rounding\n"
            "Checked   1 of 4 classes excluded, 1 cannot be told from what is there, 1 not looked at\n");
}

TEST(Report, FrontShowsTheWorstOfSeveralTokens) {
  Front front{.request = 0, .step = 0, .first_token = 0, .tokens = 1000, .rows = {}};
  std::vector<CellHealth> cells(1000, CellHealth::healthy);
  cells[777] = CellHealth::nan;
  front.rows.push_back({"layer 0", 0, 0, cells, true});
  const std::string text = front_text(front, {.width = 60, .utf8 = false, .color = false});
  EXPECT_NE(text.find('N'), std::string::npos) << "one NaN of 1000 tokens lights a character";
  EXPECT_NE(text.find("one character is"), std::string::npos);
}

TEST(Report, WhyMarksTheOrigin) {
  WhyPath path;
  Hop end{.kind = HopKind::element,
          .where = {},
          .tensor = {},
          .op_kind = OpKind::gemm,
          .format = Format::f32,
          .code = 0x7fffffffu,
          .value = std::numeric_limits<float>::quiet_NaN(),
          .bad = true,
          .numbers = {},
          .text = "NaN of 256 products"};
  end.where.request = 4;
  end.where.step = 0;
  end.where.op = "lm_head";
  end.where.role = "logits";
  end.where.op_id = 7;
  Hop born = end;
  born.where.op = "inner_norm";
  born.where.role = "out";
  born.where.layer = 1;
  born.numbers = {{"variance", -3.448e-3}, {"code", std::string("0x7E")}};
  path.hops = {end, born};
  path.origin = 1;
  path.conclusion = "The scale was locked by request 0.";
  path.stopped = "its inputs are healthy";
  const Terminal terminal{.width = 100, .utf8 = true, .color = false};
  expect_golden("why.txt", why_text(path, terminal));
  Fault fault;
  fault.fault_class = "variance-collapse";
  fault.fix = "Clamp it.";
  EXPECT_EQ(answer(path, &fault, terminal).text,
            "Verdict   4/0/-/lm_head.logits is f32 nan 0x7FFFFFFF; the way back has 2 hops\n"
            "Place     born 1 hop back, in 4/0/1/inner_norm.out\n"
            "Cause     variance-collapse: NaN of 256 products\n"
            "Fix       Clamp it.\n");
}

TEST(Report, CleanStatesItsCoverage) {
  Diagnosis diagnosis;
  diagnosis.spread.tokens = 31;
  diagnosis.recomputation = {90, 0, 5000, 4999, {}};
  diagnosis.coverage.outputs = diagnosis.coverage.judged = 90;
  const std::string text = diagnosis_text(diagnosis, {});
  EXPECT_NE(text.find("clean, every output was recomputed and explained, 31 tokens"), std::string::npos) << text;
  EXPECT_NE(text.find("90 of 90 outputs recomputed"), std::string::npos) << text;
  EXPECT_NE(text.find("99.98 % of 5000 elements"), std::string::npos) << text;
}

TEST(Report, WhatWasCutOffIsNotClean) {
  Diagnosis diagnosis;
  diagnosis.completeness = {12, 90, true, "0/0/1/attn_norm"};
  diagnosis.spread.tokens = 3;
  diagnosis.coverage.outputs = diagnosis.coverage.judged = 12;
  const std::string text = diagnosis_text(diagnosis, {.width = 160});
  EXPECT_EQ(text.find("clean"), std::string::npos) << text;
  EXPECT_NE(text.find("the recording ended before the run did"), std::string::npos) << text;
  EXPECT_NE(text.find("12 of 90 ops are there, the last is 0/0/1/attn_norm"), std::string::npos) << text;
}

TEST(Report, CounterfactualsAreGroupedByEffect) {
  scenarios::Counterfactuals all;
  all.root_class = "kv-scale-locked";
  all.baseline.faults = {"kv-scale-locked"};
  all.baseline.kv_bytes_per_token = 2048;
  all.baseline.faulty_requests = {2, 3, 4};
  all.baseline.recorded_accuracy =
      scenarios::Accuracy{.requests = 2, .tokens = 17, .max_error = 0.3, .rms_error = 0.04, .top1_agreement = 1};
  scenarios::Outcome cure;
  cure.change = {{"kv.format=bf16"}};
  cure.effect = scenarios::Effect::removes_cause;
  cure.breaks_at = "scale-computed";
  cure.kv_bytes_per_token = 4096;
  cure.accuracy =
      scenarios::Accuracy{.requests = 5, .tokens = 90, .max_error = 0.01, .rms_error = 0.002, .top1_agreement = 1};
  cure.recorded_accuracy =
      scenarios::Accuracy{.requests = 2, .tokens = 17, .max_error = 0.01, .rms_error = 0.001, .top1_agreement = 1};
  scenarios::Outcome symptom;
  symptom.change = {{"engine.argmax_nan=refuse"}};
  symptom.effect = scenarios::Effect::changes_symptom;
  symptom.faulty_requests = {2, 3, 4};
  symptom.kv_bytes_per_token = 2048;
  scenarios::Outcome broken;
  broken.change = {{"kv.block_size=0"}};
  broken.error = "refused";
  all.singles = {cure, symptom, broken};
  all.minimal = {cure.change};
  all.runs = 5;
  all.seconds = 1.5;
  const Terminal terminal{.width = 100, .utf8 = true, .color = false};
  CounterfactualLines lines(std::vector{cure.change, symptom.change, broken.change}, terminal);
  std::string text = lines.titles();
  for (const scenarios::Outcome* outcome : {&all.baseline, &cure, &symptom, &broken}) text += lines.line(*outcome);
  expect_golden("counterfactuals.txt", text + '\n' + counterfactuals_text(all, "run.nanscope", terminal));
}

}  // namespace
}  // namespace nanscope::report
