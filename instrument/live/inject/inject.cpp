// The library that the CUDA driver loads where CUDA_INJECTION64_PATH names it, at the program's first CUDA call.
#include <fmt/format.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

#include "core/system_reason.h"
#include "core/text/safe_text.h"
#include "instrument/live/inject/session.h"

#ifdef NANSCOPE_LIVE_SCAN
extern "C" const char nanscope_format_scan_ptx_begin[];
#endif

namespace nanscope::live {
namespace {

const char* scan_ptx() {
#ifdef NANSCOPE_LIVE_SCAN
  return nanscope_format_scan_ptx_begin;
#else
  return nullptr;
#endif
}

/// Never destroyed: callbacks may come until the process is gone.
Session* session = nullptr;

void initialize() {
  const auto options = live_options([](const char* name) { return std::getenv(name); });
  if (!options) {
    fmt::print(stderr, "nanscope: {}\n", error_line(options.error().message));
    return;
  }
  auto started = Session::start(*options, scan_ptx());
  if (!started) {
    fmt::print(stderr, "nanscope: nothing is recorded: {}\n", error_line(started.error().message));
    return;
  }
  session = started->release();
  std::atexit([] { session->finish(); });
  pthread_atfork(nullptr, nullptr, [] { session->abandon(); });
}

}  // namespace
}  // namespace nanscope::live

/// Called by the driver. Whatever happens here, the program goes on.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  static bool done = false;
  if (done) return 1;
  done = true;
  try {
    nanscope::live::initialize();
  } catch (const std::exception& error) {
    fmt::print(stderr, "nanscope: nothing is recorded: {}\n", nanscope::error_line(nanscope::reason_of(error)));
  }
  return 1;
}
