#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "scenarios/report/run_report.h"
#include "scenarios/runner.h"

/// The same reports for machines and for pull requests.
namespace nanscope::report {

/// Schema "nanscope.run-report/1".
nlohmann::ordered_json run_json(const scenarios::Analysis& analysis, const RunContext& context);
std::string run_markdown(const scenarios::Analysis& analysis, const RunContext& context);

/// A number as JSON; NaN and Inf, which JSON lacks, as texts: "nan", "inf", "-inf".
nlohmann::ordered_json json_number(double value);

/// One line of text without a line break inside, as JSON that any reader takes: bytes that are no
/// UTF-8 are replaced.
std::string dump_json(const nlohmann::ordered_json& json);

/// A suite as a table, and its failures with the command that opens the recording.
std::string suite_text(std::span<const scenarios::SuiteEntry> entries, const Terminal& terminal);
std::string suite_junit(std::span<const scenarios::SuiteEntry> entries);
nlohmann::ordered_json suite_json(std::span<const scenarios::SuiteEntry> entries);
std::string suite_markdown(std::span<const scenarios::SuiteEntry> entries);

}  // namespace nanscope::report
