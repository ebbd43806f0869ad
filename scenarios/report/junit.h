#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// JUnit XML as build servers read it: one suite, one case a scenario.
namespace nanscope::report {

struct JUnitCase {
  std::string name;
  std::string class_name;
  double seconds = 0;
  std::vector<std::string> failures;  ///< expectations that were missed; empty: passed
  std::string error;                  ///< it could not be run
  std::string output;                 ///< shown with the case
};

std::string junit_xml(std::string_view suite, std::span<const JUnitCase> cases);

}  // namespace nanscope::report
