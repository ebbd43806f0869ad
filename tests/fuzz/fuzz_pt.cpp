#include <span>
#include <string>

#include "instrument/dump/containers/pt.h"
#include "tests/fuzz/containers.h"
#include "tests/zip_builder.h"

/// Seeds: tests/golden/dumps/*.pt and *.pth, and the data.pkl in them. What is no archive becomes the pickle
/// of one with two storages, so that the fuzzer reaches the machine without having to learn zip.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (!bytes.starts_with("PK")) {
    const std::vector<nanscope::ZipEntry> entries = {{.name = "archive/data.pkl", .data = bytes},
                                                     {.name = "archive/byteorder", .data = "little"},
                                                     {.name = "archive/data/0", .data = std::string(96, '\1')},
                                                     {.name = "archive/data/1", .data = std::string(8, '\2')}};
    bytes = nanscope::ZipBuilder(entries).bytes;
  }
  const auto open = [&] { return nanscope::open_pt({"fuzz", std::as_bytes(std::span(bytes)), nullptr}); };
  nanscope::fuzz::read_everything(nanscope::fuzz::open_within(bytes.size(), open), bytes.size() * 1032 * 4);
  return 0;
}
