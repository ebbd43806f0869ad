#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/dump/dump.h"
#include "core/result.h"
#include "instrument/files/file.h"

namespace nanscope {

struct DumpFile {
  std::filesystem::path path;
  std::string shown;  ///< its path below the dump, with '/'
  FileState state;    ///< when it was listed

  std::string folder() const;    ///< of `shown`; empty for the dump's own
  std::string filename() const;  ///< with its extension
  std::string stem() const;      ///< without the last one
};

/// Files that people and servers put beside tensors.
bool is_text_file(const DumpFile& file);

/// The files of a dump, in natural order.
struct DumpListing {
  std::filesystem::path root;
  std::vector<DumpFile> files;
  /// Links that lead nowhere, out of the dump or to folders, folders that cannot be read or lie too deep, pipes,
  /// sockets and devices: what is not looked at.
  std::vector<RunNote> left_out;
  bool partial = false;  ///< there are more files than these
};

/// Regular files at or below `path`. Links to folders are not followed: they may lead back; and those to files out of
/// the dump only where `follow_links` says so: a dump of somebody else's may name any file of this machine.
/// Errors: nothing there, no file and no folder, more than a million files, no descriptors left.
Result<DumpListing> list_dump(const std::filesystem::path& path, bool follow_links = false);

/// Whether a path lies below a folder once all links are resolved.
bool lies_below(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace nanscope
