#include "scenarios/report/diagnosis_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "scenarios/report/diagnosis_report.h"

namespace nanscope::report {
namespace {

bool is_accepted(const Diagnosed& one, std::size_t fault) {
  return std::find(one.accepted.begin(), one.accepted.end(), fault) != one.accepted.end();
}

/// The fault that a line is about: the root, or where that is accepted, the first that is not.
std::size_t told_fault(const Diagnosed& one) {
  const Diagnosis& diagnosis = *one.diagnosis;
  const std::size_t root = diagnosis.root_cause.value_or(0);
  if (!is_accepted(one, root)) return root;
  for (std::size_t i = 0; i < diagnosis.faults.size(); ++i) {
    if (!is_accepted(one, i)) return i;
  }
  return root;
}

std::string fault_line(const Diagnosed& one, const Terminal& terminal) {
  const Diagnosis& diagnosis = *one.diagnosis;
  const std::size_t told = told_fault(one);
  const bool accepted = is_accepted(one, told);
  const Fault& fault = diagnosis.faults[told];
  std::string line = fmt::format("{} {}: {}", paint(terminal, accepted ? Ink::yellow : Ink::red, fault.fault_class),
                                 printable(place_of(fault), terminal), printable(fault.summary, terminal));
  if (accepted) line = "accepted: " + line;
  if (diagnosis.faults.size() > 1) line += fmt::format(" (and {})", counted(diagnosis.faults.size() - 1, "more fault"));
  return line;
}

/// What a clean verdict rests on.
std::string coverage(const Diagnosis& diagnosis) {
  const auto excluded = std::count_if(diagnosis.checks.begin(), diagnosis.checks.end(),
                                      [](const Check& check) { return check.state == Checked::excluded; });
  std::string text = fmt::format("{} of {} classes excluded", excluded, diagnosis.checks.size());
  if (diagnosis.recomputation.ops > 0) text += ", " + coverage_text(diagnosis.recomputation);
  return text;
}

}  // namespace

std::string verdict_line(const Diagnosed& one, const Terminal& terminal) {
  const std::string target = paint(terminal, Ink::bold, printable(one.target, terminal));
  if (!one.diagnosis) return fmt::format("{}: not read: {}\n", target, printable(one.error, terminal));
  switch (one.diagnosis->verdict()) {
    case Verdict::fault:
      return fmt::format("{}: {}\n", target, fault_line(one, terminal));
    case Verdict::incomplete:
      return fmt::format("{}: {}: no fault until the recording ended, {}\n", target,
                         paint(terminal, Ink::yellow, "incomplete"),
                         printable(progress_text(one.diagnosis->completeness), terminal));
    case Verdict::clean:
      break;
  }
  return fmt::format("{}: {}: {}\n", target, paint(terminal, Ink::green, "clean"), coverage(*one.diagnosis));
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
