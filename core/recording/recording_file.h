#pragma once
#include <filesystem>

#include "core/files/output_file.h"
#include "core/result.h"

/// The file of a recording among other files, its journal with it.
namespace nanscope {

/// SQLite takes what lies beside a database for its own: it would play it into a new one, or remove it.
/// Errors: a journal of somebody else's lies there.
Status check_beside(const std::filesystem::path& recording);

/// Whether a recording could not be opened because another process holds it locked.
bool is_held_locked(const Error& error);

/// For a recording at `path`, see WriterOptions. Errors: those of check_output() and check_beside().
Result<OutputFile> create_recording_file(const std::filesystem::path& path, const OutputOptions& options, bool in_view);

/// Gives a recording that another process wrote, to its end or not, its name in the same folder.
/// Errors: those of rename_output() and check_beside(); it cannot be read. Then it stays where it is.
Status rename_recording(const std::filesystem::path& from, const std::filesystem::path& path,
                        const OutputOptions& options);

}  // namespace nanscope
