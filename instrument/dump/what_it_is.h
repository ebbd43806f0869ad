#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

/// Files that are no dump, called by their names.
namespace nanscope {

/// What is said of a text of no known sort.
inline constexpr std::string_view kSomeText = "a text, not tensors";

/// What a file is that holds no tensors which nanscope reads, and what to do or to set, in a clause; nothing where it
/// is not known.
std::optional<std::string> what_it_is(const std::filesystem::path& path);
/// The same of a file that is a text under the name of another kind: a page, a pointer.
std::optional<std::string> what_text_it_is(const std::filesystem::path& path);
/// Whether a path where nothing is may be the name of a repository on Hugging Face: "Qwen/Qwen3-8B".
bool may_be_repository(const std::filesystem::path& path);

}  // namespace nanscope
