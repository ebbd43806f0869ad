#include "scenarios/report/html_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "instrument/files/base64.h"
#include "scenarios/report/counterfactual_report.h"
#include "scenarios/report/diagnosis_report.h"
#include "scenarios/report/run_report.h"
#include "scenarios/report/text.h"

namespace nanscope::report {

namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1a2129; --dim: #5b6673; --line: #d5dbe2; --card: #f5f7f9; --bad: #c81e4a;
  --good: #1b7a4b; --link: #1f5fa8; --page: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8edf3; --dim: #97a3b1; --line: #2c3540; --card: #1b222b;
  --bad: #ff5c7f; --good: #56c98d; --link: #6cb2ff; --page: #12171d; } }
body { margin: 0 auto; max-width: 1080px; padding: 32px 24px 64px; background: var(--page); color: var(--ink);
  font: 15px/1.5 "DejaVu Sans", "Segoe UI", system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 40px 0 12px; }
.dim { color: var(--dim); } .bad { color: var(--bad); } .good { color: var(--good); }
code, pre, .mono { font-family: "DejaVu Sans Mono", ui-monospace, monospace; font-size: 13px; }
.card { background: var(--card); border-radius: 10px; padding: 16px 20px; margin: 16px 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--dim); font-size: 13px; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.right, th.right { text-align: right; white-space: nowrap; } tr.group td { font-weight: 600; padding-top: 18px; }
ol { padding: 0; list-style: none; } ol > li { position: relative; padding: 0 0 16px 44px; }
.number { position: absolute; left: 0; top: 0; width: 28px; height: 28px; border-radius: 14px; text-align: center;
  line-height: 28px; background: var(--bad); color: var(--page); font-size: 13px; font-weight: 600; }
.place { color: var(--link); } figure { margin: 20px 0; } img { display: block; width: 100%; height: auto; border-radius: 10px; }
figcaption { color: var(--dim); margin-top: 6px; } dl { display: grid; grid-template-columns: 90px 1fr; margin: 0; }
dt { color: var(--dim); } dd { margin: 0 0 8px; overflow-wrap: anywhere; }
@media (max-width: 640px) { body { padding: 20px 14px 40px; } h1 { font-size: 21px; overflow-wrap: anywhere; }
  .card { padding: 12px 14px; } dl { grid-template-columns: 1fr; } dd { margin: 0 0 12px; } li { overflow-wrap: anywhere; }
  .minor { display: none; } th, td { padding-right: 8px; } }
@media print { :root { color-scheme: light; --ink: #1a2129; --dim: #5b6673; --line: #d5dbe2; --card: #f5f7f9;
  --bad: #c81e4a; --good: #1b7a4b; --link: #1f5fa8; --page: #ffffff; } figure, li { break-inside: avoid; } }
)";

std::string safe(std::string_view text) { return xml_text(printable(text, {})); }

std::string place_html(const std::string& place) {
  return place.empty() ? std::string() : fmt::format("<code class=\"place\">{}</code>", safe(place));
}

std::string heading_html(const scenarios::Analysis& analysis) {
  const Diagnosis& diagnosis = analysis.diagnosis;
  const bool good = diagnosis.verdict() == Verdict::clean;
  const std::string words = diagnosis.verdict() != Verdict::fault ? std::string(name(diagnosis.verdict()))
                            : diagnosis.root_cause ? diagnosis.faults.at(*diagnosis.root_cause).fault_class
                                                   : std::string("a fault without a root cause");
  const std::string verdict = fmt::format("<span class=\"{}\">{}</span>", good ? "good" : "bad", safe(words));
  const RecordingCounts& counts = analysis.counts;
  const std::string made = analysis.dumped() ? std::string("of a dump")
                                             : fmt::format("recorded {} by nanscope {}", safe(analysis.info.created),
                                                           safe(analysis.info.nanscope_version));
  return fmt::format("<h1>{}: {}</h1>\n<p class=\"dim\">{} · {} {}{} · {}, {}, {} · {}{}</p>\n",
                     safe(analysis.info.scenario.empty() ? analysis.target : analysis.info.scenario), verdict,
                     safe(analysis.target), safe(analysis.info.device), safe(analysis.info.isa),
                     kernel_form_text(analysis.info), counted(counts.requests, "request"),
                     counted(counts.steps, "step"), counted(counts.ops, "op"), made,
                     analysis.digest ? fmt::format(" · hash {:016x}", *analysis.digest) : std::string());
}

std::string item_html(std::string_view term, const std::string& html) {
  return html.empty() ? std::string() : fmt::format("<dt>{}</dt><dd>{}</dd>", term, html);
}

/// Consequences of other faults, or with `roots` what is independent of the root cause.
std::string others_html(const Diagnosis& diagnosis, bool roots) {
  std::string html;
  for (std::size_t i = 0; i < diagnosis.faults.size(); ++i) {
    const Fault& fault = diagnosis.faults[i];
    if (i == diagnosis.root_cause || fault.because.has_value() == roots) continue;
    html += fmt::format("{}{} {}<br><span class=\"dim\">{}</span>", html.empty() ? "" : "<br>", safe(fault.fault_class),
                        place_html(place_of(fault)), safe(roots ? fault.summary : reason_text(diagnosis, i)));
  }
  return html;
}

std::string cause_html(const Diagnosis& diagnosis) {
  std::string html = "<div class=\"card\"><dl>";
  if (diagnosis.faults.empty()) html += item_html("Verdict", safe(verdict_words(diagnosis)));
  if (!diagnosis.unread.empty()) html += item_html("Not read", safe(unread_text(diagnosis)));
  if (diagnosis.completeness.interrupted) html += item_html("Cut off", safe(progress_text(diagnosis.completeness)));
  if (diagnosis.root_cause) {
    const Fault& fault = diagnosis.faults.at(*diagnosis.root_cause);
    html += item_html("Cause", safe(fault.summary) + "<br>" + place_html(place_of(fault)));
    html += item_html("Certainty", certainty_text(fault));
    if (!fault.fix.empty()) html += item_html("Fix", safe(fault.fix));
    if (!fault.settings.empty()) html += item_html("Avoid by", safe(settings_text(fault)));
  }
  html += item_html("Then", others_html(diagnosis, false)) + item_html("Also", others_html(diagnosis, true));
  if (!diagnosis.faults.empty()) {
    html +=
        item_html("Spread", fmt::format("{}{} of {} hold a NaN or an Inf", diagnosis.spread.at_least ? "at least " : "",
                                        diagnosis.spread.bad_tokens, counted(diagnosis.spread.tokens, "token")));
  }
  html += item_html("Coverage", safe(coverage_text(diagnosis)));
  html += item_html("Unjudged", safe(gaps_text(diagnosis)));
  html += item_html("Next", safe(diagnosis.coverage.next_step));
  for (const Warning& warning : diagnosis.warnings) {
    html += item_html("Warning", fmt::format("{}: {}<br><span class=\"dim\">{}</span>", safe(warning.kind),
                                             safe(warning.summary), safe(warning.advice)));
  }
  return html + "</dl></div>\n";
}

/// The figure of a check says why its class is excluded; what was found is told by its first fault.
std::string check_text(const Diagnosis& diagnosis, const Check& check) {
  const auto fault = std::find_if(diagnosis.faults.begin(), diagnosis.faults.end(),
                                  [&](const Fault& one) { return one.fault_class == check.fault_class; });
  return safe(check.state == Checked::found && fault != diagnosis.faults.end() ? fault->summary : check.text);
}

std::string checks_html(const Diagnosis& diagnosis) {
  std::string html = "<h2>What was looked for</h2>\n<div class=\"scroll\"><table>";
  for (const Check& check : diagnosis.checks) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", safe(check.fault_class), name(check.state),
                        check_text(diagnosis, check));
  }
  html += "</table></div>\n";
  if (diagnosis.notes.empty()) return html;
  html += "<h2>Notes</h2>\n<ul>";
  for (const RunNote& note : diagnosis.notes)
    html += fmt::format("<li>{}</li>\n", safe(note.tensor.empty() ? note.text : note.tensor + ": " + note.text));
  return html + "</ul>\n";
}

