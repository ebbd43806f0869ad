#include "scenarios/report/dump_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/counted.h"

namespace nanscope::report {
namespace {

constexpr std::size_t kFaultsShown = 8;
constexpr std::size_t kNotesShown = 6;

/// "412 tensors, 1.2 GB, 2 passes, layers 0 to 31 · 3 names not known".
std::string contents_line(const Dump& dump) {
  double bytes = 0;
  std::set<std::string> passes;
  std::set<std::int64_t> layers;
  for (const DumpTensor& tensor : dump.tensors) {
    bytes += static_cast<double>(tensor.dtype->bytes(static_cast<std::uint64_t>(tensor.count())));
    passes.insert(tensor.at.pass());
    if (tensor.at.layer) layers.insert(*tensor.at.layer);
  }
  std::string line = fmt::format("{}, {}, {}", counted(dump.tensors.size(), "tensor"), bytes_text(bytes),
                                 passes.size() == 1 ? "1 pass" : fmt::format("{} passes", passes.size()));
  if (layers.size() == 1) line += fmt::format(", layer {}", *layers.begin());
  if (layers.size() > 1) line += fmt::format(", layers {} to {}", *layers.begin(), *layers.rbegin());
  if (dump.unknown > 0) line += fmt::format(", {} whose names are not known (scanned all the same)", dump.unknown);
  return line;
}

std::string evidence_line(const Fault& fault, const Terminal& terminal) {
  std::vector<std::string> parts;
  for (const Evidence& item : fault.evidence) {
    parts.push_back(fmt::format("{} {}", item.name, printable(to_string(item.value), terminal)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string tokens_clause(const Where& where) {
  if (!where.tokens) return {};
  if (where.tokens->first == where.tokens->last) return fmt::format(", token {}", where.tokens->first);
  return fmt::format(", tokens {} to {}", where.tokens->first, where.tokens->last);
}

std::string fault_line(const Fault& fault, const Terminal& terminal) {
  return fmt::format("{} in {}{}", paint(terminal, Ink::bold, fault.fault_class), printable(fault.tensor, terminal),
                     tokens_clause(fault.where));
}

std::string notes_text(const Dump& dump, const Terminal& terminal) {
  std::string block;
  for (std::size_t i = 0; i < std::min(dump.notes.size(), kNotesShown); ++i) {
    const RunNote& note = dump.notes[i];
    const std::string text = note.tensor.empty() ? note.text : fmt::format("{}: {}", note.tensor, note.text);
    block += paragraph(i == 0 ? "Note      " : "          ", printable(text, terminal), terminal);
  }
  if (dump.notes.size() > kNotesShown) {
    block += fmt::format("          and {}\n", counted(dump.notes.size() - kNotesShown, "more note"));
  }
  return block;
}

std::string faults_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  std::string block;
  if (diagnosis.root_cause) {
    const Fault& cause = diagnosis.faults.at(*diagnosis.root_cause);
    block += paragraph("Cause     ", fault_line(cause, terminal), terminal);
    block += paragraph("          ", printable(cause.summary, terminal), terminal);
    if (!cause.evidence.empty()) block += paragraph("          ", evidence_line(cause, terminal), terminal);
    block += paragraph("Fix       ", printable(cause.fix, terminal), terminal);
  }
  std::size_t shown = 0;
  for (std::size_t i = 0; i < diagnosis.faults.size() && shown < kFaultsShown; ++i) {
    if (diagnosis.root_cause == i) continue;
    block += paragraph(shown++ == 0 ? "Then      " : "          ", fault_line(diagnosis.faults[i], terminal), terminal);
  }
  if (diagnosis.faults.size() > shown + 1) {
    block += fmt::format("          and {} (--format json lists them)\n",
                         counted(diagnosis.faults.size() - shown - 1, "more fault"));
  }
  if (!diagnosis.spread.first_bad_tensor.empty()) {
    block += paragraph("First bad ", printable(diagnosis.spread.first_bad_tensor, terminal), terminal);
  }
  return block + fmt::format("Spread    {}{} of {} tokens hold a NaN or an Inf\n",
                             diagnosis.spread.at_least ? "at least " : "", diagnosis.spread.bad_tokens,
                             diagnosis.spread.tokens);
}

/// What is no fault yet: each with its numbers.
std::string warnings_text(const Diagnosis& diagnosis, const Terminal& terminal) {
  std::string block;
  for (const Warning& warning : diagnosis.warnings) {
    std::string text =
        fmt::format("{}: {}", paint(terminal, Ink::yellow, warning.kind), printable(warning.summary, terminal));
    if (warning.more > 0) text += fmt::format(" ({} less so)", counted(warning.more, "more tensor"));
    block += paragraph(block.empty() ? "Warning   " : "          ", text, terminal);
    block += paragraph("          ", printable(warning.advice, terminal), terminal);
  }
  return block;
}

}  // namespace

std::string dump_text(const Dump& dump, const Diagnosis& diagnosis, const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope diagnose {}", printable(dump.target, terminal)), terminal);
  text += paint(terminal, Ink::dim, elide(contents_line(dump), terminal.width, terminal)) + "\n\n";
  if (diagnosis.clean()) {
    text += paragraph("",
                      fmt::format("{}: no fault found in {}.", paint(terminal, Ink::green, "Clean"),
                                  counted(dump.tensors.size(), "tensor")),
                      terminal);
  } else {
    text += faults_text(diagnosis, terminal);
  }
  text += warnings_text(diagnosis, terminal);
  std::size_t rejected = 0;
  for (const Hypothesis& one : diagnosis.hypotheses) {
    if (one.supported || diagnosis.clean()) continue;
    text += paragraph(rejected++ == 0 ? "Rejected  " : "          ",
                      fmt::format("{}: {}", one.fault_class, printable(one.figure, terminal)), terminal);
  }
  return text + notes_text(dump, terminal);
}

std::string dump_markdown(const Dump& dump, const Diagnosis& diagnosis) {
  const Terminal plain;
  std::string text = fmt::format("## nanscope: {}\n\n{}\n\n", printable(dump.target, plain), contents_line(dump));
  std::string warnings;
  for (const Warning& warning : diagnosis.warnings) {
    warnings += fmt::format("\n**Warning** {}: {}\n", warning.kind, printable(warning.summary, plain));
  }
  if (diagnosis.clean() || !diagnosis.root_cause) return text + "**Clean**: no fault found.\n" + warnings;
  const Fault& cause = diagnosis.faults.at(*diagnosis.root_cause);
  text += fmt::format("**{}** in `{}`{}\n\n{}\n\n*Fix*: {}\n\n| number | value |\n|---|---|\n", cause.fault_class,
                      printable(cause.tensor, plain), tokens_clause(cause.where), printable(cause.summary, plain),
                      printable(cause.fix, plain));
  for (const Evidence& item : cause.evidence)
    text += fmt::format("| {} | {} |\n", item.name, printable(to_string(item.value), plain));
  text += fmt::format("\nFirst bad tensor `{}`; {}{} of {} tokens hold a NaN or an Inf.\n",
                      printable(diagnosis.spread.first_bad_tensor, plain), diagnosis.spread.at_least ? "at least " : "",
                      diagnosis.spread.bad_tokens, diagnosis.spread.tokens);
  if (diagnosis.faults.size() > 1) text += "\n| link | tensor | what |\n|---|---|---|\n";
  for (const Fault& fault : diagnosis.faults) {
    if (diagnosis.faults.size() > 1)
      text += fmt::format("| {} | `{}` | {} |\n", fault.fault_class, printable(fault.tensor, plain),
                          printable(fault.summary, plain));
  }
  text += "\n| theory | rejected by |\n|---|---|\n";
  for (const Hypothesis& one : diagnosis.hypotheses) {
    if (!one.supported) text += fmt::format("| {} | {} |\n", one.fault_class, printable(one.figure, plain));
  }
  return text;
}

std::string dump_diff_text(const DumpDiff& diff, const std::string& a, const std::string& b, const Terminal& terminal) {
  std::string text =
      heading(fmt::format("nanscope diff {} {}", printable(a, terminal), printable(b, terminal)), terminal);
  text += fmt::format("{} compared: {} equal, {} within rounding, {} beyond it; {} without a partner\n\n",
                      counted(diff.compared, "tensor"), diff.equal, diff.rounding, diff.beyond, diff.unmatched);
  if (diff.same()) return text + paint(terminal, Ink::green, "Nothing but rounding lies between the two.") + '\n';
  const auto first = std::find_if(diff.differences.begin(), diff.differences.end(), [](const DumpDifference& one) {
    return one.kind == DumpDifferenceKind::content || one.kind == DumpDifferenceKind::not_finite;
  });
  if (first != diff.differences.end()) text += paragraph("Diverges  ", printable(first->summary, terminal), terminal);
  bool led = false;
  for (auto it = diff.differences.begin(); it != diff.differences.end(); ++it) {
    if (it == first) continue;
    text += paragraph(led ? "          " : "Also      ", printable(it->summary, terminal), terminal);
    led = true;
  }
  return text;
}

}  // namespace nanscope::report
