#include "cli/diagnose_dump.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/command.h"
#include "cli/progress.h"
#include "core/dump/diagnose_dump.h"
#include "instrument/dump/open_dump.h"
#include "scenarios/report/dump_report.h"
#include "scenarios/report/junit.h"
#include "scenarios/report/run_json.h"

namespace nanscope::cli {
namespace {

std::string junit(const Diagnosis& diagnosis) {
  report::JUnitCase test{
      .name = diagnosis.target, .class_name = "nanscope.diagnose", .failures = {}, .error = {}, .output = {}};
  for (const Fault& fault : diagnosis.faults) {
    test.failures.push_back(fmt::format("{} in {}: {}", fault.fault_class, fault.tensor, fault.summary));
  }
  return report::junit_xml("nanscope", std::vector{test});
}

nlohmann::ordered_json json_of(const Dump& dump, const Diagnosis& diagnosis) {
  nlohmann::ordered_json json = to_json(diagnosis);
  json["hypotheses"] = to_json(diagnosis.hypotheses);
  json["notes"] = nlohmann::ordered_json::array();
  for (const RunNote& note : dump.notes) json["notes"].push_back({{"tensor", note.tensor}, {"text", note.text}});
  return json;
}

}  // namespace

bool looks_like_recording(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return false;
  // msprobe's databases are SQLite too.
  if (path.ends_with(".vis.db") || path.ends_with(".trend.db")) return false;
  constexpr std::string_view kSqlite = "SQLite format 3";
  std::array<char, kSqlite.size()> head{};
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), head.size());
  return path.ends_with(".nanscope") || (file && std::string_view(head.data(), head.size()) == kSqlite);
}

int diagnose_dump_target(const std::string& path, const std::string& format, bool progress,
                         const Interrupt& interrupt) {
  OpenDumpOptions options;
  options.stop = interrupt.token();
  options.sums = false;
  Result<std::unique_ptr<OpenDump>> opened = [&] {
    ProgressLine line("MiB", progress);
    options.progress = [&line](std::uint64_t done, std::uint64_t total) {
      line.show(static_cast<std::int64_t>(done >> 20), static_cast<std::int64_t>(total >> 20), "");
    };
    return OpenDump::open(path, options);
  }();
  if (!opened) {
    complain(opened.error().message);
    return interrupt.requested() ? kInterrupted : kBadInput;
  }
  const Dump& dump = (*opened)->dump();
  // What could not be read is not part of the answer: it is said where a script sees it too.
  for (const RunNote& one : (*opened)->unread()) complain("not read: " + one.text);
  const Result<Diagnosis> diagnosis = [&] {
    ProgressLine line("detectors", progress);
    DiagnoseOptions diagnosing;
    diagnosing.stop = interrupt.token();
    diagnosing.progress = [&line](std::size_t done, std::size_t total) {
      line.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "");
    };
    return diagnose_dump(dump, **opened, diagnosing);
  }();
  if (!diagnosis) {
    complain(diagnosis.error().message);
    return interrupt.requested() ? kInterrupted : kBadInput;
  }
  if (format == "json") {
    print(report::dump_json(json_of(dump, *diagnosis)));
  } else if (format == "junit") {
    print(junit(*diagnosis));
  } else if (format == "markdown") {
    print(report::dump_markdown(dump, *diagnosis));
  } else {
    print(report::dump_text(dump, *diagnosis, output_terminal()));
  }
  return diagnosis->clean() ? kClean : kFound;
}

}  // namespace nanscope::cli
