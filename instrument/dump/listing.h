#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/dump/dump.h"
#include "core/result.h"

namespace nanscope {

struct DumpFile {
  std::filesystem::path path;
  std::string shown;  ///< its path below the dump, with '/'

  std::string folder() const;    ///< of `shown`; empty for the dump's own
  std::string filename() const;  ///< with its extension
  std::string stem() const;      ///< without the last one
};

/// The files of a dump, in natural order.
struct DumpListing {
  std::filesystem::path root;
  std::vector<DumpFile> files;
  /// Links that lead nowhere or to folders, folders that cannot be read or lie too deep: what is not looked at.
  std::vector<RunNote> left_out;
};

/// Regular files at or below `path`. Links to folders are not followed: they may lead back.
/// Errors: nothing there, more than a million files.
Result<DumpListing> list_dump(const std::filesystem::path& path);

}  // namespace nanscope
