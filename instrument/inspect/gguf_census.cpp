#include "instrument/inspect/gguf_census.h"

#include <array>
#include <cmath>
#include <string_view>

#include "instrument/gguf/gguf_model.h"

namespace nanscope {
namespace {

void count(float value, std::int64_t place, GgufTensorCensus& into) {
  if (std::isfinite(value)) return;
  ++(std::isnan(value) ? into.nan : into.inf);
  if (into.first_bad < 0) into.first_bad = place;
}

/// Types without scales: each element.
void count_elements(const GgufType& type, std::span<const std::byte> bytes, GgufTensorCensus& into) {
  if (type.format && info(*type.format).exponent_bits == 0) return;
  for (std::int64_t i = 0; i < into.elements; ++i) {
    float value = 0;
    type.decode(bytes.data() + static_cast<std::size_t>(i) * type.bytes, &value);
    count(value, i, into);
  }
}

void count_scales(const GgufType& type, std::span<const std::byte> bytes, GgufTensorCensus& into) {
  std::array<float, kMostGgufScales> room{};
  const std::int64_t blocks = into.elements / type.elements;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const auto scales = block_scales(type, bytes.data() + static_cast<std::size_t>(block) * type.bytes, room);
    const std::size_t factors = scales.size() - (type.scales.minimum ? 1 : 0);
    for (std::size_t i = 0; i < scales.size(); ++i) {
      count(scales[i], block, into);
      if (i >= factors) continue;
      ++into.scales;
      into.zero += scales[i] == 0 ? 1 : 0;
    }
  }
}

GgufTensorCensus census_of(const GgufFile& file, const GgufTensor& tensor, std::string_view model_type) {
  GgufTensorCensus out{.name = tensor.name,
                       .original = original_name(tensor.name, model_type).name,
                       .type = tensor.type_name(),
                       .decoded = tensor.type != nullptr,
                       .shape = tensor.shape,
                       .elements = tensor.count()};
  if (tensor.type == nullptr) return out;
  out.bytes = tensor.end - tensor.begin;
  const auto bytes = file.bytes(tensor);
  if (tensor.type->scales.kind == GgufScales::Kind::none) {
    count_elements(*tensor.type, bytes, out);
  } else {
    count_scales(*tensor.type, bytes, out);
  }
  return out;
}

}  // namespace

std::uint64_t GgufCensus::bytes() const {
  std::uint64_t sum = 0;
  for (const GgufTensorCensus& one : tensors) sum += one.bytes;
  return sum;
}

std::int64_t GgufCensus::elements() const {
  std::int64_t sum = 0;
  for (const GgufTensorCensus& one : tensors) sum += one.decoded ? one.elements : 0;
  return sum;
}

std::int64_t GgufCensus::bad() const {
  std::int64_t sum = 0;
  for (const GgufTensorCensus& one : tensors) sum += one.nan + one.inf;
  return sum;
}

Result<GgufCensus> census_of_gguf(const std::filesystem::path& path, const GgufCensusOptions& options) {
  const auto model = GgufModel::open(path);
  if (!model) return tl::unexpected(model.error());
  const GgufFile& first = (*model)->parts().front()->file;
  const GgufValue* architecture = first.find("general.architecture");
  const auto config = (*model)->config();
  GgufCensus out{.target = path.string(),
                 .version = first.header().version,
                 .architecture = architecture == nullptr ? "" : architecture->text().value_or(""),
                 .config_error = config ? "" : config.error().message,
                 .files = (*model)->parts().size(),
                 .tensors = {}};
  std::size_t total = 0;
  for (const auto& part : (*model)->parts()) total += part->file.header().tensors.size();
  for (const auto& part : (*model)->parts()) {
    for (const GgufTensor& tensor : part->file.header().tensors) {
      if (options.stop.stop_requested()) return fail("stopped");
      if (options.progress) options.progress(out.tensors.size(), total);
      out.tensors.push_back(census_of(part->file, tensor, (*model)->model_type()));
    }
  }
  if (Status same = (*model)->check(); !same) return tl::unexpected(same.error());
  return out;
}

}  // namespace nanscope
