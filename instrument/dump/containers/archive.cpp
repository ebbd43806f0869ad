#include "instrument/dump/containers/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/containers/npy.h"
#include "instrument/dump/containers/npz.h"
#include "instrument/dump/containers/pt.h"
#include "instrument/dump/containers/safetensors.h"
#include "instrument/dump/containers/zip_archive.h"
#include "instrument/files/read_budget.h"

namespace nanscope {
namespace {

constexpr std::uint64_t kTarBlock = 512;
constexpr std::size_t kMostMembers = 100'000;

/// A member's container, and the archive that it is read from.
class Member final : public Container {
 public:
  Member(std::unique_ptr<Container> inner, std::shared_ptr<const KeptFile> archive)
      : inner_(std::move(inner)), archive_(std::move(archive)) {
    tensors_.assign(inner_->tensors().begin(), inner_->tensors().end());
    skipped_.assign(inner_->skipped().begin(), inner_->skipped().end());
    metadata_ = inner_->metadata();
  }
  Result<TensorBytes> bytes(std::size_t tensor) const override { return inner_->bytes(tensor); }
  Status check() const override { return archive_->check(); }

 private:
  std::unique_ptr<Container> inner_;
  std::shared_ptr<const KeptFile> archive_;
};

using Opener = Result<std::unique_ptr<Container>> (*)(FileBytes);

/// How a member is opened, by its name; null for what holds no tensors.
Opener opener_of(std::string_view name) {
  if (name.ends_with(".safetensors")) return open_safetensors;
  if (name.ends_with(".npy")) return open_npy;
  if (name.ends_with(".npz")) return open_npz;
  if (name.ends_with(".pt") || name.ends_with(".pth")) return open_pt;
  return nullptr;
}

class Reader {
 public:
  explicit Reader(FileBytes file)
      : name_(file.name),
        bytes_(file.bytes),
        owner_(file.owner),
        kept_(std::make_shared<KeptFile>(std::move(file), KeptFile::kMany)),
        budget_(bytes_.size()) {}

  Result<OpenArchive> read() {
    const bool zip = is_zip(bytes_);
    if (Status done = zip ? read_zip() : read_tar(); !done) return tl::unexpected(done.error());
    return std::move(out_);
  }

 private:
  /// `bytes` are of the archive itself or were unpacked from it.
  Status add(const std::string& name, TensorBytes bytes) {
    const auto open = opener_of(name);
    if (open == nullptr) return {};
    auto inner = open({name_ + ": " + printable(name), bytes.bytes, std::move(bytes.owner)});
    if (!inner) {
      out_.unread.push_back({name, inner.error().message});
      return {};
    }
    if (!budget_.take(3 * sizeof(ContainedTensor) * (*inner)->tensors().size())) return too_much();
    out_.members.push_back({name, std::make_unique<Member>(std::move(*inner), kept_)});
    return {};
  }

  tl::unexpected<Error> too_much() const {
    return fail(name_ + ": its members would take more than four times the archive in memory: extract it first");
  }

  Status read_zip() {
    auto archive = ZipArchive::read({name_, bytes_, owner_});
    if (!archive) return tl::unexpected(archive.error());
    for (const ZipMember& member : archive->members()) {
      if (opener_of(member.name) == nullptr) continue;
      if (member.deflated && !budget_.take(member.size)) return too_much();
      auto content = archive->content(member);
      if (!content) {
        out_.unread.push_back({member.name, content.error().message});
        continue;
      }
      if (!member.deflated) content->owner = owner_;
      if (Status added = add(member.name, std::move(*content)); !added) return added;
    }
    return {};
  }

  std::string_view text_at(std::uint64_t offset, std::uint64_t length) const {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + offset, length);
    return text.substr(0, text.find('\0'));
  }

  /// An octal number, as every writer of names and sizes below 8 GiB has it.
  std::optional<std::uint64_t> octal_at(std::uint64_t offset, std::uint64_t length) const {
    std::string_view text = text_at(offset, length);
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    std::uint64_t value = 0;
    std::size_t digits = 0;
    for (const char c : text) {
      if (c < '0' || c > '7') break;
      value = value * 8 + static_cast<std::uint64_t>(c - '0');
      ++digits;
    }
    return digits == 0 ? std::nullopt : std::optional(value);
  }

  /// "path" of the records "LENGTH KEY=VALUE\n" of a pax header.
  static std::string pax_path(std::string_view records) {
    constexpr std::string_view kPath = " path=";
    const std::size_t at = records.find(kPath);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = records.substr(at + kPath.size());
    return std::string(rest.substr(0, rest.find('\n')));
  }

  Status read_tar() {
    std::string long_name;
    std::size_t members = 0;
    for (std::uint64_t at = 0; at + kTarBlock <= bytes_.size();) {
      if (bytes_[at] == std::byte{0}) break;  // the end
      const auto size = octal_at(at + 124, 12);
      const std::uint64_t begin = at + kTarBlock;
      if (text_at(at + 257, 5) != "ustar" || !size)
        return refuse(name_, at, "no header of a tar's member, expected one");
      if (*size > bytes_.size() - begin)
        return refuse(name_, at,
                      fmt::format("a member of {} bytes, and the file ends after {}", *size, bytes_.size() - begin));
      if (++members > kMostMembers) return refuse(name_, at, fmt::format("more than {} members", kMostMembers));
      const char type = static_cast<char>(bytes_[at + 156]);
      const std::string_view content(reinterpret_cast<const char*>(bytes_.data()) + begin, *size);
      if (type == 'x') {
        long_name = pax_path(content);
      } else if (type == 'L') {
        long_name = content.substr(0, content.find('\0'));
      } else if (type == '0' || type == '\0') {
        std::string name = long_name.empty() ? tar_name(at) : long_name;
        while (name.starts_with("./")) name.erase(0, 2);
        long_name.clear();
        if (const auto problem = path_problem(name))
          return refuse(name_, at, "the member's name " + in_quotes(name) + ' ' + *problem);
        if (Status added = add(name, {bytes_.subspan(begin, *size), owner_}); !added) return added;
      }
      at = begin + (*size + kTarBlock - 1) / kTarBlock * kTarBlock;
    }
    return {};
  }

  std::string tar_name(std::uint64_t at) const {
    const std::string_view folder = text_at(at + 345, 155);
    const std::string name(text_at(at, 100));
    return folder.empty() ? name : std::string(folder) + '/' + name;
  }

  std::string name_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const KeptFile> kept_;
  ReadBudget budget_;
  OpenArchive out_;
};

}  // namespace

bool is_archive_of_files(const std::filesystem::path& path, std::span<const std::byte> head) {
  const std::string extension = path.extension().string();
  if (extension == ".tar") return true;
  if (extension != ".zip" || !is_zip(head)) return false;
  // One of arrays alone is numpy's, whatever it is called.
  const auto file = map_file(path);
  const auto archive = file ? ZipArchive::read(*file) : Result<ZipArchive>(tl::unexpected(file.error()));
  return archive && std::any_of(archive->members().begin(), archive->members().end(), [](const ZipMember& member) {
           return opener_of(member.name) != nullptr && !member.name.ends_with(".npy");
         });
}

Result<OpenArchive> open_archive(const std::filesystem::path& path) {
  auto file = map_file(path);
  if (!file) return tl::unexpected(file.error());
  return Reader(std::move(*file)).read();
}

}  // namespace nanscope
