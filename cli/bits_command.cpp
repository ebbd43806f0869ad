#include "cli/bits_command.h"

#include "cli/command.h"

namespace nanscope::cli {

int run_bits(const BitsOptions& options, bool json) {
  const Result<std::string> report = json ? bits_json(options) : bits_text(options);
  if (!report) return complain(report.error().message, "nanscope bits");
  print(*report);
  return kClean;
}

int run_block(const BlockReportOptions& options, bool json) {
  const Result<std::string> report = json ? block_json(options) : block_text(options);
  if (!report) return complain(report.error().message, "nanscope bits");
  print(*report);
  return kClean;
}

}  // namespace nanscope::cli
