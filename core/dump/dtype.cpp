#include "core/dump/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "core/numbers/codec.h"
#include "core/numbers/decode_span.h"
#include "core/numbers/rounding.h"

namespace nanscope {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read in place, as the file's little-endian");

constexpr std::array<Dtype, 26> kDtypes = {{
    {"f64", "F64", "f8", "float64", DtypeKind::real, 64, std::nullopt},
    {"f32", "F32", "f4", "float32", DtypeKind::real, 32, Format::f32},
    {"f16", "F16", "f2", "float16", DtypeKind::real, 16, Format::f16},
    {"bf16", "BF16", "bfloat16", "bfloat16", DtypeKind::real, 16, Format::bf16},
    {"e4m3", "F8_E4M3", "float8_e4m3fn", "float8_e4m3fn", DtypeKind::real, 8, Format::e4m3},
    {"e5m2", "F8_E5M2", "float8_e5m2", "float8_e5m2", DtypeKind::real, 8, Format::e5m2},
    {"e4m3fnuz", "F8_E4M3FNUZ", "float8_e4m3fnuz", "float8_e4m3fnuz", DtypeKind::real, 8, Format::e4m3fnuz},
    {"e5m2fnuz", "F8_E5M2FNUZ", "float8_e5m2fnuz", "float8_e5m2fnuz", DtypeKind::real, 8, Format::e5m2fnuz},
    {"e8m0", "F8_E8M0", "float8_e8m0fnu", "float8_e8m0fnu", DtypeKind::real, 8, Format::e8m0},
    {"e2m1", "F4", "", "float4_e2m1fn_x2", DtypeKind::real, 4, Format::e2m1},
    {"e2m1_unpacked", "", "float4_e2m1fn", "", DtypeKind::real, 8, Format::e2m1},
    // Of F6_E3M2 and F6_E2M3 safetensors defines the size, four elements in three bytes, but nobody the order
    // of their bits: only ml_dtypes' one element a byte can be read.
    {"e3m2", "", "float6_e3m2fn", "", DtypeKind::real, 8, Format::e3m2},
    {"e2m3", "", "float6_e2m3fn", "", DtypeKind::real, 8, Format::e2m3},
    {"i8", "I8", "i1", "int8", DtypeKind::integer, 8, Format::int8},
    {"i16", "I16", "i2", "int16", DtypeKind::integer, 16, std::nullopt},
    {"i32", "I32", "i4", "int32", DtypeKind::integer, 32, Format::i32},
    {"i64", "I64", "i8", "int64", DtypeKind::integer, 64, std::nullopt},
    {"u8", "U8", "u1", "uint8", DtypeKind::integer, 8, std::nullopt},
    {"u16", "U16", "u2", "uint16", DtypeKind::integer, 16, std::nullopt},
    {"u32", "U32", "u4", "uint32", DtypeKind::integer, 32, std::nullopt},
    {"u64", "U64", "u8", "uint64", DtypeKind::integer, 64, std::nullopt},
    {"bool", "BOOL", "b1", "bool", DtypeKind::boolean, 8, std::nullopt},
    {"c32", "", "", "complex32", DtypeKind::complex, 32, std::nullopt},
    {"c64", "C64", "c8", "complex64", DtypeKind::complex, 64, std::nullopt},
    {"c128", "", "c16", "complex128", DtypeKind::complex, 128, std::nullopt},
    {"c256", "", "c32", "", DtypeKind::complex, 256, std::nullopt},
}};

struct Alias {
  std::string_view alias;
  std::string_view name;
};

/// Lower case; torch's short names, and what servers write in configurations and manifests.
constexpr auto kAliases = std::to_array<Alias>({
    {"double", "f64"},
    {"fp64", "f64"},
    {"float", "f32"},
    {"fp32", "f32"},
    {"single", "f32"},
    {"half", "f16"},
    {"fp16", "f16"},
    {"brain", "bf16"},
    {"fp8", "e4m3"},
    {"fp8_e4m3", "e4m3"},
    {"fp8_e4m3fn", "e4m3"},
    {"float8_e4m3", "e4m3"},
    {"f8_e4m3fn", "e4m3"},
    {"e4m3fn", "e4m3"},
    {"fp8_e5m2", "e5m2"},
    {"fp8_e4m3fnuz", "e4m3fnuz"},
    {"fp8_e5m2fnuz", "e5m2fnuz"},
    {"e8m0fnu", "e8m0"},
    {"ue8m0", "e8m0"},
    {"f8_e8m0fnu", "e8m0"},
    {"fp4", "e2m1"},
    {"fp4_e2m1", "e2m1"},
    {"f4_e2m1", "e2m1"},
    {"e3m2fn", "e3m2"},
    {"fp6_e3m2", "e3m2"},
    {"e2m3fn", "e2m3"},
    {"fp6_e2m3", "e2m3"},
    {"char", "i8"},
    {"short", "i16"},
    {"int", "i32"},
    {"long", "i64"},
    {"byte", "u8"},
    {"boolean", "bool"},
    {"bool_", "bool"},
    {"cfloat", "c64"},
    {"cdouble", "c128"},
    {"chalf", "c32"},
});

std::string lowered(std::string_view text) {
  std::string low(text);
  for (char& c : low) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return low;
}

template <class Same>
const Dtype* find_row(Same same) {
  const auto row = std::find_if(kDtypes.begin(), kDtypes.end(), same);
  return row == kDtypes.end() ? nullptr : &*row;
}

const Dtype* find_own(std::string_view name) {
  return find_row([&](const Dtype& row) { return row.name == name; });
}

/// NumPy's "<f4": the byte order, then a letter and the size in bytes. ml_dtypes' e5m2 is "<f1".
const Dtype* find_descriptor(std::string_view descriptor) {
  if (descriptor.front() == '>') return nullptr;
  const std::string_view code = descriptor.substr(1);
  if (code == "f1") return find_own("e5m2");
  return find_row([&](const Dtype& row) { return !code.empty() && row.numpy == code; });
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T, class Convert>
void convert(const std::byte* from, std::span<float> to, Convert convert_one) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = convert_one(load<T>(from + i * sizeof(T)));
}

void decode_packed(Format format, std::span<const std::byte> bytes, std::uint64_t first, std::span<float> to) {
  const std::span<const float, 256> table = code_values(format);
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::uint64_t index = first + i;
    const auto pair = std::to_integer<std::uint32_t>(bytes[index / 2]);
    to[i] = table[index % 2 == 0 ? pair & 15U : pair >> 4];
  }
}

