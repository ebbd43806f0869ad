#include "core/run/op_kind.h"

#include <array>
#include <cstddef>

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

bool by_row(OpKind kind) {
  enum class Rows : std::uint8_t { by_row, mixed };
  static constexpr std::array kOfKinds{
#define NANSCOPE_OP_KIND(enumerator, word, rows, attributes) Rows::rows,
#include "core/run/op_kinds.def"
#undef NANSCOPE_OP_KIND
  };
  return kOfKinds.at(static_cast<std::size_t>(kind)) == Rows::by_row;
}

}  // namespace nanscope
