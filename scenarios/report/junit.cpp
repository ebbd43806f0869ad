#include "scenarios/report/junit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utf8proc.h>

#include <algorithm>

namespace nanscope::report {

namespace {

/// Char of XML 1.0, section 2.2.
bool xml_character(utf8proc_int32_t codepoint) {
  return codepoint == 0x9 || codepoint == 0xa || codepoint == 0xd || (codepoint >= 0x20 && codepoint <= 0xd7ff) ||
         (codepoint >= 0xe000 && codepoint <= 0xfffd) || codepoint >= 0x10000;
}

std::string case_xml(const JUnitCase& test) {
  std::string xml = fmt::format("  <testcase name=\"{}\" classname=\"{}\" time=\"{:.3f}\">\n", xml_escape(test.name),
                                xml_escape(test.class_name), test.seconds);
  if (!test.error.empty()) xml += fmt::format("    <error message=\"{}\"/>\n", xml_escape(test.error));
  if (!test.failures.empty()) {
    xml += fmt::format("    <failure message=\"{}\">{}</failure>\n", xml_escape(test.failures.front()),
                       xml_escape(fmt::format("{}", fmt::join(test.failures, "\n"))));
  }
  if (!test.output.empty()) xml += fmt::format("    <system-out>{}</system-out>\n", xml_escape(test.output));
  return xml + "  </testcase>\n";
}

}  // namespace

std::string xml_escape(std::string_view text) {
  std::string xml;
  while (!text.empty()) {
    utf8proc_int32_t codepoint = -1;
    const utf8proc_ssize_t length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                     static_cast<utf8proc_ssize_t>(text.size()), &codepoint);
    const std::size_t used = length < 1 ? 1 : static_cast<std::size_t>(length);
    if (length < 1 || !xml_character(codepoint)) {
      xml += "\xef\xbf\xbd";
    } else if (codepoint == '&') {
      xml += "&amp;";
    } else if (codepoint == '<') {
      xml += "&lt;";
    } else if (codepoint == '>') {
      xml += "&gt;";
    } else if (codepoint == '"') {
      xml += "&quot;";
    } else {
      xml += text.substr(0, used);
    }
    text.remove_prefix(used);
  }
  return xml;
}

std::string junit_xml(std::string_view suite, std::span<const JUnitCase> cases) {
  const auto failed = std::count_if(cases.begin(), cases.end(), [](const JUnitCase& c) { return !c.failures.empty(); });
  const auto broken = std::count_if(cases.begin(), cases.end(), [](const JUnitCase& c) { return !c.error.empty(); });
  double seconds = 0;
  for (const JUnitCase& test : cases) seconds += test.seconds;
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3f}\"", cases.size(), failed, broken, seconds);
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  xml += fmt::format("<testsuites {}>\n <testsuite name=\"{}\" {}>\n", counts, xml_escape(suite), counts);
  for (const JUnitCase& test : cases) xml += case_xml(test);
  return xml + " </testsuite>\n</testsuites>\n";
}

}  // namespace nanscope::report
