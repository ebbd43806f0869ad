#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "instrument/weights/safetensors.h"

namespace nanscope {
namespace {

Status check_input(const SafetensorsInput& tensor) {
  const auto bits = safetensors_bits(tensor.dtype);
  if (!bits) return fail("safetensors: tensor '" + tensor.name + "': unknown dtype " + tensor.dtype);
  std::uint64_t total = static_cast<std::uint64_t>(*bits);
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 0 || __builtin_mul_overflow(total, static_cast<std::uint64_t>(extent), &total)) {
      return fail("safetensors: tensor '" + tensor.name + "': impossible shape");
    }
  }
  if (total % 8 != 0 || total / 8 != tensor.bytes.size()) {
    return fail("safetensors: tensor '" + tensor.name + "': " + std::to_string(tensor.bytes.size()) +
                " bytes do not fit its shape in " + tensor.dtype);
  }
  return {};
}

}  // namespace

Result<std::vector<std::byte>> encode_safetensors(std::vector<SafetensorsInput> tensors,
                                                  const std::map<std::string, std::string>& metadata) {
  for (const SafetensorsInput& tensor : tensors) {
    if (const auto checked = check_input(tensor); !checked) return tl::unexpected(checked.error());
  }
  std::sort(tensors.begin(), tensors.end(), [](const SafetensorsInput& a, const SafetensorsInput& b) {
    const int width_a = safetensors_bits(a.dtype).value_or(0);
    const int width_b = safetensors_bits(b.dtype).value_or(0);
    return width_a != width_b ? width_a > width_b : a.name < b.name;
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  // Looking for a key walks through all before it: names are known by the set, and the list is only added to.
  auto& fields = header.get_ref<nlohmann::ordered_json::object_t&>();
  std::unordered_set<std::string_view> names;
  if (!metadata.empty()) names.insert("__metadata__");
  std::uint64_t position = 0;
  for (const SafetensorsInput& tensor : tensors) {
    if (!names.insert(tensor.name).second) return fail("safetensors: tensor '" + tensor.name + "' is given twice");
    fields.nlohmann::ordered_json::object_t::Container::emplace_back(
        tensor.name, nlohmann::ordered_json{{"dtype", tensor.dtype},
                                            {"shape", tensor.shape},
                                            {"data_offsets", {position, position + tensor.bytes.size()}}});
    position += tensor.bytes.size();
  }
  // Names that are no UTF-8 would throw: they are replaced, as a JSON text cannot hold them.
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');

  std::vector<std::byte> file(8 + text.size() + position);
  const std::uint64_t length = text.size();
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, text.data(), text.size());
  std::byte* out = file.data() + 8 + text.size();
  for (const SafetensorsInput& tensor : tensors) {
    out = std::copy(tensor.bytes.begin(), tensor.bytes.end(), out);
  }
  return file;
}

}  // namespace nanscope
