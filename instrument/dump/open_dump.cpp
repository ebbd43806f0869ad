#include "instrument/dump/open_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "instrument/dump/scan.h"

namespace nanscope {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMostFiles = 1'000'000;
constexpr int kDeepest = 32;
constexpr std::size_t kHead = 16;

Result<std::vector<std::byte>> head_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return fail(file.string() + ": cannot open");
  std::array<char, kHead> head{};
  stream.read(head.data(), head.size());
  const auto got = static_cast<std::size_t>(std::max<std::streamsize>(0, stream.gcount()));
  std::vector<std::byte> bytes(got);
  std::transform(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(got), bytes.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

/// Regular files below a folder, in natural order. Links to folders are not followed: they may lead back.
Result<std::vector<fs::path>> files_below(const fs::path& root) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, error);
  if (error) return fail(fmt::format("{}: cannot list: {}", root.string(), error.message()));
  for (const fs::recursive_directory_iterator end; it != end; it.increment(error)) {
    if (error) return fail(fmt::format("{}: cannot list: {}", root.string(), error.message()));
    if (it.depth() >= kDeepest) it.disable_recursion_pending();
    std::error_code unreadable;  // a link that leads nowhere or to itself
    if (it->is_regular_file(unreadable)) files.push_back(it->path());
    if (files.size() > kMostFiles) return fail(fmt::format("{}: more than {} files", root.string(), kMostFiles));
  }
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return natural_less(a.generic_string(), b.generic_string()); });
  return files;
}

std::string without_extension(std::string name, const ContainerKind& kind) {
  for (const std::string_view extension : kind.extensions) {
    if (extension.starts_with('.') && name.ends_with(extension)) return name.substr(0, name.size() - extension.size());
  }
  return name;
}

/// Codes of fp8 that a producer without such a dtype stored as bytes.
std::optional<Format> format_of(const DumpTensor& tensor) {
  if (tensor.dtype->format && *tensor.dtype->format != Format::i32) return tensor.dtype->format;
  const std::string& role = tensor.at.role;
  const bool codes = role == "k_cache" || role == "v_cache" || role == "kv_cache" || role.ends_with("_codes");
  if (codes && tensor.dtype->name == "u8") return Format::e4m3;
  return std::nullopt;
}

}  // namespace

void OpenDump::add_tensors(const std::shared_ptr<Container>& container, const std::string& shown) {
  const std::string folder = fs::path(shown).parent_path().generic_string();
  const std::string stem = fs::path(shown).stem().generic_string();
  const auto tensors = container->tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    DumpTensor tensor;
    const std::string key = tensors[i].key.empty() ? stem : tensors[i].key;
    tensor.name = folder.empty() ? key : folder + '/' + key;
    tensor.at = parse_tensor_name(tensor.name);
    // A file a step is no folder, and no part of the name, but says when.
    const TensorName file = parse_tensor_name(stem + "/x");
    if (!tensor.at.step) tensor.at.step = file.step;
    if (!tensor.at.rank) tensor.at.rank = file.rank;
    if (!tensor.at.request) tensor.at.request = file.request;
    tensor.dtype = tensors[i].dtype;
    tensor.shape = tensors[i].shape;
    tensor.format = format_of(tensor);
    tensor.file = shown;
    tensor.source = sources_.size();
    tensor.health = empty_health();
    if (!tensors[i].note.empty()) dump_.notes.push_back({tensor.name, tensors[i].note});
    sources_.push_back({container, i});
    dump_.tensors.push_back(std::move(tensor));
  }
  for (const SkippedTensor& skipped : container->skipped()) {
    dump_.notes.push_back({folder.empty() ? skipped.key : folder + '/' + skipped.key, skipped.reason});
  }
}

Status OpenDump::open_file(const fs::path& file, const std::string& shown) {
  const auto head = head_of(file);
  if (!head) return tl::unexpected(head.error());
  const ContainerKind* kind = container_kind_of(file, *head);
  if (kind == nullptr) return {};
  Result<std::unique_ptr<Container>> opened = kind->open(file);
  if (!opened) return tl::unexpected(opened.error());
  if (dump_.producer.empty()) dump_.producer = std::string(kind->name);
  add_tensors(std::shared_ptr<Container>(std::move(*opened)), without_extension(shown, *kind));
  return {};
}

