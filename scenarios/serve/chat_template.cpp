#include "scenarios/serve/chat_template.h"

#include <cstdint>
#include <system_error>

#include "core/parse_json.h"
#include "instrument/files/file.h"

namespace nanscope::serve {

bool has_chat_template(const std::filesystem::path& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder / "chat_template.jinja", error)) return true;
  constexpr std::uint64_t kMost = std::uint64_t{64} << 20;
  const auto bytes = read_file(folder / "tokenizer_config.json", kMost);
  return bytes && parse_json_or_none(as_text(*bytes)).contains("chat_template");
}

}  // namespace nanscope::serve
