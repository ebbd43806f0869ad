#pragma once
#include <string>

#include "core/result.h"
#include "instrument/gguf/gguf_file.h"

namespace nanscope {

/// Whether the metadata hold a tokenizer that tokenizer_of_gguf() understands: byte-level BPE whose way to split a text
/// is known by its name.
bool has_tokenizer(const GgufHeader& header);

/// That tokenizer as the text of a tokenizer.json; `file` is what errors call the file. Errors: another kind of
/// tokenizer, tokens or merges that are missing or no texts.
Result<std::string> tokenizer_of_gguf(const GgufHeader& header, const std::string& file);

}  // namespace nanscope
