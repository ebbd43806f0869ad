#pragma once
#include <filesystem>
#include <string_view>

#include "core/result.h"

/// Names under which this process writes what is not whole yet. The list is of the process, as the names are: a program
/// that is told to end removes them, whichever thread works on them.
namespace nanscope::temporaries {

/// Beside `target`, a name that nobody can guess and that no file has.
/// Errors: no random bytes can be had.
Result<std::filesystem::path> name_beside(const std::filesystem::path& target);

/// Whether `name` is one that name_beside() gives for a target called `target`.
bool is_beside(std::string_view name, std::string_view target);

/// From now on remove_all() removes it: a file with SQLite's journal beside it, or a folder with all in it.
/// Errors: remove_all() was called, the process is about to end.
Status enter(const std::filesystem::path& path);
/// It has its own name now, or is gone.
void leave(const std::filesystem::path& path);

/// Removes a file with SQLite's journal beside it, or a folder. What cannot be removed is left.
void discard(const std::filesystem::path& path) noexcept;

/// Removes all that is entered; nothing can be entered afterwards. For a process that ends right after: those who work
/// on these files still do. Waits for other threads a tenth of a second at most.
void remove_all() noexcept;

}  // namespace nanscope::temporaries
