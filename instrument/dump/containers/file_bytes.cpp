#include "instrument/dump/containers/file_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace nanscope {

namespace {

constexpr std::uint64_t kAlwaysHeld = std::uint64_t{16} << 20;

}  // namespace

Result<FileBytes> map_file(const std::filesystem::path& path) {
  auto source = SourceFile::open(path);
  if (!source) return tl::unexpected(source.error());
  auto held = (*source)->hold();
  if (!held) return tl::unexpected(held.error());
  return FileBytes{path.string(), held->bytes, std::move(held->owner), std::move(*source)};
}

KeptFile::KeptFile(FileBytes file, std::size_t tensors) : file_(std::move(file)), size_(file_.bytes.size()) {
  if (file_.source == nullptr || size_ >= kAlwaysHeld || tensors >= kMany) return;
  file_.bytes = {};
  file_.owner = nullptr;
}

void KeptFile::keep() {
  // What cannot be had is said when it is wanted.
  if (auto held = hold()) file_ = std::move(*held);
}

Result<FileBytes> KeptFile::hold(std::uint64_t reads) const {
  const bool mapped = file_.source != nullptr && file_.owner != nullptr && size_ >= kAlwaysHeld;
  if (mapped && read_->fetch_add(reads) + reads > kMostResident) {
    read_->store(0);
    // Without it more stays resident, and nothing else changes.
    ::madvise(const_cast<std::byte*>(file_.bytes.data()), file_.bytes.size(), MADV_DONTNEED);
  }
  if (file_.source == nullptr || file_.owner != nullptr) return file_;
  auto held = file_.source->hold();
  if (!held) return tl::unexpected(held.error());
  return FileBytes{file_.name, held->bytes, std::move(held->owner), file_.source};
}

Status KeptFile::check() const { return file_.source != nullptr ? file_.source->check() : Status{}; }

tl::unexpected<Error> refuse(std::string_view file, std::uint64_t offset, const std::string& what) {
  return fail(std::string(file) + ": offset " + std::to_string(offset) + ": " + what);
}

std::string printable(std::string_view text, std::size_t limit) { return shortened(one_line(text), limit); }

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  out += printable(text);
  out += '\'';
  return out;
}

std::optional<std::uint64_t> checked_count(std::span<const std::int64_t> shape, const Dtype& dtype) {
  // Extents beside a 0 are multiplied by others later: they must fit too.
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  std::uint64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent == 0) continue;
    if (extent < 0 || __builtin_mul_overflow(count, static_cast<std::uint64_t>(extent), &count)) return std::nullopt;
  }
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t bits = 0;
  if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(dtype.bits), &bits) || bits > kMost) return std::nullopt;
  return empty ? 0 : count;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

std::optional<std::string> path_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.find('\0') != std::string_view::npos) return "holds a NUL";
  if (name.find('\\') != std::string_view::npos) return "holds a backslash";
  if (!is_utf8(name)) return "is no UTF-8";
  if (name.front() == '/') return "is absolute";
  if (name.size() > 1 && name[1] == ':') return "names a drive";
  for (std::string_view rest = name; !rest.empty();) {
    const std::size_t slash = rest.find('/');
    if (rest.substr(0, slash) == "..") return "leaves its folder";
    rest = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash + 1);
  }
  return std::nullopt;
}

}  // namespace nanscope