float narrowed(double value) { return value != value ? std::bit_cast<float>(kCanonicalNan) : f32_of(value); }

void decode_plain(const Dtype& dtype, const std::byte* from, std::span<float> to) {
  const auto number = [](auto value) { return static_cast<float>(value); };
  const bool is_signed = dtype.name.front() == 'i';
  if (dtype.kind == DtypeKind::boolean) {
    return convert<std::uint8_t>(from, to, [](std::uint8_t value) { return value != 0 ? 1.0F : 0.0F; });
  }
  if (dtype.kind == DtypeKind::real) return convert<double>(from, to, narrowed);
  switch (dtype.bits) {
    case 8:
      return convert<std::uint8_t>(from, to, number);
    case 16:
      return is_signed ? convert<std::int16_t>(from, to, number) : convert<std::uint16_t>(from, to, number);
    case 32:
      return convert<std::uint32_t>(from, to, number);
    default:
      return is_signed ? convert<std::int64_t>(from, to, number) : convert<std::uint64_t>(from, to, number);
  }
}

}  // namespace

std::span<const Dtype> dtypes() { return kDtypes; }

const Dtype* find_dtype(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  if (name.starts_with(kTorch)) name.remove_prefix(kTorch.size());
  if (name.empty()) return nullptr;
  if (std::string_view("<>|=").find(name.front()) != std::string_view::npos) return find_descriptor(name);
  const Dtype* exact = find_row([&](const Dtype& row) { return row.name == name || row.safetensors == name; });
  if (exact != nullptr) return exact;
  const std::string low = lowered(name);
  const auto alias = std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& a) { return a.alias == low; });
  if (alias != kAliases.end()) return find_own(alias->name);
  return find_row([&](const Dtype& row) {
    // A NumPy code of letter and size is no name by itself; ml_dtypes' long names are.
    return row.name == low || row.torch == low || (row.numpy == low && low.size() > 3) ||
           (row.bits == 8 && lowered(row.safetensors) == low);
  });
}

