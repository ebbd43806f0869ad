#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/dump/container.h"

/// A dump that was packed into one file: a zip, or a tar that is not compressed. Nothing is extracted; each member
/// is read as the file that it would be.
namespace nanscope {

struct ArchiveMember {
  std::string name;  ///< with its folders; none leaves the archive
  std::unique_ptr<Container> container;
};

struct OpenArchive {
  std::vector<ArchiveMember> members;  ///< in the order of the archive
  std::vector<SkippedTensor> unread;   ///< members that hold tensors and cannot be read, with the reason
};

/// Whether a file is one, by its name and what it holds: what numpy and torch write is none.
bool is_archive_of_files(const std::filesystem::path& path, std::span<const std::byte> head);
Result<OpenArchive> open_archive(const std::filesystem::path& path);

}  // namespace nanscope
