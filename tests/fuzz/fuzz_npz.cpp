#include <span>
#include <string>

#include "instrument/dump/containers/npz.h"
#include "tests/fuzz/containers.h"
#include "tests/zip_builder.h"

/// Seeds: tests/golden/dumps/*.npz and *.npy. What is no archive becomes a member of one, stored and
/// deflated, so that the fuzzer reaches the arrays without having to learn zip.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (!bytes.starts_with("PK")) {
    const std::vector<nanscope::ZipEntry> entries = {{.name = "a.npy", .data = bytes},
                                                     {.name = "b.npy",
                                                      .data = nanscope::ZipBuilder::deflated(bytes),
                                                      .method = 8,
                                                      .size = static_cast<std::uint32_t>(size),
                                                      .crc = nanscope::ZipBuilder::crc_of(bytes)}};
    bytes = nanscope::ZipBuilder(entries).bytes;
  }
  const auto open = [&] { return nanscope::open_npz({"fuzz", std::as_bytes(std::span(bytes)), nullptr}); };
  nanscope::fuzz::read_everything(nanscope::fuzz::open_within(bytes.size(), open), bytes.size() * 1032);
  return 0;
}
