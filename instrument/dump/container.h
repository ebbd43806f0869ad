#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dump/dtype.h"
#include "core/dump/dump.h"
#include "core/result.h"

/// Files that hold tensors. Each kind is one file in containers/ and one line in containers.def. All of
/// them are untrusted: sizes are checked against the file before anything is allocated, nothing in them
/// is executed, and an error names file, offset and reason in one line.
namespace nanscope {

/// Of a tensor; numpy and torch have no more.
inline constexpr std::size_t kMaxDimensions = 64;

/// One tensor of a file: `shape` elements, row-major, little-endian, without gaps.
struct ContainedTensor {
  std::string key;  ///< its name in the file; empty in files that hold one tensor without a name
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape;  ///< not negative, the product fits; empty for a scalar
  std::uint64_t offset = 0;         ///< of its first byte in the file, or of the archive member that holds it
  std::string note;                 ///< what the file leaves open, in a clause: "stored as |V1, ..."; mostly empty
  bool decoded = false;             ///< it is codes times scales already
  std::shared_ptr<const GemmAttributes> product = nullptr;  ///< of a weight: what its checkpoint says; or null

  std::uint64_t count() const;
};

/// A tensor that is named but cannot be read as numbers, and why: it is listed, not dropped in silence.
struct SkippedTensor {
  std::string key;
  std::string reason;
};

using TensorBytes = ElementBytes;

class Container {
 public:
  virtual ~Container() = default;
  /// In the order of the file.
  std::span<const ContainedTensor> tensors() const { return tensors_; }
  std::span<const SkippedTensor> skipped() const { return skipped_; }
  /// Text that the producer stored beside the tensors (safetensors' metadata, a manifest's fields).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Other files that this one is the directory of (shards, raw data): they are read through it, and
  /// whoever lists the folder should not read them a second time.
  std::span<const std::filesystem::path> parts() const { return parts_; }
  /// All bytes of one tensor. Mapped where the file holds them as they are; else (compressed members,
  /// strided views) made on demand, never more than the tensor's size. Thread-safe.
  virtual Result<TensorBytes> bytes(std::size_t tensor) const = 0;
  /// Error: a file of it was written to or replaced since it was opened, so that what was read may be neither the old
  /// nor the new.
  virtual Status check() const { return {}; }

 protected:
  std::vector<ContainedTensor> tensors_;
  std::vector<SkippedTensor> skipped_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::filesystem::path> parts_;
};

/// How a kind of file is known and opened.
struct ContainerKind {
  std::string_view name;  ///< safetensors, npy, npz, pt, raw ...
  /// Endings of file names; those without a leading dot are whole names.
  std::vector<std::string_view> extensions;
  /// Whether the file's first bytes (up to 16) are of this kind. Null for kinds that only their name tells.
  bool (*recognises)(std::span<const std::byte> head);
  Result<std::unique_ptr<Container>> (*open)(const std::filesystem::path& path);
};

std::span<const ContainerKind> container_kinds();
/// The kind of a file: by its first bytes, among several of the same bytes (npz and pt are both zip) by
/// its name too; else by its name alone, so that a damaged file is opened and refused with a reason. Null
/// when it holds no tensors that nanscope reads.
const ContainerKind* container_kind_of(const std::filesystem::path& path, std::span<const std::byte> head);

}  // namespace nanscope
