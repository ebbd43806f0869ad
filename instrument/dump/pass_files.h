#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "instrument/dump/listing.h"

namespace nanscope {

/// Files of one forward pass, by their numbers in DumpListing::files, or one file of no pass.
struct PassFiles {
  std::optional<std::int64_t> rank;
  std::vector<std::size_t> files;
  std::uint64_t bytes = 0;
};

/// The files of a dump by the passes that they are of.
struct FilesByPass {
  std::vector<PassFiles> passes;
  /// Weights, and what else may belong to several passes.
  std::vector<PassFiles> outside;

  /// A listing of some passes, and of the files outside of passes that they may need.
  DumpListing listing_of(const DumpListing& whole, std::span<const PassFiles* const> passes) const;
};

/// What names of folders and files say, without a file being opened. Nothing where a producer's directory says what
/// the files are.
std::optional<FilesByPass> files_by_pass(const DumpListing& listing);

}  // namespace nanscope
