#include "scenarios/report/diagnosis_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/counted.h"

namespace nanscope::report {

namespace {

constexpr std::size_t kFaultsShown = 8;
constexpr std::size_t kEvidenceShown = 8;
constexpr std::size_t kNotesShown = 6;
constexpr std::size_t kGapsShown = 3;
constexpr std::size_t kUnreadShown = 3;
constexpr std::string_view kMargin = "          ";

/// What becomes of a check, with the word that stands before its block.
struct State {
  Checked state;
  std::string_view lead;
};
constexpr std::array kStates = {State{Checked::excluded, "Excluded  "}, State{Checked::not_in_dump, "Not there "},
                                State{Checked::not_looked_at, "Not seen  "}};

std::string evidence_text(const std::vector<Evidence>& evidence, const Terminal& terminal) {
  std::vector<std::string> parts;
  for (const Evidence& item : evidence) {
    if (parts.size() == kEvidenceShown) break;
    parts.push_back(fmt::format("{} {}", item.name, printable(to_string(item.value), terminal)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// "kv-scale-locked at 2/0/1/kv_store.v_codes[7]", "f16-overflow in layers.3.mlp.down_proj.output, tokens 3 to 5".
std::string fault_line(const Fault& fault, const Terminal& terminal) {
  return fmt::format("{} {}", paint(terminal, Ink::bold, fault.fault_class), printable(place_of(fault), terminal));
}

std::string cause_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  if (!diagnosis.root_cause) return {};
  const Fault& cause = diagnosis.faults.at(*diagnosis.root_cause);
  std::string block = paragraph("Cause     ", fault_line(cause, terminal), terminal);
  block += paragraph(kMargin, printable(cause.summary, terminal), terminal);
  if (!cause.evidence.empty()) block += paragraph(kMargin, evidence_text(cause.evidence, terminal), terminal);
  block += paragraph("Certainty ", certainty_text(cause), terminal);
  if (!cause.fix.empty()) block += paragraph("Fix       ", printable(cause.fix, terminal), terminal);
  if (!cause.settings.empty()) block += paragraph("Avoid by  ", settings_text(cause), terminal);
  return block;
}

/// Consequences, or with `roots` what is independent of the root cause.
std::string others_text(const Diagnosis& diagnosis, bool roots, const Terminal& terminal) {
  std::string block;
  std::size_t shown = 0;
  std::size_t left = 0;
  for (std::size_t i = 0; i < diagnosis.faults.size(); ++i) {
    const Fault& fault = diagnosis.faults[i];
    if (diagnosis.root_cause == i || fault.because.has_value() == roots) continue;
    if (shown == kFaultsShown) {
      ++left;
      continue;
    }
    const std::string_view lead = shown++ > 0 ? kMargin : roots ? "Also      " : "Then      ";
    const std::string tail = roots ? printable(fault.summary, terminal) : reason_text(diagnosis, i);
    block += paragraph(lead, fmt::format("{}{} {}", fault_line(fault, terminal), roots ? ":" : ",", tail), terminal);
  }
  if (left > 0) block += fmt::format("{}and {} (--format json lists them)\n", kMargin, counted(left, "more fault"));
  return block;
}

std::string spread_text(const Spread& spread, const Terminal& terminal) {
  std::string block;
  if (!spread.first_bad_tensor.empty())
    block += paragraph("First bad ", printable(spread.first_bad_tensor, terminal), terminal);
  return block + fmt::format("Spread    {}{} of {} tokens hold a NaN or an Inf\n", spread.at_least ? "at least " : "",
                             spread.bad_tokens, spread.tokens);
}

/// What a fault led to, what is independent of it, and how far it got.
std::string consequences_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  std::string block = others_text(diagnosis, false, terminal) + others_text(diagnosis, true, terminal) +
                      spread_text(diagnosis.spread, terminal);
  if (diagnosis.completeness.interrupted)
    block += paragraph("Cut off   ", printable(progress_text(diagnosis.completeness), terminal), terminal);
  return block;
}

std::string coverage_block(const Diagnosis& diagnosis, const Terminal& terminal) {
  std::string block;
  if (!diagnosis.unread.empty())
    block += paragraph("Not read  ", printable(unread_text(diagnosis), terminal), terminal);
  block += paragraph("Coverage  ", printable(coverage_text(diagnosis), terminal), terminal);
  const std::string gaps = gaps_text(diagnosis);
  if (!gaps.empty()) block += paragraph("Unjudged  ", printable(gaps, terminal), terminal);
  if (!diagnosis.coverage.next_step.empty())
    block += paragraph("Next      ", printable(diagnosis.coverage.next_step, terminal), terminal);
  return block;
}

std::string tokens_clause(const Where& where) {
  if (!where.tokens) return {};
  if (where.tokens->first == where.tokens->last) return fmt::format(", token {}", where.tokens->first);
  return fmt::format(", tokens {} to {}", where.tokens->first, where.tokens->last);
}

/// By the producer's name where it has one, which no place starts like.
std::string place_by_name(const std::string& tensor, const Where& where) {
  const std::string place = tensor_text(where);
  if (tensor.empty() || tensor == place) return "at " + place_text(where);
  return "in " + tensor + tokens_clause(where);
}

std::string checks_markdown(const Diagnosis& diagnosis) {
  std::string text = "\n| class | looked for | |\n|---|---|---|\n";
  for (const Check& check : diagnosis.checks) {
    if (check.state != Checked::found)
      text += fmt::format("| {} | {} | {} |\n", check.fault_class, name(check.state), markdown_cell(check.text));
  }
  return text;
}

}  // namespace

std::string settings_text(const Fault& fault) {
  std::vector<std::string> each;
  for (const ServerSetting& one : fault.settings) each.push_back(fmt::format("{} {}", one.server, one.setting));
  return fmt::format("{}", fmt::join(each, ", "));
}

std::string certainty_text(const Fault& fault) {
  switch (fault.certainty) {
    case Certainty::possible:
      return "possible: the values fit it and do not exclude other causes";
    case Certainty::shown:
      return "shown: the values fit it and no other cause that nanscope knows";
    case Certainty::proved:
      return "proved: counted in the values, or recomputed from them within the bound of rounding";
  }
  return {};
}

Ink verdict_ink(const Diagnosis& diagnosis) {
  switch (diagnosis.verdict()) {
    case Verdict::clean:
      return Ink::green;
    case Verdict::fault:
    case Verdict::damaged:
      return Ink::red;
    default:
      return Ink::yellow;
  }
}

std::string place_of(const Fault& fault) { return place_by_name(fault.tensor, fault.where); }

std::string place_of(const Event& event) {
  return event.where.op.empty() && event.tensor.empty() ? std::string() : place_by_name(event.tensor, event.where);
}

std::string coverage_text(const Diagnosis& diagnosis) {
  const Coverage& coverage = diagnosis.coverage;
  const Recomputation& made = diagnosis.recomputation;
  std::string text = fmt::format("{} of {} recomputed", coverage.judged, counted(coverage.outputs, "output"));
  if (coverage.in_part > 0) text += fmt::format(" ({} in part)", coverage.in_part);
  if (made.elements > 0) {
    const double share = 100.0 * static_cast<double>(made.explained) / static_cast<double>(made.elements);
    text += fmt::format(", {:.6g} % of {} explained by rounding", share, counted(made.elements, "element"));
  }
  if (coverage.unknown_names > 0)
    text += fmt::format("; {} with unknown names", counted(coverage.unknown_names, "tensor"));
  if (coverage.not_looked_at > 0) text += fmt::format("; {} not looked at", counted(coverage.not_looked_at, "tensor"));
  if (coverage.absent > 0) {
    text += fmt::format("; {} absent that every other step has: {}", counted(coverage.absent, "tensor"),
                        coverage.first_absent);
  }
  return text;
}

std::string verdict_words(const Diagnosis& diagnosis) {
  const Coverage& coverage = diagnosis.coverage;
  const std::string tokens = counted(diagnosis.spread.tokens, "token");
  switch (diagnosis.verdict()) {
    case Verdict::fault:
      return "fault";
    case Verdict::damaged:
      return fmt::format("damaged, {} could not be read",
                         counted(static_cast<std::int64_t>(diagnosis.unread.size()), "part"));
    case Verdict::clean:
      return fmt::format("clean, every output was recomputed and explained, {}", tokens);
    case Verdict::nothing_to_judge:
      break;
    case Verdict::no_fault_found:
      std::string words = fmt::format("no fault found in {}", tokens);
      if (diagnosis.completeness.interrupted) words += "; the recording ended before the run did";
      if (coverage.judged < coverage.outputs) {
        words += fmt::format("; {} of {} could not be judged", coverage.outputs - coverage.judged,
                             counted(coverage.outputs, "output"));
      } else if (coverage.in_part > 0) {
        words += fmt::format("; {} could be judged only in part", counted(coverage.in_part, "output"));
      }
      return words;
  }
  if (diagnosis.completeness.read == 0) return "nothing to judge, it holds no op and no tensor";
  if (coverage.outputs == 0)
    return "nothing to judge, it holds weights and no activation: nanscope inspect is for checkpoints";
  if (coverage.unknown_names >= coverage.outputs) {
    return fmt::format("nothing to judge, no name of {} is known; no element is NaN or Inf",
                       counted(coverage.outputs, "tensor"));
  }
  return fmt::format("nothing to judge, none of {} could be recomputed and no token is known",
                     counted(coverage.outputs, "output"));
}

std::string gaps_text(const Diagnosis& diagnosis) {
  const std::vector<Coverage::Gap>& gaps = diagnosis.coverage.gaps;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(gaps.size(), kGapsShown); ++i) {
    parts.push_back(fmt::format("{} ({}): {}", gaps[i].outputs, gaps[i].example, gaps[i].reason));
  }
  if (gaps.size() > kGapsShown)
    parts.push_back(counted(static_cast<std::int64_t>(gaps.size() - kGapsShown), "more reason"));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string unread_text(const Diagnosis& diagnosis) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(diagnosis.unread.size(), kUnreadShown); ++i) {
    const UnreadPart& part = diagnosis.unread[i];
    parts.push_back(part.name.empty() ? part.text : part.name + ": " + part.text);
  }
  if (diagnosis.unread.size() > kUnreadShown) {
    parts.push_back(counted(static_cast<std::int64_t>(diagnosis.unread.size() - kUnreadShown), "more part") +
                    " (--format json lists them)");
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string reason_text(const Diagnosis& diagnosis, std::size_t fault) {
  const std::optional<std::size_t> because = diagnosis.faults.at(fault).because;
  if (!because) return "nothing that was found led to it";
  const Fault& cause = diagnosis.faults.at(*because);
  return fmt::format("because of {} {}", cause.fault_class, printable(place_of(cause), {}));
}

std::string progress_text(const Completeness& completeness) {
  const std::string expected = completeness.expected > 0
                                   ? fmt::format("{} of {}", completeness.read, counted(completeness.expected, "op"))
                                   : counted(completeness.read, "op");
  return completeness.reached.empty() ? fmt::format("{} are there", expected)
                                      : fmt::format("{} are there, the last is {}", expected, completeness.reached);
}

std::string diagnosis_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  std::string block;
  if (diagnosis.verdict() != Verdict::fault) {
    block = paragraph("Verdict   ",
                      paint(terminal, verdict_ink(diagnosis), printable(verdict_words(diagnosis), terminal)), terminal);
    if (diagnosis.completeness.interrupted)
      block += paragraph("Reached   ", printable(progress_text(diagnosis.completeness), terminal), terminal);
  }
  if (!diagnosis.faults.empty()) block += cause_text(diagnosis, terminal) + consequences_text(diagnosis, terminal);
  return block + coverage_block(diagnosis, terminal);
}

std::string details_text(const Diagnosis& diagnosis, bool cause_too, const Terminal& terminal) {
  std::string block;
  if (diagnosis.root_cause) {
    const Fault& cause = diagnosis.faults.at(*diagnosis.root_cause);
    if (cause_too) block += paragraph("Cause     ", printable(cause.summary, terminal), terminal);
    if (!cause.evidence.empty()) block += paragraph("Evidence  ", evidence_text(cause.evidence, terminal), terminal);
    if (cause.certainty != Certainty::possible) block += paragraph("Certainty ", certainty_text(cause), terminal);
  }
  if (!diagnosis.faults.empty()) block += consequences_text(diagnosis, terminal);
  return block + coverage_block(diagnosis, terminal);
}

std::string chain_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  Terminal inner = terminal;
  inner.width = terminal.width - 2;
  std::string block;
  for (std::size_t i = 0; i < diagnosis.chain.size(); ++i) {
    const Event& event = diagnosis.chain[i];
    const std::string mark = paint(terminal, event.fault ? Ink::red : Ink::yellow, terminal.utf8 ? "●" : "x");
    const std::string title = fmt::format("  {:>2} {} {}", i + 1, mark, event.kind);
    const std::string place = printable(place_of(event), terminal);
    const int gap = terminal.width - display_width(title) - display_width(place);
    block += title;
    if (gap >= 2) block += std::string(static_cast<std::size_t>(gap), ' ') + paint(terminal, Ink::cyan, place);
    block += '\n';
    if (gap < 2) block += paragraph("       ", paint(terminal, Ink::cyan, place), inner);
    if (!event.text.empty()) block += paragraph("       ", printable(event.text, terminal), inner);
  }
  return block;
}

std::string checks_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  std::string block;
  for (const State& state : kStates) {
    // Where no activation is there, it is no news that each kind of it is not.
    if (state.state == Checked::not_in_dump && diagnosis.coverage.outputs == 0) continue;
    bool led = false;
    for (const Check& check : diagnosis.checks) {
      if (check.state != state.state) continue;
      block += paragraph(led ? kMargin : state.lead,
                         fmt::format("{}: {}", check.fault_class, printable(check.text, terminal)), terminal);
      led = true;
    }
  }
  return block;
}

