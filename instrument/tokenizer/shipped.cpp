#include "instrument/tokenizer/shipped.h"

extern "C" const char nanscope_tokenizer_json_begin[];
extern "C" const char nanscope_tokenizer_json_end[];

namespace nanscope {

Result<Tokenizer> load_shipped_tokenizer() {
  return Tokenizer::parse(shipped_tokenizer_json(), "the shipped tokenizer.json");
}

std::string_view shipped_tokenizer_json() { return {nanscope_tokenizer_json_begin, nanscope_tokenizer_json_end}; }

}  // namespace nanscope
