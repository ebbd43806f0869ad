#include "instrument/facts/facts_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/system_reason.h"
#include "instrument/facts/facts_bytes.h"

namespace nanscope {
namespace facts_records {

std::string origin(const FactsOrigin& origin) {
  facts_bytes::Writer to;
  to.put_kind('O');
  to.put(std::string_view(origin.made_by)), to.put(origin.dump), to.put(origin.parts);
  return to.bytes();
}

std::string part(std::int64_t number, const FactsPart& part) {
  facts_bytes::Writer to;
  to.put_kind('P');
  to.put(number), to.put(part.tensors), to.put(std::int64_t{part.complete ? 1 : 0});
  return to.bytes();
}

std::string file(const DumpFileState& file) {
  facts_bytes::Writer to;
  to.put_kind('F');
  to.put(std::string_view(file.shown)), to.put(file.state);
  return to.bytes();
}

std::string tensor(const FactKey& key, const TensorFact& fact) {
  facts_bytes::Writer to;
  to.put_kind('T');
  to.put(key), to.put(std::string_view(fact.unread)), to.put(std::int64_t{fact.health ? 1 : 0});
  if (!fact.health) return to.bytes();
  const auto* words = reinterpret_cast<const std::byte*>(&*fact.health);
  for (std::size_t i = 0; i < sizeof(Health); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, words + i, 8);
    to.put(word);
  }
  return to.bytes();
}

std::string judgement(const FactKey& key, const Recomputed& judged) {
  facts_bytes::Writer to;
  to.put_kind('J');
  to.put(key);
  for (const std::int64_t one : {judged.elements, judged.explained, judged.open, judged.rows, judged.rows_in_all,
                                 judged.worst.row, judged.worst.channel})
    to.put(one);
  for (const double one : {judged.worst.actual, judged.worst.expected, judged.worst.bound, judged.worst.ratio,
                           judged.bounds, judged.distance, judged.squares, judged.squares_within})
    to.put(one);
  to.put(judged.bad_rows), to.put(judged.not_finite);
  std::vector<std::int64_t> rows;
  for (const ScatteredRow& one : judged.scattered) rows.push_back(one.row);
  to.put(rows);
  for (const ScatteredRow& one : judged.scattered) to.put(one.elements), to.put(one.mean_square);
  return to.bytes();
}

std::uint64_t size_check(std::uint64_t size) { return XXH3_64bits_withSeed(nullptr, 0, size + 1); }

std::string framed(const std::string& record) {
  facts_bytes::Writer to;
  const auto size = std::uint64_t{record.size()};
  to.put(size), to.put(size_check(size)), to.put(std::uint64_t{XXH3_64bits(record.data(), record.size())});
  return to.bytes() + record;
}

}  // namespace facts_records

namespace {

Error cannot(const std::filesystem::path& path, std::string_view what) {
  return {fmt::format("{}: {}: {}", path.string(), what, system_reason(errno))};
}

/// Whether facts that a process left are a beginning of those of this part.
Status check_beginning(const DumpFacts& known, const FactsOrigin& origin, std::int64_t part) {
  const std::string path = known.path().string();
  if (known.whole_bytes() == kFactsMagic.size()) return {};
  if (known.origin().made_by != origin.made_by)
    return fail(fmt::format("{}: made by nanscope {}, this is {}: remove it, or name another file", path,
                            known.origin().made_by, origin.made_by));
  if (known.origin().parts != origin.parts)
    return fail(
        fmt::format("{}: is of a scan in {} parts: remove it, or name another file", path, known.origin().parts));
  if (known.origin() != origin)
    return fail(path + ": is of another dump, or the dump's files changed: remove it, or name another file");
  for (const auto& [number, state] : known.parts()) {
    if (number != part) return fail(fmt::format("{}: is part {}, not {}: name another file", path, number, part));
  }
  return {};
}

}  // namespace

FactsFile::FactsFile(FactsFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), status_(std::move(other.status_)) {}

FactsFile::~FactsFile() {
  if (file_ >= 0) ::close(file_);
}

Result<FactsFile> FactsFile::open(const std::filesystem::path& path, const FactsOrigin& origin, std::int64_t part,
                                  DumpFacts& known) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file < 0) return tl::unexpected(cannot(path, "cannot be written"));
  FactsFile made(path, file);
  struct stat state {};
  if (::fstat(file, &state) != 0 || !S_ISREG(state.st_mode)) return fail(path.string() + ": not a regular file");
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) return fail(path.string() + ": another process writes it");
  constexpr auto kMagicBytes = static_cast<std::int64_t>(kFactsMagic.size());
  // What a full disk, or a kill, left of the first line.
  if (state.st_size < kMagicBytes) {
    std::string found(static_cast<std::size_t>(state.st_size), '\0');
    if (::pread(file, found.data(), found.size(), 0) != state.st_size || !kFactsMagic.starts_with(found))
      return fail(path.string() + ": is there already, and no file of facts: remove it, or name another file");
    if (::ftruncate(file, 0) != 0) return tl::unexpected(cannot(path, "cannot be written"));
    made.write(kFactsMagic);
  }
  Result<DumpFacts> found = DumpFacts::read(path);
  if (!found) return tl::unexpected(found.error());
  if (Status same = check_beginning(*found, origin, part); !same) return tl::unexpected(same.error());
  const auto whole = static_cast<off_t>(found->whole_bytes());
  if (::ftruncate(file, whole) != 0 || ::lseek(file, whole, SEEK_SET) < 0)
    return tl::unexpected(cannot(path, "cannot be written"));
  if (found->whole_bytes() == kFactsMagic.size()) made.add(facts_records::origin(origin));
  known = std::move(*found);
  if (!made.status_) return tl::unexpected(made.status_.error());
  return made;
}

void FactsFile::write(std::string_view bytes) {
  while (!bytes.empty() && status_) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      status_ = tl::unexpected(cannot(path_, "cannot be written"));
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void FactsFile::add(const std::string& record) { write(facts_records::framed(record)); }

}  // namespace nanscope
