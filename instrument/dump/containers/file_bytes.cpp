#include "instrument/dump/containers/file_bytes.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "instrument/files/file.h"

namespace nanscope {

Result<FileBytes> map_file(const std::filesystem::path& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return tl::unexpected(mapped.error());
  auto owner = std::make_shared<const MappedFile>(std::move(*mapped));
  return FileBytes{path.string(), owner->bytes(), owner};
}

tl::unexpected<Error> refuse(std::string_view file, std::uint64_t offset, const std::string& what) {
  return fail(std::string(file) + ": offset " + std::to_string(offset) + ": " + what);
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text.size() > limit ? out + "..." : out;
}

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
