#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "instrument/weights/safetensors.h"

namespace nanscope {
namespace {

Result<std::uint64_t> bytes_of(const SafetensorsSpec& tensor) {
  const auto bits = safetensors_bits(tensor.dtype);
  if (!bits) return fail("safetensors: tensor '" + tensor.name + "': unknown dtype " + tensor.dtype);
  auto total = static_cast<std::uint64_t>(*bits);
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 0 || __builtin_mul_overflow(total, static_cast<std::uint64_t>(extent), &total)) {
      return fail("safetensors: tensor '" + tensor.name + "': impossible shape");
    }
  }
  if (total % 8 != 0) return fail("safetensors: tensor '" + tensor.name + "' does not end at a byte");
  return total / 8;
}

}  // namespace

Result<SafetensorsLayout> lay_out_safetensors(std::vector<SafetensorsSpec> tensors,
                                              const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const SafetensorsSpec& a, const SafetensorsSpec& b) {
    const int width_a = safetensors_bits(a.dtype).value_or(0);
    const int width_b = safetensors_bits(b.dtype).value_or(0);
    return width_a != width_b ? width_a > width_b : a.name < b.name;
  });
  SafetensorsLayout layout;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  // Looking for a key walks through all before it: names are known by the map, and the list is only added to.
  auto& fields = header.get_ref<nlohmann::ordered_json::object_t&>();
  std::uint64_t position = 0;
  for (const SafetensorsSpec& tensor : tensors) {
    const auto bytes = bytes_of(tensor);
    if (!bytes) return tl::unexpected(bytes.error());
    const bool reserved = !metadata.empty() && tensor.name == "__metadata__";
    if (reserved || !layout.offsets.emplace(tensor.name, position).second) {
      return fail("safetensors: tensor '" + tensor.name + "' is given twice");
    }
    fields.nlohmann::ordered_json::object_t::Container::emplace_back(
        tensor.name,
        nlohmann::ordered_json{
            {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {position, position + *bytes}}});
    position += *bytes;
  }
  // Names that are no UTF-8 would throw: they are replaced, as a JSON text cannot hold them.
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  layout.header.resize(8 + text.size());
  std::memcpy(layout.header.data(), &length, 8);
  std::memcpy(layout.header.data() + 8, text.data(), text.size());
  for (auto& [name, offset] : layout.offsets) offset += layout.header.size();
  layout.size = layout.header.size() + position;
  return layout;
}

Result<std::vector<std::byte>> encode_safetensors(const std::vector<SafetensorsInput>& tensors,
                                                  const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsSpec> specs;
  specs.reserve(tensors.size());
  for (const SafetensorsInput& tensor : tensors) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    const auto bytes = bytes_of(specs.back());
    if (!bytes) return tl::unexpected(bytes.error());
    if (*bytes != tensor.bytes.size()) {
      return fail("safetensors: tensor '" + tensor.name + "': " + std::to_string(tensor.bytes.size()) +
                  " bytes do not fit its shape in " + tensor.dtype);
    }
  }
  const auto layout = lay_out_safetensors(std::move(specs), metadata);
  if (!layout) return tl::unexpected(layout.error());
  std::vector<std::byte> file(layout->size);
  std::copy(layout->header.begin(), layout->header.end(), file.begin());
  for (const SafetensorsInput& tensor : tensors) {
    const auto begin = static_cast<std::ptrdiff_t>(layout->offsets.find(tensor.name)->second);
    std::copy(tensor.bytes.begin(), tensor.bytes.end(), file.begin() + begin);
  }
  return file;
}

}  // namespace nanscope
