#pragma once
#include <string>
#include <string_view>

#include "core/result.h"

namespace nanscope {

/// A split pattern of a tokenizer.json as PCRE2 reads it. The `tokenizers` package compiles it with Oniguruma in its
/// Ruby syntax, which differs: `^` and `$` are those of lines, `{1,3}+` repeats the repetition, `\p{Han}` is the script
/// alone. Errors: what the two read differently and has no simple counterpart, by name (`\b`, `\h`, `(?m)`, classes
/// inside classes, references ...).
Result<std::string> pcre2_pattern(std::string_view pattern);

}  // namespace nanscope
