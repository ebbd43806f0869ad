#include <span>

#include "instrument/dump/containers/npy.h"
#include "tests/fuzz/containers.h"

/// Seeds: tests/golden/dumps/*.npy.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  nanscope::fuzz::read_everything(nanscope::open_npy({"fuzz", std::as_bytes(std::span(data, size)), nullptr}), size);
  return 0;
}