std::string warnings_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  std::string block;
  for (const Warning& warning : diagnosis.warnings) {
    std::string text =
        fmt::format("{}: {}", paint(terminal, Ink::yellow, warning.kind), printable(warning.summary, terminal));
    if (warning.more > 0) text += fmt::format(" ({} less so)", counted(warning.more, "more tensor"));
    block += paragraph(block.empty() ? "Warning   " : kMargin, text, terminal);
    block += paragraph(kMargin, printable(warning.advice, terminal), terminal);
  }
  return block;
}

std::string notes_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  std::string block;
  const std::vector<RunNote>& notes = diagnosis.notes;
  for (std::size_t i = 0; i < std::min(notes.size(), kNotesShown); ++i) {
    const std::string text = notes[i].tensor.empty() ? notes[i].text : notes[i].tensor + ": " + notes[i].text;
    block += paragraph(i == 0 ? "Note      " : kMargin, printable(text, terminal), terminal);
  }
  if (notes.size() > kNotesShown)
    block +=
        fmt::format("{}and {} (--format json lists them)\n", kMargin, counted(notes.size() - kNotesShown, "more note"));
  return block;
}

std::string markdown_cell(std::string_view text) { return markdown_text(printable(text, {})); }

std::string diagnosis_markdown(const Diagnosis& diagnosis) {
  std::string text;
  if (diagnosis.verdict() != Verdict::fault)
    text += fmt::format("**Verdict:** {}.\n\n", markdown_cell(verdict_words(diagnosis)));
  if (!diagnosis.unread.empty()) text += fmt::format("**Not read:** {}\n\n", markdown_cell(unread_text(diagnosis)));
  if (diagnosis.completeness.interrupted)
    text += fmt::format("**Reached:** {}\n\n", markdown_cell(progress_text(diagnosis.completeness)));
  if (diagnosis.root_cause) {
    const Fault& cause = diagnosis.faults.at(*diagnosis.root_cause);
    text += fmt::format("**{}** {}: {}\n\n**Certainty:** {}\n\n", cause.fault_class, markdown_cell(place_of(cause)),
                        markdown_cell(cause.summary), certainty_text(cause));
    if (!cause.fix.empty()) text += fmt::format("**Fix:** {}\n\n", markdown_cell(cause.fix));
    if (!cause.settings.empty()) text += fmt::format("**Avoid by:** {}\n\n", markdown_cell(settings_text(cause)));
    text += "| evidence | |\n|---|---|\n";
    for (const Evidence& item : cause.evidence)
      text += fmt::format("| {} | {} |\n", markdown_cell(item.name), markdown_cell(to_string(item.value)));
    text += fmt::format("\nFirst bad tensor {}; {}{} of {} tokens hold a NaN or an Inf.\n",
                        markdown_cell(diagnosis.spread.first_bad_tensor), diagnosis.spread.at_least ? "at least " : "",
                        diagnosis.spread.bad_tokens, diagnosis.spread.tokens);
  }
  if (diagnosis.faults.size() > 1) {
    text += "\n| fault | where | because | what |\n|---|---|---|---|\n";
    for (std::size_t i = 0; i < diagnosis.faults.size(); ++i) {
      const Fault& fault = diagnosis.faults[i];
      const std::string because = fault.because ? diagnosis.faults.at(*fault.because).fault_class : std::string();
      text += fmt::format("| {} | {} | {} | {} |\n", fault.fault_class, markdown_cell(place_of(fault)), because,
                          markdown_cell(fault.summary));
    }
  }
  if (!diagnosis.chain.empty()) {
    text += "\n| event | | where | |\n|--:|---|---|---|\n";
    for (std::size_t i = 0; i < diagnosis.chain.size(); ++i) {
      const Event& event = diagnosis.chain[i];
      text += fmt::format("| {} | {} | {} | {} |\n", i + 1, event.kind, markdown_cell(place_of(event)),
                          markdown_cell(event.text));
    }
  }
  for (const Warning& warning : diagnosis.warnings)
    text +=
        fmt::format("\n**{}**: {} {}\n", warning.kind, markdown_cell(warning.summary), markdown_cell(warning.advice));
  text += fmt::format("\n{}.\n", markdown_cell(coverage_text(diagnosis)));
  if (const std::string gaps = gaps_text(diagnosis); !gaps.empty())
    text += fmt::format("\nNot judged: {}.\n", markdown_cell(gaps));
  text += checks_markdown(diagnosis);
  for (const RunNote& note : diagnosis.notes)
    text += fmt::format("\n- {}", markdown_cell(note.tensor.empty() ? note.text : note.tensor + ": " + note.text));
  return diagnosis.notes.empty() ? text : text + '\n';
}

}  // namespace nanscope::report
