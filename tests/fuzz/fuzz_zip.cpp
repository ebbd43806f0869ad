#include <cstdlib>
#include <span>

#include "instrument/dump/containers/zip_archive.h"
#include "tests/fuzz/allocation_limit.h"

/// Seeds: tests/golden/dumps/*.npz, *.pt and *.zip. Whatever is accepted reads inside the file, and what
/// is found by a name has that name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto archive = [&] {
    const nanscope::fuzz::AllocationLimit limit(nanscope::read_budget(size));
    return nanscope::ZipArchive::read({"fuzz", bytes, nullptr});
  }();
  if (!archive) return 0;
  std::uint64_t stored = 0;
  for (const nanscope::ZipMember& member : archive->members()) {
    if (archive->find(member.name) != &member) std::abort();
    if (member.data > size || member.stored > size - member.data) std::abort();
    stored += member.stored;
    // Its content, and what unpacks it.
    const nanscope::fuzz::AllocationLimit limit(2 * member.size + nanscope::kReadFloor);
    const auto content = archive->content(member);
    if (content && content->bytes.size() != member.size) std::abort();
    const auto beginning = archive->beginning(member, 10);
    if (content && beginning && beginning->bytes.size() > 10) std::abort();
  }
  if (stored > size) std::abort();  // members do not overlap
  return 0;
}
