#include "tests/corpus/tape.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>

#include "core/numbers/codec.h"
#include "instrument/weights/safetensors.h"

namespace nanscope::corpus {
namespace {

void append(std::vector<std::byte>& bytes, std::uint32_t code, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) bytes.push_back(static_cast<std::byte>(code >> (8 * i)));
}

bool listed(const std::vector<std::string>& list, std::string_view tag) {
  return std::find(list.begin(), list.end(), tag) != list.end();
}

}  // namespace

std::string below(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + '/' + name;
}

bool Dumped::keeps(Group group, std::string_view tag) const {
  if (listed(without, tag)) return false;
  return (groups & group) != 0 || listed(with, tag);
}

Tape::Entry* Tape::entry(Group group, std::string_view tag, const std::string& name) {
  if (!on_ || !dumped_.keeps(group, tag)) return nullptr;
  return &entries_.emplace_back(Entry{folder_, name, std::string(tag), {}, {}, {}});
}

void Tape::add(Group group, std::string_view tag, const std::string& name, Format format,
               std::vector<std::int64_t> shape, std::span<const float> values) {
  std::vector<std::uint32_t> codes(values.size());
  std::transform(values.begin(), values.end(), codes.begin(),
                 [format](float v) { return encode(format, v, Overflow::overflow); });
  const bool hides = group == kMasks || tag.ends_with(".scores");
  const auto bad = [&](std::uint32_t code) {
    const float v = decode(format, code);
    return hides ? std::isnan(v) || v > std::numeric_limits<float>::max() : !std::isfinite(v);
  };
  if (on_ && dumped_.keeps(group, tag) && std::any_of(codes.begin(), codes.end(), bad)) {
    if (not_finite_++ == 0) first_not_finite_ = below(folder_, name);
  }
  add_codes(group, tag, name, safetensors_dtype(format), std::move(shape), codes);
}

void Tape::add_codes(Group group, std::string_view tag, const std::string& name, std::string_view dtype,
                     std::vector<std::int64_t> shape, std::span<const std::uint32_t> codes) {
  Entry* out = entry(group, tag, name);
  if (out == nullptr) return;
  out->dtype = std::string(dtype);
  out->shape = std::move(shape);
  const auto width = static_cast<std::size_t>(safetensors_bits(dtype).value_or(8) / 8);
  for (const std::uint32_t code : codes) append(out->bytes, code, width);
}

void Tape::add_ids(Group group, std::string_view tag, const std::string& name, std::span<const std::int64_t> ids) {
  Entry* out = entry(group, tag, name);
  if (out == nullptr) return;
  out->dtype = "I64";
  out->shape = {static_cast<std::int64_t>(ids.size())};
  out->bytes.resize(ids.size_bytes());
  std::memcpy(out->bytes.data(), ids.data(), ids.size_bytes());
}

void Tape::put_ids(const std::string& folder, const std::string& name, std::vector<std::int64_t> shape,
                   std::span<const std::int64_t> ids) {
  Entry& out = entries_.emplace_back(Entry{folder, name, {}, "I64", std::move(shape), {}});
  out.bytes.resize(ids.size_bytes());
  std::memcpy(out.bytes.data(), ids.data(), ids.size_bytes());
}

const Tape::Entry* Tape::find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& one) { return below(one.folder, one.name) == name; });
  return found == entries_.end() ? nullptr : &*found;
}

bool Tape::holds(std::string_view name) const { return find(name) != nullptr; }

bool Tape::same_rows(std::string_view a, std::string_view b, std::int64_t rows) const {
  const Entry* first = find(a);
  const Entry* second = find(b);
  if (first == nullptr || second == nullptr || first->shape != second->shape || first->shape.empty()) return false;
  const auto size =
      static_cast<std::ptrdiff_t>(first->bytes.size() / static_cast<std::size_t>(first->shape.front())) * rows;
  return std::equal(first->bytes.begin(), first->bytes.begin() + size, second->bytes.begin());
}

Status Tape::write(const std::filesystem::path& root) const {
  std::map<std::string, std::vector<SafetensorsInput>> folders;
  for (const Entry& e : entries_) folders[e.folder].push_back({e.name, e.dtype, e.shape, e.bytes});
  for (auto& [folder, tensors] : folders) {
    const Result<std::vector<std::byte>> bytes = encode_safetensors(std::move(tensors));
    if (!bytes) return tl::unexpected(bytes.error());
    std::error_code error;
    std::filesystem::create_directories(root / folder, error);
    const std::filesystem::path path = root / folder / "tensors.safetensors";
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
    if (!file) return fail(path.string() + ": cannot write");
  }
  return {};
}

}  // namespace nanscope::corpus