std::string requests_html(std::span<const scenarios::RequestOutcome> requests) {
  std::string html =
      "<h2>Requests</h2>\n<div class=\"scroll\"><table><tr><th class=\"right\">request</th><th>name</th>"
      "<th class=\"right\">tokens</th><th class=\"right minor\">of an image</th><th class=\"right "
      "minor\">cached</th><th></th>"
      "<th>answer</th></tr>\n";
  for (const scenarios::RequestOutcome& request : requests) {
    html += fmt::format(
        "<tr><td class=\"right\">{}</td><td>{}</td><td class=\"right\">{}</td><td class=\"right minor\">{}</td>"
        "<td class=\"right minor\">{}</td><td class=\"{}\">{}</td><td class=\"mono\">{}</td></tr>\n",
        request.row.id, safe(request.row.name), request.prompt_tokens, request.image_tokens, request.row.cached_tokens,
        request.nan_logits ? "bad" : "good", request.nan_logits ? "NaN" : "ok", safe(request.row.output_text));
  }
  return html + "</table></div>\n";
}

std::string chain_html(const Diagnosis& diagnosis) {
  if (diagnosis.chain.empty()) return {};
  std::string html = fmt::format("<h2>The chain: {}</h2>\n<ol>\n", counted(diagnosis.chain.size(), "event"));
  for (std::size_t i = 0; i < diagnosis.chain.size(); ++i) {
    const Event& event = diagnosis.chain[i];
    html += fmt::format("<li><span class=\"number\">{}</span><b>{}</b> {}<br><span class=\"dim\">{}</span></li>\n",
                        i + 1, safe(event.kind), place_html(place_of(event)), safe(event.text));
  }
  return html + "</ol>\n";
}

