#include "instrument/facts/dump_facts.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/files/output_file.h"
#include "instrument/facts/facts_bytes.h"
#include "instrument/facts/facts_file.h"
#include "instrument/files/file.h"

namespace nanscope {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kFrame = 24;  ///< bytes before a record

TensorFact tensor_of(facts_bytes::Reader& from) {
  TensorFact fact;
  fact.unread = from.text();
  if (from.number() == 0) return fact;
  Health health;
  std::array<std::byte, sizeof(Health)> bytes{};
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = from.number();
    for (std::size_t b = 0; b < 8; ++b) bytes[i + b] = static_cast<std::byte>(word >> (8 * b) & 0xff);
  }
  std::memcpy(&health, bytes.data(), sizeof health);
  fact.health = health;
  return fact;
}

Recomputed judgement_of(facts_bytes::Reader& from) {
  Recomputed one;
  one.elements = from.integer();
  one.explained = from.integer();
  one.open = from.integer();
  one.rows = from.integer();
  one.rows_in_all = from.integer();
  one.worst.row = from.integer();
  one.worst.channel = from.integer();
  one.worst.actual = from.real();
  one.worst.expected = from.real();
  one.worst.bound = from.real();
  one.worst.ratio = from.real();
  one.bounds = from.real();
  one.distance = from.real();
  one.squares = from.real();
  one.squares_within = from.real();
  one.bad_rows = from.integers();
  one.not_finite = from.integers();
  const std::vector<std::int64_t> rows = from.integers();
  for (const std::int64_t row : rows) {
    const std::int64_t elements = from.integer();
    one.scattered.push_back({row, elements, from.real()});
  }
  return one;
}

}  // namespace

bool DumpFacts::take(std::span<const std::byte> record) {
  facts_bytes::Reader from(record);
  const char kind = from.kind();
  if ((kind == 'O') == has_origin_) return false;
  switch (kind) {
    case 'O': {
      origin_.made_by = from.text();
      origin_.dump = from.key();
      origin_.parts = from.integer();
      has_origin_ = true;
      return from.ended() && origin_.parts > 0;
    }
    case 'P': {
      const std::int64_t number = from.integer();
      FactsPart& part = parts_[number];
      part.tensors = from.integer();
      part.complete = from.number() != 0;
      return from.ended() && number >= 1 && number <= origin_.parts;
    }
    case 'F': {
      const std::string shown = from.text();
      files_[shown] = from.key();
      return from.ended();
    }
    case 'T': {
      const FactKey key = from.key();
      TensorFact fact = tensor_of(from);
      tensors_.insert_or_assign(key, std::move(fact));
      return from.ended();
    }
    case 'J': {
      const FactKey key = from.key();
      Recomputed one = judgement_of(from);
      judgements_.insert_or_assign(key, std::move(one));
      return from.ended();
    }
    default:
      return false;
  }
}

tl::expected<std::size_t, std::size_t> DumpFacts::take_whole(std::span<const std::byte> bytes, std::size_t at) {
  while (bytes.size() - at >= kFrame) {
    facts_bytes::Reader frame(bytes.subspan(at, kFrame));
    const std::uint64_t size = frame.number();
    const bool sized = frame.number() == facts_records::size_check(size);
    const std::uint64_t hash = frame.number();
    if (sized && size > bytes.size() - at - kFrame) break;
    const auto record = bytes.subspan(at + kFrame, sized ? static_cast<std::size_t>(size) : 0);
    if (!sized || XXH3_64bits(record.data(), record.size()) != hash || !take(record)) return tl::unexpected(at);
    at += kFrame + record.size();
  }
  return at;
}

Status DumpFacts::take_records(std::span<const std::byte> records) {
  const auto whole = take_whole(records, 0);
  return whole && *whole == records.size() ? Status() : fail("facts of another process are damaged");
}

