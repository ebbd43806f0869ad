#include "cli/bits_command.h"

#include "cli/command.h"
#include "scenarios/report/moments_report.h"

namespace nanscope::cli {

int run_bits(const BitsOptions& options, bool json) {
  const Result<std::string> report = json ? bits_json(options) : bits_text(options);
  if (!report) return complain(report.error().message, "nanscope bits");
  print(*report);
  return kClean;
}

int run_bits_values(const BitsOptions& options, std::span<const std::string> values, bool json) {
  const Result<std::string> report = json ? bits_values_json(options, values) : bits_values_text(options, values);
  if (!report) return complain(report.error().message, "nanscope bits");
  print(*report);
  return kClean;
}

int run_moments(MomentsOptions options, const std::string& format, std::span<const std::string> values, bool json) {
  if (!format.empty()) options.format = format_from_name(format).value_or(Format::f32);
  const Result<std::vector<double>> numbers = parse_moments_values(values);
  if (!numbers) return complain(numbers.error().message, "nanscope bits --moments");
  const Result<MomentsReport> made = compute_moments(*numbers, options);
  if (!made) return complain(made.error().message, "nanscope bits --moments");
  print(json ? report::moments_json(*made) : report::moments_text(*made, output_terminal()));
  return kClean;
}

int run_block(const BlockReportOptions& options, bool json) {
  const Result<std::string> report = json ? block_json(options) : block_text(options);
  if (!report) return complain(report.error().message, "nanscope bits");
  print(*report);
  return kClean;
}

}  // namespace nanscope::cli
