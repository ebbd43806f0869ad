#include "instrument/live/command_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace nanscope::live {
namespace {

constexpr std::string_view kMask = "***";

/// "API-Key" as "api_key".
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    text += std::isalnum(letter) != 0 ? static_cast<char>(std::tolower(letter)) : '_';
  }
  return text;
}

/// "--hf-token", "OPENAI_API_KEY", but neither "--max-tokens" nor "--tokenizer".
bool names_a_secret(std::string_view name) {
  const std::string text = plain(name);
  constexpr std::array kWithin = {"api_key",    "apikey",      "secret",     "password", "passwd",       "passphrase",
                                  "credential", "private_key", "access_key", "auth_key", "authorization"};
  const bool within = std::any_of(kWithin.begin(), kWithin.end(),
                                  [&](const char* part) { return text.find(part) != std::string::npos; });
  return within || text.ends_with("token") || text.ends_with("_auth");
}

bool looks_secret(std::string_view value) {
  constexpr std::array<std::string_view, 9> kBeginnings = {"sk-",    "hf_",   "ghp_",  "gho_", "github_pat_",
                                                           "glpat-", "xoxb-", "xoxp-", "AKIA"};
  constexpr std::size_t kLeast = 16;
  return value.size() >= kLeast && std::any_of(kBeginnings.begin(), kBeginnings.end(), [&](std::string_view beginning) {
           return value.starts_with(beginning);
         });
}

/// "https://user:***@host" of a URL with a password.
std::string without_password(const std::string& text) {
  const std::size_t scheme = text.find("://");
  if (scheme == std::string::npos) return text;
  const std::size_t end = text.find_first_of("/?#", scheme + 3);
  const std::size_t at = text.substr(0, end).rfind('@');
  const std::size_t colon = text.find(':', scheme + 3);
  if (at == std::string::npos || colon == std::string::npos || colon > at) return text;
  return text.substr(0, colon + 1).append(kMask) + text.substr(at);
}

/// "NAME=value" or "Name: value", where the name tells that the value is secret.
std::string masked(const std::string& argument) {
  const std::size_t parted = argument.find_first_of("=:");
  if (parted != std::string::npos && parted > 0 && names_a_secret(std::string_view(argument).substr(0, parted))) {
    return argument.substr(0, parted + 1).append(kMask);
  }
  // "--env=NAME=value"
  if (parted != std::string::npos && argument[parted] == '=') {
    return argument.substr(0, parted + 1) + masked(argument.substr(parted + 1));
  }
  return looks_secret(argument) ? std::string(kMask) : without_password(argument);
}

}  // namespace

std::string masked_command(std::span<const std::string> arguments) {
  std::string text;
  bool secret = false;  // the argument before says so
  for (const std::string& argument : arguments) {
    const bool option = argument.starts_with('-');
    if (!text.empty()) text += ' ';
    text += secret && !argument.starts_with("--") ? std::string(kMask) : masked(argument);
    secret = option && argument.find('=') == std::string::npos && names_a_secret(argument);
  }
  return text;
}

}  // namespace nanscope::live
