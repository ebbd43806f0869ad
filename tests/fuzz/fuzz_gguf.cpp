#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "instrument/files/read_budget.h"
#include "instrument/gguf/gguf_file.h"
#include "tests/fuzz/allocation_limit.h"

/// Whatever is accepted must stay inside the file and decode to as many values as its shape says.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = [&] {
    const nanscope::fuzz::AllocationLimit limit(nanscope::read_budget(size));
    return nanscope::parse_gguf(bytes, "fuzz");
  }();
  if (!header) return 0;
  for (const auto& [key, value] : header->metadata) {
    const auto list = value.list();
    if (list && list->size() > size) std::abort();
    (void)value.number();
    (void)value.text();
  }
  for (const nanscope::GgufTensor& tensor : header->tensors) {
    if (tensor.type == nullptr) continue;
    if (tensor.end > size) std::abort();
    std::vector<float> values(static_cast<std::size_t>(tensor.count()));
    decode_blocks(*tensor.type, bytes.subspan(tensor.begin, tensor.end - tensor.begin), values);
  }
  return 0;
}
