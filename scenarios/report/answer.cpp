#include "scenarios/report/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "core/counted.h"
#include "core/numbers/format.h"
#include "scenarios/report/diagnosis_lines.h"
#include "scenarios/report/diagnosis_report.h"
#include "scenarios/report/why_report.h"

namespace nanscope::report {

namespace {

constexpr std::size_t kLines = 5;
constexpr int kLabel = 10;
/// Of a line of 100 columns.
constexpr int kColumns = 100 - kLabel;

struct Line {
  std::string_view label;  ///< kLabel wide
  std::string text;
};

std::size_t lines_of(const std::string& text) { return wrap(text, kColumns).size(); }

bool is_balanced(std::string_view text) {
  return std::count(text.begin(), text.end(), '(') == std::count(text.begin(), text.end(), ')');
}

/// Where the last clause of a text begins; npos: it is one clause.
std::size_t last_clause(std::string_view text) {
  for (std::size_t at = text.size(); at-- > 1;) {
    const bool ends = text[at] == ' ' && std::string_view(";:,").find(text[at - 1]) != std::string_view::npos;
    if (ends && is_balanced(text.substr(0, at))) return at - 1;
  }
  return std::string_view::npos;
}

/// The first clauses of a sentence, as many as `lines` hold; of one that is longer, its first words.
std::string first_clauses(const std::string& text, std::size_t lines, const Terminal& terminal) {
  if (lines_of(text) <= lines) return text;
  const std::string more = terminal.utf8 ? " …" : " ...";
  std::string kept = text;
  for (std::size_t end = last_clause(kept); end != std::string::npos; end = last_clause(kept)) {
    kept.resize(end);
    if (lines_of(kept + more) <= lines) return kept + more;
  }
  while (lines_of(kept + more) > lines) {
    const std::size_t word = kept.rfind(' ');
    if (word == std::string::npos) break;
    kept.resize(word);
  }
  return kept + more;
}

/// Lays out the lines; the one called `Cause` takes the room that the others leave.
Answer laid_out(std::vector<Line> lines, const Terminal& terminal) {
  std::size_t others = 0;
  for (const Line& line : lines) others += line.label == "Cause     " ? 0 : lines_of(line.text);
  Answer answer;
  for (Line& line : lines) {
    if (line.label == "Cause     ") {
      const std::size_t room = others < kLines ? kLines - others : 1;
      std::string shorter = first_clauses(line.text, room, terminal);
      answer.whole = shorter == line.text;
      line.text = std::move(shorter);
    }
    answer.text += paragraph(line.label, line.text, terminal);
  }
  return answer;
}

/// "3 of 5 requests answer from NaN", or how many tokens are bad.
std::string harm(const scenarios::Analysis& analysis) {
  if (!analysis.dumped()) {
    std::size_t asked = 0;
    std::size_t faulty = 0;
    for (const scenarios::RequestOutcome& request : analysis.requests) {
      if (request.row.id < 0) continue;
      ++asked;
      if (request.nan_logits) ++faulty;
    }
    if (faulty > 0)
      return fmt::format(", {} of {} {} from NaN", faulty, counted(asked, "request"),
                         faulty == 1 ? "answers" : "answer");
  }
  const Spread& spread = analysis.diagnosis.spread;
  // Of a few buffers it is not known which tokens they hold.
  if (spread.tokens == 0) return {};
  if (spread.bad_tokens == 0) return ", no token holds a NaN or an Inf";
  return fmt::format(", {}{} of {} tokens hold a NaN or an Inf", spread.at_least ? "at least " : "", spread.bad_tokens,
                     spread.tokens);
}

std::string judgement(const RunContext& context, const Terminal& terminal) {
  if (!context.judged) return {};
  if (context.missed.empty()) return "; " + paint(terminal, Ink::green, "as expected");
  return "; " + paint(terminal, Ink::red, "NOT as expected");
}

/// "2/0/1/kv_store.v_codes[7]: request 2, step 0, layer 1", or the name that the producer gave the tensor.
std::string place_words(const Fault& fault, const Terminal& terminal) {
  const std::string place = place_of(fault);
  std::string text = printable(place.substr(place.find(' ') + 1), terminal);
  const Where& where = fault.where;
  if (!fault.tensor.empty() && fault.tensor != tensor_text(where)) return text;
  if (where.request) text += fmt::format(": request {}", *where.request);
  if (where.request && where.step) text += fmt::format(", step {}", *where.step);
  if (where.request && where.layer) text += fmt::format(", layer {}", *where.layer);
  return text;
}

std::string first_missed(const std::vector<scenarios::Missed>& missed, const Terminal& terminal) {
  const scenarios::Missed& first = missed.front();
  std::string text = fmt::format("{}: {}, found {}", first.what, first.expected, first.found);
  if (missed.size() > 1) text += fmt::format(" (and {})", counted(missed.size() - 1, "more difference"));
  return printable(text, terminal);
}

std::vector<Line> lines_of_fault(const scenarios::Analysis& analysis, const RunContext& context,
                                 const std::string& name, const Terminal& terminal) {
  const Diagnosis& diagnosis = analysis.diagnosis;
  const std::size_t told = told_fault(diagnosis, context.accepted);
  const bool accepted = std::find(context.accepted.begin(), context.accepted.end(), told) != context.accepted.end();
  const Fault& fault = diagnosis.faults.at(told);
  std::string verdict = fmt::format("{}: {}{}{}", name, accepted ? "accepted: " : "",
                                    diagnosis.unread.empty() ? "" : paint(terminal, Ink::red, "damaged, "),
                                    paint(terminal, accepted ? Ink::yellow : Ink::red, fault.fault_class));
  if (diagnosis.faults.size() > 1) verdict += fmt::format(" (+{} more)", diagnosis.faults.size() - 1);
  std::vector<Line> lines = {{"Verdict   ", verdict + harm(analysis) + judgement(context, terminal)}};
  if (!context.missed.empty()) lines.push_back({"Expected  ", first_missed(context.missed, terminal)});
  lines.push_back({"Place     ", paint(terminal, Ink::cyan, place_words(fault, terminal))});
  lines.push_back({"Cause     ", printable(fault.summary, terminal)});
  if (fault.certainty == Certainty::possible) lines.push_back({"Certainty ", certainty_text(fault)});
  if (!fault.fix.empty()) lines.push_back({"Fix       ", printable(fault.fix, terminal)});
  return lines;
}

std::vector<Line> lines_without_fault(const scenarios::Analysis& analysis, const RunContext& context,
                                      const std::string& name, const Terminal& terminal) {
  const Diagnosis& diagnosis = analysis.diagnosis;
  const std::string verdict = paint(terminal, verdict_ink(diagnosis), printable(verdict_words(diagnosis), terminal));
  std::vector<Line> lines = {{"Verdict   ", fmt::format("{}: {}{}", name, verdict, judgement(context, terminal))}};
  if (!context.missed.empty()) lines.push_back({"Expected  ", first_missed(context.missed, terminal)});
  if (!diagnosis.unread.empty()) lines.push_back({"Not read  ", printable(unread_text(diagnosis), terminal)});
  if (diagnosis.completeness.interrupted)
    lines.push_back({"Reached   ", printable(progress_text(diagnosis.completeness), terminal)});
  lines.push_back({"Coverage  ", printable(coverage_text(diagnosis), terminal)});
  if (!diagnosis.coverage.next_step.empty())
    lines.push_back({"Next      ", printable(diagnosis.coverage.next_step, terminal)});
  lines.push_back({"Checked   ", printable(checks_summary(diagnosis), terminal)});
  return lines;
}

std::string element_words(const Hop& hop, const Terminal& terminal) {
  const std::string place = place_text(hop.where);
  const std::string tensor = tensor_text(hop.where);
  const bool named = !hop.tensor.empty() && hop.tensor != tensor;
  return printable(named ? hop.tensor + place.substr(tensor.size()) : place, terminal);
}

/// The setting where the way ends at one, else what the origin says of itself.
std::string cause_of(const WhyPath& path) {
  const Hop& last = path.hops.back();
  if (last.kind == HopKind::scale && path.hops.size() > 1) return last.text;
  return path.origin ? path.hops[*path.origin].text : path.conclusion;
}

}  // namespace

Answer answer(const scenarios::Analysis& analysis, const RunContext& context, const Terminal& terminal) {
  const std::string& named = context.command == "run" ? analysis.info.scenario : analysis.target;
  const std::string name = paint(terminal, Ink::bold, printable(named, terminal));
  return laid_out(analysis.diagnosis.faults.empty() ? lines_without_fault(analysis, context, name, terminal)
                                                    : lines_of_fault(analysis, context, name, terminal),
                  terminal);
}

Answer answer(const WhyPath& path, const Fault* fault, const Terminal& terminal) {
  if (path.hops.empty()) return {};
  const Hop& asked = path.hops.front();
  std::string verdict = paint(terminal, Ink::bold, element_words(asked, terminal));
  if (asked.code && asked.value) {
    verdict += fmt::format(
        " is {} {}", name(asked.format),
        paint(terminal, asked.bad ? Ink::red : Ink::green, value_and_bits(asked.format, *asked.value, *asked.code)));
  }
  verdict += fmt::format("; the way back has {}", counted(path.hops.size(), "hop"));
  std::vector<Line> lines = {{"Verdict   ", verdict}};
  if (path.origin) {
    const std::string back = *path.origin == 0 ? "here" : counted(*path.origin, "hop") + " back";
    const std::string origin = paint(terminal, Ink::cyan, element_words(path.hops[*path.origin], terminal));
    lines.push_back({"Place     ", fmt::format("born {}, in {}", back, origin)});
  } else if (!path.stopped.empty()) {
    lines.push_back({"Place     ", printable("where it was born is not on the way: " + path.stopped, terminal)});
  }
  if (const std::string cause = cause_of(path); !cause.empty()) {
    const std::string lead = fault != nullptr ? fault->fault_class + ": " : "";
    lines.push_back({"Cause     ", printable(lead + cause, terminal)});
  }
  if (fault != nullptr && !fault->fix.empty()) lines.push_back({"Fix       ", printable(fault->fix, terminal)});
  return laid_out(std::move(lines), terminal);
}

const Fault* fault_behind(const WhyPath& path, const Diagnosis& diagnosis) {
  const auto shows = [](const Fault& fault, const Hop& hop) {
    return hop.where.op_id != 0 && std::find(fault.ops.begin(), fault.ops.end(), hop.where.op_id) != fault.ops.end();
  };
  for (auto hop = path.hops.rbegin(); hop != path.hops.rend(); ++hop) {
    const auto root = std::find_if(diagnosis.faults.begin(), diagnosis.faults.end(),
                                   [&](const Fault& fault) { return !fault.because && shows(fault, *hop); });
    if (root != diagnosis.faults.end()) return &*root;
  }
  for (auto hop = path.hops.rbegin(); hop != path.hops.rend(); ++hop) {
    const auto any = std::find_if(diagnosis.faults.begin(), diagnosis.faults.end(),
                                  [&](const Fault& fault) { return shows(fault, *hop); });
    if (any != diagnosis.faults.end()) return &*any;
  }
  return nullptr;
}

}  // namespace nanscope::report
