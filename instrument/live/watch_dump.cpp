#include "instrument/live/watch_dump.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/numbers/format.h"
#include "instrument/files/file.h"
#include "instrument/weights/safetensors.h"

namespace nanscope::live {

Result<std::int64_t> write_watch_dump(const Finding& finding, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return fail(fmt::format("{}: {}", folder.string(), error.message()));
  const std::string text = fmt::format("{}\n{}\n", sentence(finding), finding.kernel);
  if (Status written = write_file(folder / "finding.txt", std::as_bytes(std::span(text))); !written) {
    return tl::unexpected(written.error());
  }
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
  const auto count = static_cast<std::int64_t>(tensors.size());
  if (count == 0) return 0;
  const auto bytes = encode_safetensors(std::move(tensors));
  if (!bytes) return tl::unexpected(bytes.error());
  if (Status written = write_file(folder / "tensors.safetensors", *bytes); !written) {
    return tl::unexpected(written.error());
  }
  return count;
}

}  // namespace nanscope::live