Result<DumpFacts> DumpFacts::read(const fs::path& path, bool growing) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return tl::unexpected(file.error());
  const std::span<const std::byte> bytes = file->bytes();
  if (!as_text(bytes).starts_with(kFactsMagic))
    return fail(path.string() + ": no facts of nanscope: expected the line 'nanscope facts 1' at offset 0");
  DumpFacts facts;
  facts.path_ = path;
  const auto whole = facts.take_whole(bytes, kFactsMagic.size());
  if (!whole)
    return fail(fmt::format("{}: damaged: the record at offset {} is not what was written; scan again", path.string(),
                            whole.error()));
  if (Status same = growing ? Status() : file->check(); !same) return tl::unexpected(same.error());
  facts.whole_bytes_ = *whole;
  return facts;
}

Status DumpFacts::merge(DumpFacts other) {
  if (!has_origin_) {
    const fs::path path = std::move(path_);
    *this = std::move(other);
    if (!path.empty()) path_ = path;
    return {};
  }
  if (!other.has_origin_) return {};
  if (other.origin_.made_by != origin_.made_by)
    return fail(fmt::format("{}: made by nanscope {}, and {} by nanscope {}: scan all parts with the same one",
                            other.path_.string(), other.origin_.made_by, path_.string(), origin_.made_by));
  if (other.origin_ != origin_)
    return fail(fmt::format("{}: a part of another dump, or of another number of parts, than {}", other.path_.string(),
                            path_.string()));
  for (const auto& [number, part] : other.parts_) {
    if (!parts_.emplace(number, part).second)
      return fail(fmt::format("{}: holds part {}, which is there already", other.path_.string(), number));
  }
  files_.merge(other.files_);
  tensors_.merge(other.tensors_);
  judgements_.merge(other.judgements_);
  return {};
}

Status DumpFacts::write(const fs::path& path, bool replace, std::vector<fs::path> inputs) const {
  Result<OutputFile> file = OutputFile::create(path, {.replace = replace, .inputs = std::move(inputs)});
  if (!file) return tl::unexpected(file.error());
  std::string bytes(kFactsMagic);
  Status status;
  const auto add = [&](const std::string& record) {
    constexpr std::size_t kAtOnce = std::size_t{1} << 20;
    bytes += facts_records::framed(record);
    if (bytes.size() < kAtOnce || !status) return;
    status = file->write(std::as_bytes(std::span(bytes)));
    bytes.clear();
  };
  add(facts_records::origin(origin_));
  for (const auto& [shown, state] : files_) add(facts_records::file({shown, state}));
  // In the order of their keys: the file does not depend on the order in which parts were given.
  const auto sorted = [](const auto& map) {
    std::vector<const typename std::decay_t<decltype(map)>::value_type*> all;
    for (const auto& one : map) all.push_back(&one);
    std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    return all;
  };
  for (const auto* one : sorted(tensors_)) add(facts_records::tensor(one->first, one->second));
  for (const auto* one : sorted(judgements_)) add(facts_records::judgement(one->first, one->second));
  for (const auto& [number, part] : parts_) add(facts_records::part(number, part));
  if (status) status = file->write(std::as_bytes(std::span(bytes)));
  if (!status) return status;
  return file->commit();
}

Status DumpFacts::check_files(std::span<const DumpFileState> files) const {
  bool any = false;
  for (const DumpFileState& file : files) {
    const auto found = files_.find(file.shown);
    if (found == files_.end()) continue;
    any = true;
    if (found->second == file.state) continue;
    return fail(
        fmt::format("{}: is not the file that the facts in {} are of: its size or the time of its last write "
                    "differs; scan again",
                    file.shown, path_.string()));
  }
  if (any || files_.empty()) return {};
  return fail(path_.string() + ": facts of another dump: none of its files is here");
}

bool DumpFacts::has_file(const DumpFileState& file) const {
  const auto found = files_.find(file.shown);
  return found != files_.end() && found->second == file.state;
}

const TensorFact* DumpFacts::find(const FactKey& tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

const Recomputed* DumpFacts::find_judgement(const FactKey& judgement) const {
  const auto found = judgements_.find(judgement);
  return found == judgements_.end() ? nullptr : &found->second;
}

}  // namespace nanscope
