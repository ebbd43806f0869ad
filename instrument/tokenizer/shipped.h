#pragma once
#include "core/result.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {

/// The project's own vocabulary of 512 tokens (instrument/corpus/tokenizer.json), inside the binary.
Result<Tokenizer> load_shipped_tokenizer();

}  // namespace nanscope
