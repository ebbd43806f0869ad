#include <span>

#include "instrument/dump/containers/npy.h"
#include "tests/fuzz/containers.h"

/// Seeds: tests/golden/dumps/*.npy.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nanscope;
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::read_everything(fuzz::open_within(size, [&] { return open_npy({"fuzz", bytes, nullptr}); }), size);
  return 0;
}
