#include "instrument/live/watch_dump.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/files/output_file.h"
#include "core/numbers/format.h"
#include "instrument/weights/safetensors.h"

namespace nanscope::live {
namespace {

constexpr int kMostFolders = 1000;

/// An earlier finding is evidence too.
std::filesystem::path free_folder(const std::filesystem::path& folder) {
  std::filesystem::path name = folder;
  std::error_code error;
  for (int number = 2; number <= kMostFolders; ++number) {
    if (!std::filesystem::exists(std::filesystem::symlink_status(name, error))) break;
    name = folder.string() + fmt::format("-{}", number);
  }
  return name;
}

std::vector<SafetensorsInput> tensors_of(const Finding& finding) {
  std::vector<SafetensorsInput> tensors;
  for (const KeptBuffer& kept : finding.ring) {
    const std::size_t width = info(kept.format).storage_bytes();
    // A piece may end within an element of what its bytes look like.
    const std::size_t elements = kept.bytes.size() / width;
    if (elements == 0) continue;
    SafetensorsInput tensor;
    tensor.name = fmt::format("launch_{:06}.{}.{}.{}", kept.launch, kept.kernel, kept.written ? "output" : "input",
                              kept.argument);
    if (kept.offset > 0) tensor.name += fmt::format("_{}", kept.offset);
    tensor.dtype = safetensors_dtype(kept.format);
    tensor.shape = {static_cast<std::int64_t>(elements)};
    tensor.bytes = std::span(kept.bytes).first(elements * width);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

Result<WatchDump> write_watch_dump(const Finding& finding, const std::filesystem::path& folder) {
  WatchDump dump{free_folder(folder), 0};
  auto output = OutputFolder::create(dump.folder, {.durable = true, .mode = 0600});
  if (!output) return tl::unexpected(output.error());
  const std::string text = fmt::format("{}\n{}\n", sentence(finding), finding.kernel);
  if (Status written = output->write("finding.txt", std::as_bytes(std::span(text))); !written) {
    return tl::unexpected(written.error());
  }
  std::vector<SafetensorsInput> tensors = tensors_of(finding);
  dump.tensors = static_cast<std::int64_t>(tensors.size());
  if (dump.tensors > 0) {
    const auto bytes = encode_safetensors(std::move(tensors));
    if (!bytes) return tl::unexpected(bytes.error());
    if (Status written = output->write("tensors.safetensors", *bytes); !written) {
      return tl::unexpected(written.error());
    }
  }
  if (Status committed = output->commit(); !committed) return tl::unexpected(committed.error());
  return dump;
}

}  // namespace nanscope::live
