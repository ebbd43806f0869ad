#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "core/place.h"

namespace nanscope::gui {

/// As one word of a shell: between apostrophes unless nothing in it means anything there.
std::string shell_word(std::string_view text);

/// The command that opens a run with a place selected, to be sent to somebody: nanscope gui FILE --at PLACE. The file
/// is named in full.
/// The file's whole path as a word of a shell.
std::string shell_file(const std::filesystem::path& run);
std::string link_to(const std::filesystem::path& run, const Place& place);

}  // namespace nanscope::gui
