#include "core/run/op_kind.h"

namespace nanscope {

std::string_view name(OpKind kind) {
  switch (kind) {
#define NANSCOPE_OP_KIND(enumerator, word, rows, attributes) \
  case OpKind::enumerator:                                   \
    return word;
#include "core/run/op_kinds.def"
#undef NANSCOPE_OP_KIND
  }
  return {};
}

std::optional<OpKind> op_kind(std::string_view word) {
#define NANSCOPE_OP_KIND(enumerator, text, rows, attributes) \
  if (word == (text)) return OpKind::enumerator;
#include "core/run/op_kinds.def"
#undef NANSCOPE_OP_KIND
  return std::nullopt;
}

// Cases of a table may be equal.
// NOLINTNEXTLINE(bugprone-branch-clone)
bool by_row(OpKind kind) {
  enum class Rows : std::uint8_t { by_row, mixed };
  switch (kind) {
#define NANSCOPE_OP_KIND(enumerator, word, rows, attributes) \
  case OpKind::enumerator:                                   \
    return Rows::rows == Rows::by_row;
#include "core/run/op_kinds.def"
#undef NANSCOPE_OP_KIND
  }
  return false;
}

}  // namespace nanscope