const Dtype& dtype_of(Format format) {
  return *find_row([&](const Dtype& row) { return row.format == format; });
}

const Dtype* part_of_complex(const Dtype& dtype) {
  if (dtype.kind != DtypeKind::complex) return nullptr;
  return find_dtype(dtype.bits == 128 ? "f64" : dtype.bits == 64 ? "f32" : dtype.bits == 32 ? "f16" : "");
}

Result<std::vector<float>> decode_values(const Dtype& dtype, std::span<const std::byte> bytes, std::uint64_t first,
                                         std::uint64_t count) {
  if (dtype.kind == DtypeKind::complex) {
    return fail("dtype " + std::string(dtype.name) + ": a complex number has no single real value");
  }
  const std::uint64_t held =
      bytes.size() / static_cast<std::uint64_t>(dtype.bits) * 8 +
      bytes.size() % static_cast<std::uint64_t>(dtype.bits) * 8 / static_cast<std::uint64_t>(dtype.bits);
  if (first > held || count > held - first) {
    return fail("elements " + std::to_string(first) + " to " + std::to_string(first + count) + " of " +
                std::string(dtype.name) + ", expected at most the " + std::to_string(held) + " that " +
                std::to_string(bytes.size()) + " bytes hold");
  }
  std::vector<float> values(count);
  if (count == 0) return values;
  if (dtype.bits < 8) {
    decode_packed(*dtype.format, bytes, first, values);
    return values;
  }
  const std::byte* from = bytes.data() + first * static_cast<std::uint64_t>(dtype.bits / 8);
  if (dtype.format) {
    decode(*dtype.format, std::span(from, bytes.data() + bytes.size()), values);
  } else {
    decode_plain(dtype, from, values);
  }
  return values;
}

std::int64_t stored_integer(const Dtype& dtype, std::span<const std::byte> bytes, std::uint64_t index) {
  const auto size = static_cast<std::size_t>(dtype.bits / 8);
  std::uint64_t raw = 0;
  std::memcpy(&raw, bytes.data() + index * size, size);
  if (dtype.name.starts_with('i') && size < sizeof(raw)) {
    const auto shift = static_cast<unsigned>(64 - dtype.bits);
    return static_cast<std::int64_t>(raw << shift) >> shift;
  }
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return dtype.name.starts_with('i') ? static_cast<std::int64_t>(raw) : static_cast<std::int64_t>(std::min(raw, kMost));
}

std::uint32_t stored_code(const Dtype& dtype, std::span<const std::byte> bytes, std::uint64_t index) {
  if (dtype.bits == 4) {
    const auto pair = std::to_integer<std::uint32_t>(bytes[index / 2]);
    return index % 2 == 0 ? pair & 15U : pair >> 4;
  }
  const std::byte* at = bytes.data() + index * static_cast<std::uint64_t>(dtype.bits / 8);
  switch (dtype.bits) {
    case 8:
      return load<std::uint8_t>(at);
    case 16:
      return load<std::uint16_t>(at);
    default:
      return load<std::uint32_t>(at);
  }
}

}  // namespace nanscope
