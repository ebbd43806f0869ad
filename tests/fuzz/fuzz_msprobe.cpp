#include <cstdlib>
#include <span>
#include <string_view>

#include "core/dump/tensor_name.h"
#include "instrument/dump/producers/msprobe_directory.h"
#include "tests/fuzz/allocation_limit.h"

/// Seeds: tests/golden/dumps/producers/msprobe_statistics/step0/rank0/dump.json and that of step1.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto read = [&] {
    const nanscope::fuzz::AllocationLimit limit(nanscope::read_budget(size));
    return nanscope::read_msprobe_directory(text, "dump.json");
  }();
  if (!read) {
    if (read.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  if (!*read) return 0;
  for (const nanscope::MsprobeTensor& tensor : **read) {
    if (tensor.dtype == nullptr || tensor.order < 0) std::abort();
    nanscope::parse_tensor_name(tensor.key);
  }
  return 0;
}
