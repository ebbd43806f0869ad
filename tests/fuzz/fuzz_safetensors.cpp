#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "instrument/weights/safetensors.h"
#include "tests/fuzz/allocation_limit.h"

/// Whatever is accepted must stay inside the file and decode to as many values as its shape says.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = [&] {
    const nanscope::fuzz::AllocationLimit limit(nanscope::read_budget(size));
    return nanscope::parse_safetensors(bytes, "fuzz");
  }();
  if (!header) return 0;
  for (const nanscope::SafetensorsEntry& entry : header->entries) {
    if (entry.end > size - header->data_begin) std::abort();
    const auto tensor = bytes.subspan(header->data_begin + entry.begin, entry.end - entry.begin);
    const auto values = nanscope::safetensors_values(entry, tensor);
    if (values && static_cast<std::int64_t>(values->size()) != entry.count()) std::abort();
  }
  return 0;
}
