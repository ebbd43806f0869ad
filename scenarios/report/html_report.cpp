#include "scenarios/report/html_report.h"

#include <fmt/format.h>

#include "core/counted.h"
#include "instrument/files/base64.h"
#include "scenarios/report/counterfactual_report.h"
#include "scenarios/report/junit.h"
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
.open .number { background: none; border: 1px solid var(--line); color: var(--dim); } .open { color: var(--dim); }
.place { color: var(--link); } figure { margin: 20px 0; } img { width: 100%; border-radius: 10px; }
figcaption { color: var(--dim); margin-top: 6px; } dl { display: grid; grid-template-columns: 90px 1fr; margin: 0; }
dt { color: var(--dim); } dd { margin: 0 0 8px; }
)";

std::string safe(std::string_view text) { return xml_escape(text); }

std::string place_html(const Where& where) {
  return fmt::format("<code class=\"place\">{}</code>", safe(place_text(where)));
}

std::string heading_html(const scenarios::Analysis& analysis) {
  const Diagnosis& diagnosis = analysis.diagnosis;
  const std::string verdict =
      diagnosis.clean() ? "<span class=\"good\">clean</span>"
      : diagnosis.root_cause
          ? fmt::format("<span class=\"bad\">{}</span>", safe(diagnosis.faults.at(*diagnosis.root_cause).fault_class))
          : "<span class=\"bad\">a fault without a root cause</span>";
  const RecordingCounts& counts = analysis.counts;
  return fmt::format(
      "<h1>{}: {}</h1>\n<p class=\"dim\">{} · {} {} · {}, {}, {} · recorded {} by nanscope {} · hash {:016x}</p>\n",
      safe(analysis.info.scenario.empty() ? analysis.target : analysis.info.scenario), verdict, safe(analysis.target),
      safe(analysis.info.device), safe(analysis.info.isa), counted(counts.requests, "request"),
      counted(counts.steps, "step"), counted(counts.ops, "op"), safe(analysis.info.created),
      safe(analysis.info.nanscope_version), analysis.digest);
}

std::string cause_html(const Diagnosis& diagnosis) {
  if (diagnosis.clean()) {
    return fmt::format("<div class=\"card\">No fault found in {}.</div>\n", counted(diagnosis.spread.tokens, "token"));
  }
  std::string html = "<div class=\"card\"><dl>";
  if (diagnosis.root_cause) {
    const Fault& fault = diagnosis.faults.at(*diagnosis.root_cause);
    html += fmt::format("<dt>Cause</dt><dd>{}<br>{}</dd>", safe(fault.summary), place_html(fault.where));
    html += fmt::format("<dt>Fix</dt><dd>{}</dd>", safe(fault.fix));
  }
  std::string later;
  for (std::size_t i = 0; i < diagnosis.faults.size(); ++i) {
    if (i == diagnosis.root_cause) continue;
    const Fault& fault = diagnosis.faults[i];
    later += fmt::format("{}{} at {}", later.empty() ? "" : "<br>", safe(fault.fault_class), place_html(fault.where));
  }
  if (!later.empty()) html += fmt::format("<dt>Then</dt><dd>{}</dd>", later);
  html += fmt::format("<dt>Spread</dt><dd>{} of {} hold a NaN or an Inf</dd>", diagnosis.spread.bad_tokens,
                      counted(diagnosis.spread.tokens, "token"));
  return html + "</dl></div>\n";
}

std::string requests_html(std::span<const scenarios::RequestOutcome> requests) {
  std::string html =
      "<h2>Requests</h2>\n<div class=\"scroll\"><table><tr><th class=\"right\">request</th><th>name</th>"
      "<th class=\"right\">tokens</th><th class=\"right\">of an image</th><th class=\"right\">cached</th><th></th>"
      "<th>answer</th></tr>\n";
  for (const scenarios::RequestOutcome& request : requests) {
    html += fmt::format(
        "<tr><td class=\"right\">{}</td><td>{}</td><td class=\"right\">{}</td><td class=\"right\">{}</td>"
        "<td class=\"right\">{}</td><td class=\"{}\">{}</td><td class=\"mono\">{}</td></tr>\n",
        request.row.id, safe(request.row.name), request.prompt_tokens, request.image_tokens, request.row.cached_tokens,
        request.nan_logits ? "bad" : "good", request.nan_logits ? "NaN" : "ok",
        safe(printable(request.row.output_text, {})));
  }
  return html + "</table></div>\n";
}

std::string cascade_html(const Cascade& cascade) {
  std::string html =
      fmt::format("<h2>The chain: {} of {} links found</h2>\n<ol>\n", cascade.found(), cascade.links.size());
  for (const Link& link : cascade.links) {
    const bool found = link.state == LinkState::found;
    html += fmt::format("<li{}><span class=\"number\">{}</span><b>{}</b> {}<br><span class=\"dim\">{}</span></li>\n",
                        found ? "" : " class=\"open\"", link.number, safe(link.title),
                        found ? place_html(link.where) : "not found", safe(link.summary));
  }
  return html + "</ol>\n";
}

std::string pictures_html(std::span<const Picture> pictures) {
  std::string html;
  for (const Picture& picture : pictures) {
    html += fmt::format(
        "<h2>{0}</h2>\n<figure><img alt=\"{0}\" src=\"data:image/png;base64,{1}\"><figcaption>{2}</figcaption>"
        "</figure>\n",
        safe(picture.title), to_base64(picture.png), safe(picture.caption));
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

std::string changes_html(const scenarios::Counterfactuals& changes) {
  std::string html = "<h2>But for which setting?</h2>\n<div class=\"scroll\"><table><tr>";
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
      ". \"breaks at\" is the first link of the chain that is gone. Errors are in logits of the last prompt token, "
      "top-1 over prompt tokens, both against a cache in f32 and over healthy requests.</p>\n";
  if (changes.minimal.empty()) return html;
  html += "<p>Smallest changes that prevent the fault: ";
  for (std::size_t i = 0; i < changes.minimal.size(); ++i) {
    html += fmt::format("{}<code>{}</code>", i == 0 ? "" : ", ", safe(changes.minimal[i].text()));
  }
  return html + "</p>\n";
}

}  // namespace

std::string html_report(const scenarios::Analysis& analysis, const scenarios::Counterfactuals* changes,
                        std::span<const Picture> pictures) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>nanscope: {}</title>\n"
      "<style>{}</style></head>\n<body>\n",
      safe(analysis.target), kStyle);
  html += heading_html(analysis) + cause_html(analysis.diagnosis) + requests_html(analysis.requests);
  html += pictures_html(pictures);
  if (pictures.empty() && analysis.front) {
    html += fmt::format("<h2>Front</h2>\n<pre class=\"scroll\">{}</pre>\n", safe(front_text(*analysis.front, {})));
  }
  html += cascade_html(analysis.cascade);
  if (changes != nullptr) html += changes_html(*changes);
  return html + "</body></html>\n";
}

}  // namespace nanscope::report
