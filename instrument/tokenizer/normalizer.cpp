#include "instrument/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <utility>

#include "instrument/files/utf8.h"
#include "instrument/tokenizer/character.h"

namespace nanscope {
namespace {

Result<std::string> normalize_nfc(std::string_view text) {
  std::string out;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t size = utf8_prefix(text.substr(begin));
    if (size == 0) {
      out += text[begin++];
      continue;
    }
    utf8proc_uint8_t* mapped = nullptr;
    const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + begin),
                                     static_cast<utf8proc_ssize_t>(size), &mapped,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
    if (length < 0) return fail(std::string("cannot normalize the text: ") + utf8proc_errmsg(length));
    out.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
    begin += size;
  }
  return out;
}

}  // namespace

Result<std::string> normalize(std::string_view text, std::span<const NormalizerStep> steps) {
  std::string out(text);
  for (const NormalizerStep& step : steps) {
    if (step.kind == NormalizerStep::Kind::nfc) {
      auto composed = normalize_nfc(out);
      if (!composed) return composed;
      out = std::move(*composed);
    } else if (step.kind == NormalizerStep::Kind::replace) {
      out = replace_all(out, step.from, step.to);
    } else if (!out.empty()) {
      out.insert(0, step.to);
    }
  }
  return out;
}

}  // namespace nanscope
