#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "scenarios/report/junit.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {

namespace {

using scenarios::SuiteEntry;

std::string name_of(const SuiteEntry& entry) { return entry.path.stem().string(); }

/// What came out, in a few words.
std::string found_text(const SuiteEntry& entry) {
  if (!entry.run) return entry.error;
  const Diagnosis& diagnosis = entry.run->analysis.diagnosis;
  if (diagnosis.faults.empty()) return std::string(name(diagnosis.verdict()));
  return diagnosis.root_cause ? diagnosis.faults.at(*diagnosis.root_cause).fault_class : "a fault without a cause";
}

std::string open_command(const SuiteEntry& entry) {
  if (!entry.run || entry.run->recording.empty()) return {};
  return fmt::format("nanscope diagnose {}", entry.run->recording.string());
}

std::size_t passed(std::span<const SuiteEntry> entries) {
  return static_cast<std::size_t>(
      std::count_if(entries.begin(), entries.end(), [](const SuiteEntry& entry) { return entry.passed(); }));
}

}  // namespace

std::string suite_text(std::span<const SuiteEntry> entries, const Terminal& terminal) {
  Table table({Align::left, Align::left, Align::left, Align::right});
  for (const SuiteEntry& entry : entries) {
    const std::string state = entry.passed() ? paint(terminal, Ink::green, "pass")
                              : entry.run    ? paint(terminal, Ink::red, "FAIL")
                                             : paint(terminal, Ink::red, "ERROR");
    table.row({state, printable(name_of(entry), terminal), entry.run ? printable(found_text(entry), terminal) : "",
               entry.run ? fmt::format("{:.2f} s", entry.run->seconds) : ""});
  }
  std::string text = table.text("  ", terminal.width);
  for (const SuiteEntry& entry : entries) {
    if (entry.passed()) continue;
    text += '\n' + paint(terminal, Ink::bold, printable(name_of(entry), terminal)) + '\n';
    if (!entry.run) {
      text += paragraph("  ", printable(entry.error, terminal), terminal);
      continue;
    }
    for (const scenarios::Missed& missed : entry.run->missed) {
      text += paragraph("  ", printable(missed.what, terminal), terminal);
      text += paragraph("    expected  ", printable(missed.expected, terminal), terminal);
      text += paragraph("    found     ", printable(missed.found, terminal), terminal);
    }
    if (const std::string command = open_command(entry); !command.empty()) {
      text += fmt::format("  look at it: {}\n", paint(terminal, Ink::cyan, printable(command, terminal)));
    }
  }
  return text + fmt::format("\n{} of {} scenarios as expected\n", passed(entries), entries.size());
}

std::string suite_junit(std::span<const SuiteEntry> entries) {
  std::vector<JUnitCase> cases;
  for (const SuiteEntry& entry : entries) {
    JUnitCase test{
        .name = name_of(entry), .class_name = "nanscope.scenarios", .failures = {}, .error = {}, .output = {}};
    if (entry.run) {
      test.seconds = entry.run->seconds;
      for (const scenarios::Missed& missed : entry.run->missed) test.failures.push_back(to_string(missed));
      test.output = test.failures.empty() ? "" : open_command(entry);
    } else {
      test.error = entry.error;
    }
    cases.push_back(std::move(test));
  }
  return junit_xml("nanscope", cases);
}

nlohmann::ordered_json suite_json(std::span<const SuiteEntry> entries) {
  nlohmann::ordered_json json;
  json["schema"] = "nanscope.suite/1";
  json["passed"] = passed(entries);
  json["total"] = entries.size();
  json["scenarios"] = nlohmann::ordered_json::array();
  for (const SuiteEntry& entry : entries) {
    nlohmann::ordered_json item;
    item["name"] = name_of(entry);
    item["passed"] = entry.passed();
    if (!entry.run) {
      item["error"] = entry.error;
    } else {
      RunContext context;
      context.recording = entry.run->recording.string();
      context.judged = true;
      context.missed = entry.run->missed;
      item["report"] = run_json(entry.run->analysis, context);
    }
    json["scenarios"].push_back(std::move(item));
  }
  return json;
}

std::string suite_markdown(std::span<const SuiteEntry> entries) {
  std::string text = fmt::format("**{} of {} scenarios as expected**\n\n| scenario | | found |\n|---|---|---|\n",
                                 passed(entries), entries.size());
  for (const SuiteEntry& entry : entries) {
    text += fmt::format("| {} | {} | {} |\n", markdown_text(name_of(entry)), entry.passed() ? "pass" : "**FAIL**",
                        markdown_text(printable(found_text(entry), {})));
  }
  return text;
}

}  // namespace nanscope::report
