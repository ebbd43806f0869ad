#pragma once
#include <filesystem>

namespace nanscope::serve {

/// Whether a checkpoint's folder states how a chat becomes a prompt: chat_template.jinja, or the key chat_template of
/// tokenizer_config.json.
bool has_chat_template(const std::filesystem::path& folder);

}  // namespace nanscope::serve
