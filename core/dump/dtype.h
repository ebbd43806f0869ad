#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numbers/format.h"
#include "core/result.h"

/// How the elements of a dumped tensor are stored: what safetensors, NumPy and PyTorch call a dtype.
///
/// Names are those of safetensors (github.com/huggingface/safetensors, Dtype), of NumPy's array interface
/// (numpy.org/doc/stable/reference/arrays.interface.html), of ml_dtypes and of torch.dtype.
namespace nanscope {

enum class DtypeKind : std::uint8_t { real, integer, boolean, complex };

/// One row of the table of dtypes.
struct Dtype {
  std::string_view name;         ///< ours: f32, bf16, e4m3, f64, u8, i64, bool ...
  std::string_view safetensors;  ///< F32, BF16, F8_E4M3 ...; empty when it has none
  std::string_view numpy;        ///< the descriptor without its byte order: f4, u1, b1; or ml_dtypes' name
  std::string_view torch;        ///< float32, float8_e4m3fn ...; empty when it has none
  DtypeKind kind = DtypeKind::real;
  int bits = 0;                  ///< that one element takes: 4 for packed e2m1, 8 for e3m2, which wastes two
  std::optional<Format> format;  ///< nothing for what is no number format of nanscope: f64, u8, bool ...

  /// Bytes that `count` elements take; packed ones share bytes.
  std::uint64_t bytes(std::uint64_t count) const {
    const auto width = static_cast<std::uint64_t>(bits);
    return width % 8 == 0 ? count * (width / 8) : (count / 8) * width + ((count % 8) * width + 7) / 8;
  }
};

std::span<const Dtype> dtypes();

/// By any of the names above or another usual one ("F8_E4M3", "float8_e4m3fn", "torch.bfloat16", "half",
/// "<f4", "|u1"); null for a name that none has, and for big-endian descriptors. NumPy's letters and
/// sizes count only behind their byte order: "<u8" has eight bytes, "u8" has eight bits.
const Dtype* find_dtype(std::string_view name);

/// The dtype whose elements are `format`'s codes, packed where PyTorch packs them.
const Dtype& dtype_of(Format format);

/// The dtype of the real and the imaginary part of a complex one, which are neighbours in memory: its tensors are read
/// with one more extent of 2 behind the others, as torch.view_as_real() has them. Null for what is not complex, and for
/// parts that have no dtype here.
const Dtype* part_of_complex(const Dtype& dtype);

/// Elements `first` to `first + count` of `bytes` as f32: number formats decoded as core/numbers does,
/// f64 and wide integers rounded to nearest, bool as 0 or 1. Error: complex numbers, and `bytes` that do
/// not hold them.
///
/// Packed e2m1 has its earlier element in the low half of a byte, as torch.float4_e2m1fn_x2 defines
/// (torch/headeronly/util/Float4_e2m1fn_x2.h); safetensors stores such bytes as they are, as F4.
Result<std::vector<float>> decode_values(const Dtype& dtype, std::span<const std::byte> bytes, std::uint64_t first,
                                         std::uint64_t count);

/// One element of an integer or boolean dtype; what 63 bits do not hold is their largest.
std::int64_t stored_integer(const Dtype& dtype, std::span<const std::byte> bytes, std::uint64_t index);

/// The stored bits of one element of at most 32 bits.
std::uint32_t stored_code(const Dtype& dtype, std::span<const std::byte> bytes, std::uint64_t index);

}  // namespace nanscope