/// A phone shows the narrow picture, in which the words are larger.
std::string narrow_html(const Picture& picture) {
  if (picture.narrow.empty()) return {};
  return fmt::format("<source media=\"(max-width: 640px)\" srcset=\"data:image/png;base64,{}\">",
                     to_base64(picture.narrow));
}

std::string pictures_html(std::span<const Picture> pictures) {
  std::string html;
  for (const Picture& picture : pictures) {
    html += fmt::format(
        "<h2>{0}</h2>\n<figure><picture>{3}<img alt=\"{0}\" src=\"data:image/png;base64,{1}\"></picture>"
        "<figcaption>{2}</figcaption></figure>\n",
        safe(picture.title), to_base64(picture.png), safe(picture.caption), narrow_html(picture));
  }
  return html;
}

std::string row_html(const std::vector<std::string>& cells) {
  std::string html = "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    html += fmt::format("<td class=\"{}\">{}</td>", i == 0 ? "mono" : "right", safe(cells[i]));
  }
  return html + "</tr>\n";
}

std::string recommended_html(const scenarios::Counterfactuals& changes) {
  std::string html = "<div class=\"card\"><b>Recommended</b><dl>";
  for (const RecommendedItem& one : recommended_items(changes)) html += item_html(one.term, safe(one.text));
  if (changes.stopped)
    html += item_html("Stopped", fmt::format("after {} of {}", changes.runs, counted(changes.planned, "run")));
  return html + "</dl></div>\n";
}

std::string changes_html(const scenarios::Counterfactuals& changes) {
  std::string html = "<h2>But for which setting?</h2>\n" + recommended_html(changes);
  html += "<div class=\"scroll\"><table><tr>";
  for (const std::string& title : counterfactual_titles()) {
    html +=
        fmt::format("<th{}>{}</th>", title == counterfactual_titles().front() ? "" : " class=\"right\"", safe(title));
  }
  html += "</tr>\n";
  const std::vector<CounterfactualRow> rows = counterfactual_rows(changes);
  std::optional<scenarios::Effect> group;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0 && group != rows[i].effect) {
      group = rows[i].effect;
      html += fmt::format("<tr class=\"group\"><td colspan=\"{}\">{}</td></tr>\n", rows[i].cells.size(),
                          safe(to_string(*group)));
    }
    html += row_html(rows[i].cells);
  }
  html += "</table></div>\n<p class=\"dim\">Each line is the run again with one setting changed, in ";
  html += counted(changes.runs, "run");
  html +=
      ". \"breaks at\" is the first event of the chain that is gone. Errors are in logits of the last prompt token, "
      "top-1 over prompt tokens, both against a cache in f32 and over healthy requests.</p>\n";
  return html;
}

}  // namespace

std::string html_report(const scenarios::Analysis& analysis, const scenarios::Counterfactuals* changes,
                        std::span<const Picture> pictures, std::string_view left_out, std::string_view section) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>nanscope: {}</title>\n"
      "<style>{}</style></head>\n<body>\n",
      safe(analysis.target), kStyle);
  html += heading_html(analysis) + cause_html(analysis.diagnosis);
  if (!analysis.dumped()) html += requests_html(analysis.requests);
  html += pictures_html(pictures);
  if (pictures.empty() && analysis.front) {
    html += fmt::format("<h2>Front</h2>\n<pre class=\"scroll\">{}</pre>\n", xml_text(front_text(*analysis.front, {})));
  }
  html += chain_html(analysis.diagnosis);
  if (changes != nullptr) html += changes_html(*changes);
  if (!left_out.empty()) html += fmt::format("<h2>But for which setting?</h2>\n<p>{}</p>\n", safe(left_out));
  html += section;
  html += checks_html(analysis.diagnosis);
  return html + "</body></html>\n";
}

}  // namespace nanscope::report
