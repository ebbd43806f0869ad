#include "instrument/dump/containers/npz.h"

#include <utility>

#include "instrument/dump/containers/npy.h"
#include "instrument/dump/containers/zip_archive.h"

namespace nanscope {
namespace {

constexpr std::string_view kSuffix = ".npy";

class Npz final : public Container {
 public:
  explicit Npz(ZipArchive archive) : archive_(std::move(archive)) {}

  Status add(const ZipMember& member) {
    if (!member.name.ends_with(kSuffix)) {
      skipped_.push_back({member.name, "the archive's member is no .npy file"});
      return {};
    }
    const std::string key = member.name.substr(0, member.name.size() - kSuffix.size());
    const auto head = archive_.beginning(member, kMaxNpyHeader + 12);
    if (!head) return tl::unexpected(head.error());
    auto array = parse_npy(head->bytes, member.size, where(member), base(member));
    if (!array) return tl::unexpected(array.error());
    if (array->dtype == nullptr) {
      skipped_.push_back({key, std::move(array->unreadable)});
      return {};
    }
    tensors_.push_back({key, array->dtype, array->shape, base(member) + array->data, array->note});
    arrays_.push_back({&member, std::move(*array)});
    return {};
  }

  const ZipArchive& archive() const { return archive_; }

  Result<TensorBytes> bytes(std::size_t tensor) const override {
    const auto& [member, array] = arrays_.at(tensor);
    const auto content = archive_.content(*member);
    if (!content) return tl::unexpected(content.error());
    return npy_bytes(array, content->bytes, content->owner, where(*member));
  }

 private:
  struct Array {
    const ZipMember* member;
    NpyArray array;
  };

  /// Offsets are in the file where the member lies in it as it is, else in the member.
  static std::uint64_t base(const ZipMember& member) { return member.deflated ? 0 : member.data; }
  std::string where(const ZipMember& member) const { return archive_.name() + ": " + printable(member.name); }

  ZipArchive archive_;
  std::vector<Array> arrays_;
};

Result<std::unique_ptr<Container>> open(const std::filesystem::path& path) {
  auto file = map_file(path);
  if (!file) return tl::unexpected(file.error());
  return open_npz(std::move(*file));
}

}  // namespace

Result<std::unique_ptr<Container>> open_npz(FileBytes file) {
  auto archive = ZipArchive::read(std::move(file));
  if (!archive) return tl::unexpected(archive.error());
  auto npz = std::make_unique<Npz>(std::move(*archive));
  for (const ZipMember& member : npz->archive().members()) {
    const auto added = npz->add(member);
    if (!added) return tl::unexpected(added.error());
  }
  return npz;
}

ContainerKind npz_container() { return {"npz", {".npz", ".zip"}, is_zip, open}; }

}  // namespace nanscope
