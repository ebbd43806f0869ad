#include "instrument/dump/containers/npz.h"

#include <utility>

#include "instrument/dump/containers/npy.h"
#include "instrument/dump/containers/zip_archive.h"
#include "instrument/files/read_budget.h"

namespace nanscope {
namespace {

constexpr std::string_view kSuffix = ".npy";

class Npz final : public Container {
 public:
  explicit Npz(ZipArchive archive) : archive_(std::move(archive)), budget_(archive_.bytes()) {
    const std::size_t members = archive_.members().size();
    tensors_.reserve(members);
    arrays_.reserve(members);
  }

  Status add(const ZipMember& member) {
    if (!member.name.ends_with(kSuffix)) {
      return skip(member, member.name, "the archive's member is no .npy file");
    }
    const std::string key = member.name.substr(0, member.name.size() - kSuffix.size());
    const auto head = header_of(member);
    if (!head) return tl::unexpected(head.error());
    auto array = parse_npy(head->bytes, member.size, where(member), base(member));
    if (!array) return tl::unexpected(array.error());
    if (array->dtype == nullptr) {
      return skip(member, key, std::move(array->unreadable));
    }
    const std::uint64_t kept = text_bytes(key.size()) + text_bytes(array->note.size()) + 16 * array->shape.size();
    if (!budget_.take(kept)) return too_much(member);
    tensors_.push_back(
        {key, array->dtype, std::move(array->shape), base(member) + array->data, std::move(array->note)});
    arrays_.push_back({&member, {.data = array->data, .first_index_fastest = array->first_index_fastest}});
    return {};
  }

  const ZipArchive& archive() const { return archive_; }

  Result<TensorBytes> bytes(std::size_t tensor) const override {
    const auto& [member, place] = arrays_.at(tensor);
    const auto content = archive_.content(*member);
    if (!content) return tl::unexpected(content.error());
    return npy_bytes(tensors_[tensor], place, content->bytes, content->owner, where(*member));
  }
  Status check() const override { return archive_.check(); }

 private:
  struct Array {
    const ZipMember* member;
    NpyPlace place;
  };
  static constexpr std::uint64_t kUsualHeader = 512;

  tl::unexpected<Error> too_much(const ZipMember& member) const {
    return refuse(archive_.name(), member.data,
                  "the members' headers take more than four times the archive in memory, expected fewer members");
  }

  Status skip(const ZipMember& member, const std::string& key, std::string reason) {
    // Thrice, because the list doubles as it grows.
    if (!budget_.take(3 * sizeof(SkippedTensor) + text_bytes(key.size()) + 2 * reason.size())) return too_much(member);
    skipped_.push_back({key, std::move(reason)});
    return {};
  }

  /// A longer header is unpacked a second time: a small member may claim one of 64 KiB.
  Result<TensorBytes> header_of(const ZipMember& member) const {
    auto head = archive_.beginning(member, kUsualHeader);
    if (!head || npy_header_bytes(head->bytes) <= kUsualHeader) return head;
    const std::uint64_t bytes = npy_header_bytes(head->bytes);
    if (member.deflated && !budget_.fits(bytes)) return too_much(member);
    return archive_.beginning(member, bytes);
  }

  /// Offsets are in the file where the member lies in it as it is, else in the member.
  static std::uint64_t base(const ZipMember& member) { return member.deflated ? 0 : member.data; }
  std::string where(const ZipMember& member) const { return archive_.name() + ": " + printable(member.name); }

  ZipArchive archive_;
  ReadBudget budget_;
  std::vector<Array> arrays_;
};

Result<std::unique_ptr<Container>> open_npz_file(const std::filesystem::path& path) {
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

ContainerKind npz_container() { return {"npz", {".npz", ".zip"}, is_zip, open_npz_file}; }

}  // namespace nanscope
