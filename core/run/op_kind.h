#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace nanscope {

/// What an op computes; op_kinds.def is the table.
enum class OpKind : std::uint8_t {
#define NANSCOPE_OP_KIND(kind, word, rows, attributes) kind,
#include "core/run/op_kinds.def"
#undef NANSCOPE_OP_KIND
};

/// The word that stands in recordings.
std::string_view name(OpKind kind);
/// Nothing for a word that is in no table.
std::optional<OpKind> op_kind(std::string_view word);
/// Output row r depends on row r of the inputs alone.
bool by_row(OpKind kind);

}  // namespace nanscope
