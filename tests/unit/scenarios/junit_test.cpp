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

TEST(JUnit, HoldsNoTextRaw) {
  const std::string nasty = "a\x1b\xff\"<b>&\n\u202e" + std::string(3'000'000, 'x');
  const std::string xml = junit_xml(nasty, std::vector<JUnitCase>{{nasty, nasty, 0, {nasty}, nasty, "kept\nlines"}});
  EXPECT_EQ(xml.find('\x1b'), std::string::npos);
  EXPECT_NE(xml.find("name=\"a\\x1b\\xff&quot;&lt;b&gt;&amp;\\n\\xe2\\x80\\xaexx"), std::string::npos)
      << xml.substr(0, 300);
  EXPECT_NE(xml.find("kept\nlines"), std::string::npos);
  EXPECT_LT(xml.size(), 20'000U);
}

}  // namespace
}  // namespace nanscope::report
