#include "cli/bits_command.h"

#include <cstdio>

namespace nanscope::cli {

int run_bits(const BitsOptions& options, bool json) {
  const Result<std::string> report = json ? bits_json(options) : bits_text(options);
  if (!report) {
    std::fprintf(stderr, "nanscope bits: %s\n", report.error().message.c_str());
    return 2;
  }
  std::fwrite(report->data(), 1, report->size(), stdout);
  return 0;
}

}  // namespace nanscope::cli