Status OpenDump::find_files(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error || !fs::exists(status))
    return fail(fmt::format("{}: {}", path.string(), error ? error.message() : "not there"));
  if (!fs::is_directory(status)) return open_file(path, path.filename().generic_string());
  Result<std::vector<fs::path>> files = files_below(path);
  if (!files) return tl::unexpected(files.error());
  std::set<fs::path> parts;
  // Directories of other files first: what they list is read through them.
  std::stable_partition(files->begin(), files->end(), [](const fs::path& file) {
    return file.extension() == ".json" || file.extension() == ".jsonl";
  });
  for (const fs::path& file : *files) {
    if (parts.contains(file)) continue;
    const std::size_t before = sources_.size();
    if (Status opened = open_file(file, file.lexically_relative(path).generic_string()); !opened) return opened;
    for (std::size_t i = before; i < sources_.size(); ++i) {
      for (const fs::path& part : sources_[i].container->parts()) parts.insert(part);
    }
  }
  return {};
}

Status OpenDump::scan(const OpenDumpOptions& options) {
  Result<std::unique_ptr<kernels::Device>> device = kernels::make_cpu_device(kernels::Isa::best, options.threads);
  if (!device) return tl::unexpected(device.error());
  device_ = std::move(*device);
  std::uint64_t total = 0;
  for (const DumpTensor& tensor : dump_.tensors)
    total += tensor.dtype->bytes(static_cast<std::uint64_t>(tensor.count()));
  std::uint64_t scanned = 0;
  const auto done = [&](std::size_t more) {
    scanned += more;
    if (options.progress) options.progress(scanned, total);
  };
  for (DumpTensor& tensor : dump_.tensors) {
    const Result<TensorBytes> held = bytes(tensor);
    if (!held) return tl::unexpected(held.error());
    Result<Health> health = scan_tensor(*device_, tensor, held->bytes, done, options.stop);
    if (!health) return tl::unexpected(health.error());
    tensor.health = *health;
  }
  return {};
}

Result<std::unique_ptr<OpenDump>> OpenDump::open(const fs::path& path, const OpenDumpOptions& options) {
  std::unique_ptr<OpenDump> dump(new OpenDump());
  dump->dump_.target = path.string();
  if (Status found = dump->find_files(path); !found) return tl::unexpected(found.error());
  if (dump->dump_.tensors.empty()) {
    return fail(
        fmt::format("{}: holds no tensors that nanscope reads: expected safetensors, .npy, .npz, .pt or raw files with "
                    "a manifest",
                    path.string()));
  }
  sort_by_execution(dump->dump_.tensors);
  const auto known = std::count_if(dump->dump_.tensors.begin(), dump->dump_.tensors.end(),
                                   [](const DumpTensor& t) { return t.at.known; });
  dump->dump_.unknown = dump->dump_.tensors.size() - static_cast<std::size_t>(known);
  if (Status scanned = dump->scan(options); !scanned) return tl::unexpected(scanned.error());
  return dump;
}

Result<TensorBytes> OpenDump::bytes(const DumpTensor& tensor) const {
  const Source& source = sources_[tensor.source];
  return source.container->bytes(source.tensor);
}

Result<std::vector<float>> OpenDump::values(const DumpTensor& tensor, std::int64_t first, std::int64_t count) {
  const Result<TensorBytes> held = bytes(tensor);
  if (!held) return tl::unexpected(held.error());
  const Dtype* dtype = tensor.dtype;
  // Bytes that are codes of a format are read as that format.
  if (tensor.format && dtype->format != tensor.format) dtype = find_dtype(name(*tensor.format));
  if (dtype == nullptr) dtype = tensor.dtype;
  return decode_values(*dtype, held->bytes, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(count));
}

Result<std::vector<std::uint32_t>> OpenDump::codes(const DumpTensor& tensor, std::int64_t first, std::int64_t count) {
  const Result<TensorBytes> held = bytes(tensor);
  if (!held) return tl::unexpected(held.error());
  if (tensor.dtype->bits > 32) return fail(tensor.name + ": has no codes of at most 32 bits");
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    codes[static_cast<std::size_t>(i)] = stored_code(*tensor.dtype, held->bytes, static_cast<std::uint64_t>(first + i));
  }
  return codes;
}

Result<std::vector<Health>> OpenDump::row_health(const DumpTensor& tensor) {
  const Result<TensorBytes> held = bytes(tensor);
  if (!held) return tl::unexpected(held.error());
  return scan_rows(*device_, tensor, held->bytes);
}

}  // namespace nanscope
