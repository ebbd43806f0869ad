#include "instrument/dump/producers/msprobe_directory.h"

#include "instrument/dump/containers/strict_json.h"

namespace nanscope {
namespace {

/// How many tensors a text can list at most, so that their list never doubles.
std::size_t count_tensors(std::string_view text) {
  constexpr std::string_view kDtype = "\"dtype\"";
  std::size_t count = 0;
  for (std::size_t at = text.find(kDtype); at != std::string_view::npos; at = text.find(kDtype, at + 1)) ++count;
  return count;
}

}  // namespace

Result<std::optional<std::vector<MsprobeTensor>>> read_msprobe_directory(std::string_view text,
                                                                         const std::string& file) {
  JsonLimits limits;
  limits.bare_words = true;  // Python writes NaN and Infinity so
  const auto whole = parse_strict_json(text, file, 0, limits);
  if (!whole) return tl::unexpected(whole.error());
  const auto data = whole->find("data");
  const bool ours = data && data->is_object() && (whole->find("level") || whole->find("task"));
  if (!ours) return std::optional<std::vector<MsprobeTensor>>();
  MsprobeTensors tensors(file, text, text.size());
  auto status = tensors.expect(count_tensors(data->source()));
  for (const auto& [name, entry] : data->items()) {
    if (!status) return tl::unexpected(status.error());
    if (entry.is_object()) status = tensors.add_call(name.text(), entry);
  }
  if (!status) return tl::unexpected(status.error());
  return std::optional(tensors.take());
}

}  // namespace nanscope
