#include "core/numbers/format.h"

#include <array>
#include <string>

#include "core/numbers/format_table.h"

namespace nanscope {
namespace {

constexpr bool table_is_indexed_by_format() {
  for (std::size_t i = 0; i < kFormatTable.size(); ++i) {
    if (static_cast<std::size_t>(kFormatTable[i].format) != i) return false;
  }
  return true;
}
static_assert(table_is_indexed_by_format(), "rows must stand in the order of enum Format");

struct Alias {
  std::string_view name;
  Format format;
};

// Spellings of torch, numpy/ml_dtypes, safetensors and vLLM, folded by normalise().
constexpr std::array kAliases = {
    Alias{"fp32", Format::f32},
    Alias{"float32", Format::f32},
    Alias{"float", Format::f32},
    Alias{"single", Format::f32},
    Alias{"fp16", Format::f16},
    Alias{"float16", Format::f16},
    Alias{"half", Format::f16},
    Alias{"bfloat16", Format::bf16},
    Alias{"e4m3fn", Format::e4m3},
    Alias{"fp8", Format::e4m3},
    Alias{"fp8_e4m3", Format::e4m3},
    Alias{"fp8_e4m3fn", Format::e4m3},
    Alias{"float8_e4m3", Format::e4m3},
    Alias{"float8_e4m3fn", Format::e4m3},
    Alias{"f8_e4m3", Format::e4m3},
    Alias{"f8_e4m3fn", Format::e4m3},
    Alias{"fp8_e5m2", Format::e5m2},
    Alias{"float8_e5m2", Format::e5m2},
    Alias{"f8_e5m2", Format::e5m2},
    Alias{"fp8_e4m3fnuz", Format::e4m3fnuz},
    Alias{"float8_e4m3fnuz", Format::e4m3fnuz},
    Alias{"f8_e4m3fnuz", Format::e4m3fnuz},
    Alias{"fp8_e5m2fnuz", Format::e5m2fnuz},
    Alias{"float8_e5m2fnuz", Format::e5m2fnuz},
    Alias{"f8_e5m2fnuz", Format::e5m2fnuz},
    Alias{"e3m2fn", Format::e3m2},
    Alias{"fp6_e3m2", Format::e3m2},
    Alias{"float6_e3m2fn", Format::e3m2},
    Alias{"f6_e3m2", Format::e3m2},
    Alias{"e2m3fn", Format::e2m3},
    Alias{"fp6_e2m3", Format::e2m3},
    Alias{"float6_e2m3fn", Format::e2m3},
    Alias{"f6_e2m3", Format::e2m3},
    Alias{"e2m1fn", Format::e2m1},
    Alias{"fp4", Format::e2m1},
    Alias{"fp4_e2m1", Format::e2m1},
    Alias{"float4_e2m1fn", Format::e2m1},
    Alias{"f4", Format::e2m1},
    Alias{"f4_e2m1", Format::e2m1},
    Alias{"ue8m0", Format::e8m0},
    Alias{"e8m0fnu", Format::e8m0},
    Alias{"float8_e8m0fnu", Format::e8m0},
    Alias{"f8_e8m0", Format::e8m0},
    Alias{"f8_e8m0fnu", Format::e8m0},
    Alias{"i8", Format::int8},
    Alias{"s8", Format::int8},
    Alias{"int32", Format::i32},
    Alias{"s32", Format::i32},
};

std::string normalise(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  if (name.starts_with(kTorch)) name.remove_prefix(kTorch.size());
  std::string folded(name);
  for (char& c : folded) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return folded;
}

}  // namespace

std::span<const FormatInfo> formats() { return kFormatTable; }

const FormatInfo& info(Format format) { return kFormatTable[static_cast<std::size_t>(format)]; }

std::string_view name(Format format) { return info(format).name; }

std::optional<Format> format_from_name(std::string_view name) {
  const std::string wanted = normalise(name);
  for (const FormatInfo& row : kFormatTable) {
    if (row.name == wanted) return row.format;
  }
  for (const Alias& alias : kAliases) {
    if (alias.name == wanted) return alias.format;
  }
  return std::nullopt;
}

}  // namespace nanscope
