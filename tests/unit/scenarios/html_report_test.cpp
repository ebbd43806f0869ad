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
  Link link;
  link.number = 4;
  link.title = evil;
  link.summary = evil;
  link.state = LinkState::found;
  link.where = root.where;
  analysis.cascade.links = {link};
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

TEST(HtmlReport, ACleanRunSaysSo) {
  scenarios::Analysis analysis;
  analysis.target = "run.nanscope";
  analysis.diagnosis.spread.tokens = 31;
  const std::string html = html_report(analysis, nullptr, {});
  EXPECT_THAT(html, HasSubstr("No fault found in 31 tokens."));
  EXPECT_THAT(html, Not(HasSubstr("But for which setting?")));
}

}  // namespace
}  // namespace nanscope::report
