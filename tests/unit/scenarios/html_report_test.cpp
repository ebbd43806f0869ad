#include "scenarios/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nanscope::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A faulty run whose every text tries to bring markup into the page.
scenarios::Analysis hostile() {
  const std::string evil = "<script>alert('x')</script>&\"";
  scenarios::Analysis analysis;
  analysis.target = evil;
  analysis.info.scenario = evil;
  analysis.info.device = evil;
  analysis.info.created = evil;
  scenarios::RequestOutcome request;
  request.row.name = evil;
  request.row.output_text = evil + "\x1b[31m";
  request.nan_logits = true;
  analysis.requests = {request};
  Fault root;
  root.fault_class = evil;
  root.summary = evil;
  root.fix = evil;
  root.where.op = evil;
  root.where.op_id = 1;
  analysis.diagnosis.faults = {root, root};
  analysis.diagnosis.root_cause = 0;
  root.tensor = evil;
  Event event;
  event.kind = evil;
  event.tensor = evil;
  event.text = evil;
  analysis.diagnosis.chain = {event};
  analysis.diagnosis.checks = {{evil, Checked::excluded, evil}};
  analysis.diagnosis.warnings = {{evil, {}, evil, {}, evil, evil, 0}};
  analysis.diagnosis.notes = {{evil, evil}};
  analysis.diagnosis.completeness = {1, 2, true, evil};
  return analysis;
}

scenarios::Counterfactuals two_changes() {
  scenarios::Counterfactuals all;
  all.baseline.faulty_requests = {2};
  scenarios::Outcome cure;
  cure.change = {{"kv.format=<b>"}};
  cure.effect = scenarios::Effect::removes_cause;
  scenarios::Outcome failed;
  failed.error = "refused";
  all.singles = {cure, failed};
  all.minimal = {cure.change};
  all.runs = 3;
  return all;
}

TEST(HtmlReport, NothingOfTheRecordingIsMarkup) {
  const auto changes = two_changes();
  const std::string html = html_report(hostile(), &changes, {});
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("kv.format=<b>")));
  EXPECT_THAT(html, Not(HasSubstr("\x1b")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;"));
}

TEST(HtmlReport, HoldsAllThatItShows) {
  const auto bytes = std::as_bytes(std::span("foobar", 6));
  const Picture pictures[] = {{"Front", "Where it was born.", {bytes.begin(), bytes.end()}}};
  const auto changes = two_changes();
  const std::string html = html_report(hostile(), &changes, pictures);
  EXPECT_THAT(html, HasSubstr("src=\"data:image/png;base64,Zm9vYmFy\""));
  EXPECT_THAT(html, HasSubstr("Where it was born."));
  EXPECT_THAT(html, HasSubstr("removes the cause"));
  EXPECT_THAT(html, HasSubstr("3 runs"));
  for (const char* outside : {"http:", "https:", "src=\"/", "href=", "@import", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
}

TEST(HtmlReport, GivesAPhoneTheNarrowPictureWhereThereIsOne) {
  scenarios::Analysis analysis;
  const Picture pictures[] = {{"Wide alone", "", {std::byte{1}}}, {"Both", "", {std::byte{2}}, {std::byte{3}}}};
  const std::string html = html_report(analysis, nullptr, pictures);
  EXPECT_THAT(html, HasSubstr("<h2>Wide alone</h2>\n<figure><picture><img "));
  EXPECT_THAT(html, HasSubstr("<picture><source media=\"(max-width: 640px)\" srcset=\"data:image/png;base64,Aw==\">"
                              "<img alt=\"Both\" src=\"data:image/png;base64,Ag==\"></picture>"));
}

TEST(HtmlReport, WhatWasCutOffIsNotClean) {
  scenarios::Analysis analysis;
  analysis.target = "run.nanscope";
  analysis.diagnosis.completeness = {12, 90, true, "0/0/1/attn_norm"};
  analysis.diagnosis.spread.tokens = 3;
  analysis.diagnosis.coverage.outputs = analysis.diagnosis.coverage.judged = 12;
  const std::string html = html_report(analysis, nullptr, {});
  EXPECT_THAT(html, HasSubstr("the recording ended before the run did"));
  EXPECT_THAT(html, HasSubstr("12 of 90 ops are there, the last is 0/0/1/attn_norm"));
  EXPECT_THAT(html, Not(HasSubstr(">clean<")));
}

TEST(HtmlReport, ACleanRunSaysSo) {
  scenarios::Analysis analysis;
  analysis.target = "run.nanscope";
  analysis.diagnosis.spread.tokens = 31;
  analysis.diagnosis.coverage.outputs = analysis.diagnosis.coverage.judged = 31;
  const std::string html = html_report(analysis, nullptr, {});
  EXPECT_THAT(html, HasSubstr("clean, every output was recomputed and explained, 31 tokens"));
  EXPECT_THAT(html, Not(HasSubstr("But for which setting?")));
}

}  // namespace
}  // namespace nanscope::report
