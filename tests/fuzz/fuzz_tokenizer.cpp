#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "instrument/tokenizer/shipped.h"
#include "instrument/tokenizer/tokenizer.h"

/// The input is tried as a tokenizer.json, and as a text for the shipped tokenizer, which must give
/// every byte back.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const nanscope::Tokenizer shipped = nanscope::load_shipped_tokenizer().value();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto ids = shipped.encode(text);
  if (!ids || shipped.decode(*ids) != text) std::abort();
  const auto parsed = nanscope::Tokenizer::parse(text, "fuzz");
  if (parsed) static_cast<void>(parsed->encode(text.substr(0, 256)));
  return 0;
}
