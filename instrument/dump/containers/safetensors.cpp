#include "instrument/weights/safetensors.h"

#include <utility>

#include "instrument/dump/container.h"
#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/containers/safetensors.h"

namespace nanscope {
namespace {

class Safetensors final : public Container {
 public:
  Safetensors(FileBytes file, SafetensorsHeader header) : file_(std::move(file), header.entries.size()) {
    metadata_ = std::move(header.metadata);
    tensors_.reserve(header.entries.size());
    for (SafetensorsEntry& entry : header.entries) {
      const Dtype* dtype = find_dtype(entry.dtype);
      if (const Dtype* part = dtype == nullptr ? nullptr : part_of_complex(*dtype)) {
        dtype = part;
        entry.shape.push_back(2);
      }
      if (dtype == nullptr || dtype->kind == DtypeKind::complex) {
        skipped_.push_back({std::move(entry.name), "dtype " + printable(entry.dtype) + " cannot be read as numbers"});
        continue;
      }
      tensors_.push_back({std::move(entry.name), dtype, std::move(entry.shape), header.data_begin + entry.begin, {}});
    }
  }

  Result<TensorBytes> bytes(std::size_t tensor) const override {
    const ContainedTensor& wanted = tensors_.at(tensor);
    const std::uint64_t size = wanted.dtype->bytes(wanted.count());
    const auto file = file_.hold(size);
    if (!file) return tl::unexpected(file.error());
    return TensorBytes{file->bytes.subspan(wanted.offset, size), file->owner};
  }
  Status check() const override { return file_.check(); }

 private:
  KeptFile file_;
};

/// The header's length, whose upper bytes are zero below the format's limit, and its brace.
bool recognises_safetensors(std::span<const std::byte> head) {
  return head.size() > 8 && little_endian<std::uint64_t>(head, 0) <= kMaxSafetensorsHeader && head[8] == std::byte{'{'};
}

Result<std::unique_ptr<Container>> open_safetensors_file(const std::filesystem::path& path) {
  return open_safetensors(path);
}

}  // namespace

Result<std::unique_ptr<Container>> open_safetensors(const std::filesystem::path& path) {
  auto file = map_file(path);
  if (!file) return tl::unexpected(file.error());
  return open_safetensors(std::move(*file));
}

Result<std::unique_ptr<Container>> open_safetensors(FileBytes file) {
  auto header = parse_safetensors(file.bytes, file.name);
  if (!header) return tl::unexpected(header.error());
  return std::make_unique<Safetensors>(std::move(file), std::move(*header));
}

ContainerKind safetensors_container() {
  return {"safetensors", {".safetensors"}, recognises_safetensors, open_safetensors_file};
}

}  // namespace nanscope
