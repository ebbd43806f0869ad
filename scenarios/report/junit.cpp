#include "scenarios/report/junit.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text/safe_text.h"

namespace nanscope::report {

namespace {

/// An attribute: one line.
std::string xml_line(std::string_view text) { return xml_text(shortened(one_line(text), kLongestField)); }

/// The lines of a body, none longer than a field may be.
std::string xml_lines(std::span<const std::string> lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (!text.empty()) text += '\n';
    text += xml_line(line);
  }
  return text;
}

std::string case_xml(const JUnitCase& test) {
  std::string xml = fmt::format("  <testcase name=\"{}\" classname=\"{}\" time=\"{:.3f}\">\n", xml_line(test.name),
                                xml_line(test.class_name), test.seconds);
  if (!test.error.empty()) xml += fmt::format("    <error message=\"{}\"/>\n", xml_line(test.error));
  if (!test.failures.empty()) {
    xml += fmt::format("    <failure message=\"{}\">{}</failure>\n", xml_line(test.failures.front()),
                       xml_lines(test.failures));
  }
  if (!test.output.empty()) xml += fmt::format("    <system-out>{}</system-out>\n", xml_text(test.output));
  return xml + "  </testcase>\n";
}

}  // namespace

std::string junit_xml(std::string_view suite, std::span<const JUnitCase> cases) {
  const auto failed = std::count_if(cases.begin(), cases.end(), [](const JUnitCase& c) { return !c.failures.empty(); });
  const auto broken = std::count_if(cases.begin(), cases.end(), [](const JUnitCase& c) { return !c.error.empty(); });
  double seconds = 0;
  for (const JUnitCase& test : cases) seconds += test.seconds;
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3f}\"", cases.size(), failed, broken, seconds);
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  xml += fmt::format("<testsuites {}>\n <testsuite name=\"{}\" {}>\n", counts, xml_line(suite), counts);
  for (const JUnitCase& test : cases) xml += case_xml(test);
  return xml + " </testsuite>\n</testsuites>\n";
}

}  // namespace nanscope::report
