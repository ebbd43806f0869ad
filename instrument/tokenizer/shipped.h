#pragma once
#include <string_view>

#include "core/result.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {

/// The project's own vocabulary of 512 tokens (instrument/corpus/tokenizer.json), inside the binary.
Result<Tokenizer> load_shipped_tokenizer();

/// The text of that file.
std::string_view shipped_tokenizer_json();

}  // namespace nanscope
