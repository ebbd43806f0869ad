#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "instrument/dump/container.h"
#include "instrument/dump/containers/file_bytes.h"

/// NumPy's file of one array (numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions
/// 1.0 to 3.0). The header is a Python literal; a parser of exactly what NumPy writes there reads it,
/// nothing is evaluated.
///
/// Types of ml_dtypes have no descriptor of their own. What numpy.save writes for them, seen with numpy
/// 2.4 and ml_dtypes 0.6: bfloat16 is "<V2", float8_e5m2 is "<f1", and all others, float8_e4m3fn as well
/// as int4, are "<V1". So "V2" is read as bf16, the only type of two bytes; which type a "V1" is cannot be
/// known from the file: it is given as u8, with a note, for whoever knows more.
namespace nanscope {

struct NpyArray {
  const Dtype* dtype = nullptr;  ///< null when the array holds no numbers; `unreadable` says why
  std::string unreadable;
  std::string note;
  std::vector<std::int64_t> shape;
  bool first_index_fastest = false;
  std::uint64_t descriptor = 0;  ///< offset of what the header says of the elements
  std::uint64_t data = 0;        ///< offset of the first element
};

/// NumPy itself refuses headers beyond 10,000 bytes unless told otherwise.
inline constexpr std::uint64_t kMaxNpyHeader = 1 << 16;

/// How many of a file's first bytes its header takes, kMaxNpyHeader and a few more at most; 0 where those that are
/// given, at least 12, are no header's.
std::uint64_t npy_header_bytes(std::span<const std::byte> head);

/// Reads and checks a header out of the first bytes of a file of `size` bytes, which must be exactly as
/// long as header and array. Offsets in errors are plus `base`, where the file lies in the file `name`.
Result<NpyArray> parse_npy(std::span<const std::byte> head, std::uint64_t size, std::string_view name,
                           std::uint64_t base);

/// An array as a container of one tensor with an empty key.
Result<std::unique_ptr<Container>> open_npy(FileBytes file);

/// Where an array lies in its file.
struct NpyPlace {
  std::uint64_t data = 0;  ///< offset of the first element
  bool first_index_fastest = false;
};

/// The array's elements out of the file's bytes, row-major.
Result<TensorBytes> npy_bytes(const ContainedTensor& tensor, const NpyPlace& place, std::span<const std::byte> file,
                              const std::shared_ptr<const void>& owner, std::string_view name);

}  // namespace nanscope
