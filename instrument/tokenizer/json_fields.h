#pragma once
#include <nlohmann/json.hpp>
#include <string>

/// What the readers of a tokenizer.json share.
namespace nanscope::fields {

using nlohmann::json;

/// Short form of a text from the file, for one-line messages.
std::string shown(const std::string& text);

/// The member `key` of an object; null when there is none or `node` is no object.
const json& member(const json& node, const char* key);

/// The same where it is a text; empty otherwise.
std::string text_of(const json& node, const char* key);

/// The same where it is true or false; `otherwise` otherwise.
bool flag_of(const json& node, const char* key, bool otherwise);

}  // namespace nanscope::fields
