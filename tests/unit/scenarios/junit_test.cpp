#include "scenarios/report/junit.h"

#include <gtest/gtest.h>

#include <vector>

namespace nanscope::report {
namespace {

TEST(JUnit, WholeDocument) {
  const std::vector<JUnitCase> cases = {
      {"good", "scenarios", 0.25, {}, "", ""},
      {"bad", "scenarios", 0.5, {"expected clean, found \"fault\" <a&b>", "second"}, "", "nanscope why x"},
      {"broken", "scenarios", 0, {}, "no such file", ""},
  };
  EXPECT_EQ(junit_xml("nanscope", cases), R"(<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="1" errors="1" time="0.750">
 <testsuite name="nanscope" tests="3" failures="1" errors="1" time="0.750">
  <testcase name="good" classname="scenarios" time="0.250">
  </testcase>
  <testcase name="bad" classname="scenarios" time="0.500">
    <failure message="expected clean, found &quot;fault&quot; &lt;a&amp;b&gt;">expected clean, found &quot;fault&quot; &lt;a&amp;b&gt;
second</failure>
    <system-out>nanscope why x</system-out>
  </testcase>
  <testcase name="broken" classname="scenarios" time="0.000">
    <error message="no such file"/>
  </testcase>
 </testsuite>
</testsuites>
)");
}

TEST(JUnit, EscapesWhatXmlCannotHold) {
  EXPECT_EQ(xml_escape(std::string_view("a\0b\x1b\xff", 5)),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(xml_escape("é\n"), "é\n");
  EXPECT_EQ(xml_escape("\xef\xbf\xbe"), "\xef\xbf\xbd") << "U+FFFE is no XML character";
}

}  // namespace
}  // namespace nanscope::report
