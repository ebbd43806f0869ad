#include "scenarios/report/diagnosis_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "scenarios/report/diagnosis_report.h"

namespace nanscope::report {
namespace {

bool is_accepted(std::span<const std::size_t> accepted, std::size_t fault) {
  return std::find(accepted.begin(), accepted.end(), fault) != accepted.end();
}

std::string fault_line(const Diagnosed& one, const Terminal& terminal) {
  const Diagnosis& diagnosis = *one.diagnosis;
  const std::size_t told = told_fault(diagnosis, one.accepted);
  const bool accepted = is_accepted(one.accepted, told);
  const Fault& fault = diagnosis.faults[told];
  std::string line = fmt::format("{} {}: {}", paint(terminal, accepted ? Ink::yellow : Ink::red, fault.fault_class),
                                 printable(place_of(fault), terminal), printable(fault.summary, terminal));
  if (accepted) line = "accepted: " + line;
  if (diagnosis.faults.size() > 1) line += fmt::format(" (and {})", counted(diagnosis.faults.size() - 1, "more fault"));
  return line;
}

}  // namespace

std::size_t told_fault(const Diagnosis& diagnosis, std::span<const std::size_t> accepted) {
  const std::size_t root = diagnosis.root_cause.value_or(0);
  if (!is_accepted(accepted, root)) return root;
  for (std::size_t i = 0; i < diagnosis.faults.size(); ++i) {
    if (!is_accepted(accepted, i)) return i;
  }
  return root;
}

std::string checks_summary(const Diagnosis& diagnosis) {
  const auto in_state = [&](Checked state) {
    return std::count_if(diagnosis.checks.begin(), diagnosis.checks.end(),
                         [&](const Check& check) { return check.state == state; });
  };
  std::string text = fmt::format("{} of {} classes excluded", in_state(Checked::excluded), diagnosis.checks.size());
  if (const auto missing = in_state(Checked::not_in_dump); missing > 0)
    text += fmt::format(", {} cannot be told from what is there", missing);
  if (const auto unseen = in_state(Checked::not_looked_at); unseen > 0)
    text += fmt::format(", {} not looked at", unseen);
  return text;
}

std::string verdict_line(const Diagnosed& one, const Terminal& terminal) {
  const std::string target = paint(terminal, Ink::bold, printable(one.target, terminal));
  if (!one.diagnosis) return fmt::format("{}: not read: {}\n", target, printable(one.error, terminal));
  const Diagnosis& diagnosis = *one.diagnosis;
  if (diagnosis.verdict() == Verdict::fault) return fmt::format("{}: {}\n", target, fault_line(one, terminal));
  std::string line = fmt::format(
      "{}: {}", target, paint(terminal, verdict_ink(diagnosis), printable(verdict_words(diagnosis), terminal)));
  if (!diagnosis.faults.empty()) line += "; " + fault_line(one, terminal);
  return line + '\n';
}

std::string accepted_text(const Diagnosed& one, const Terminal& terminal) {
  std::string text;
  for (const std::size_t index : one.accepted) {
    const Fault& fault = one.diagnosis->faults.at(index);
    const std::string line = fmt::format("{} {}", fault.fault_class, printable(place_of(fault), terminal));
    text += paragraph(text.empty() ? "Accepted  " : "          ", line, terminal);
  }
  return text;
}

std::string accepted_markdown(const Diagnosed& one) {
  std::string text;
  for (const std::size_t index : one.accepted) {
    const Fault& fault = one.diagnosis->faults.at(index);
    text += fmt::format("- accepted: {} {}\n", fault.fault_class, markdown_cell(place_of(fault)));
  }
  return text.empty() ? text : '\n' + text;
}

std::string gone_text(std::span<const KnownFault> gone, const std::string& baseline, const Terminal& terminal) {
  std::string text;
  for (const KnownFault& fault : gone) {
    const std::string line =
        printable(fmt::format("{} (of {}, not found any more)", to_string(fault), baseline), terminal);
    text += paragraph(text.empty() ? "Gone      " : "          ", line, terminal);
  }
  return text;
}

}  // namespace nanscope::report
