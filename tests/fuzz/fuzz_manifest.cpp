#include <fstream>
#include <span>
#include <string>

#include "instrument/dump/containers/manifest.h"
#include "tests/fuzz/containers.h"
#include "tests/temporary_folder.h"

/// Seeds: tests/golden/dumps/raw/manifest.json and manifest.jsonl. The folder has the two files that they
/// name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const nanscope::TemporaryFolder folder;
  static const bool written = [] {
    std::ofstream(folder / "data.bin", std::ios::binary) << std::string(42, '\1');
    std::ofstream(folder / "columns.bin", std::ios::binary) << std::string(24, '\2');
    return true;
  }();
  static_cast<void>(written);
  const auto text = std::as_bytes(std::span(data, size));
  constexpr std::uint64_t kNamed = 42 + 24 + 2 * 4096;  // the files that it may name, a page more for each
  for (const char* name : {"manifest.json", "manifest.jsonl"}) {
    const std::filesystem::path path = folder / name;
    nanscope::fuzz::read_everything(
        nanscope::fuzz::open_within(size + kNamed, [&] { return nanscope::read_manifest(text, path); }), 42);
  }
  return 0;
}
