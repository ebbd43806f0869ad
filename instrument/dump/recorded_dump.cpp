#include "instrument/dump/recorded_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "core/parse_json.h"
#include "core/tensor/health_of.h"

namespace nanscope {
namespace {

using Json = nlohmann::json;

/// The shape that the attributes state. Errors: it is not that of so many elements.
Result<std::vector<std::int64_t>> shape_of(const Json& attributes, std::int64_t elements) {
  std::vector<std::int64_t> shape;
  std::int64_t count = 1;
  for (const Json& extent : attributes["shape"]) {
    if (!extent.is_number_integer()) return fail("a shape is made of integers");
    const auto size = extent.get<std::int64_t>();
    if (size < 0 || (size > 0 && count > elements / size)) return fail("its shape is not that of its tensor");
    shape.push_back(size);
    count *= size;
  }
  if (count != elements) return fail("its shape is not that of its tensor");
  return shape;
}

bool stated(const Json& attributes, const char* key) { return attributes.contains(key) && attributes[key] == true; }

}  // namespace

bool RecordedDump::is_one(const Recording& recording) {
  return recording.schema() == 1 && recording.info().device == kDumpDevice;
}

Status RecordedDump::add(const OpRow& op) {
  const auto attributes = parse_json_or_none<Json>(op.attributes);
  if (!attributes.is_object() || !attributes.contains("dumped_as") || !attributes["dumped_as"].is_string() ||
      !attributes.contains("shape") || !attributes["shape"].is_array()) {
    return fail(fmt::format("op {}: its attributes do not say what was dumped", op.id));
  }
  const Result<std::vector<TensorRow>> rows = recording_.tensors_of(op.id);
  if (!rows) return tl::unexpected(rows.error());
  for (const TensorRow& row : *rows) {
    DumpTensor tensor;
    tensor.name = attributes["dumped_as"].get<std::string>();
    tensor.at = parse_tensor_name(tensor.name);
    // The name of its file may have said it.
    if (attributes.contains("step") && attributes["step"].is_number_integer()) {
      tensor.at.step = attributes["step"].get<std::int64_t>();
    }
    auto shape = shape_of(attributes, row.tokens * row.channels);
    if (!shape) return fail(fmt::format("op {}: {}", op.id, shape.error().message));
    tensor.shape = std::move(*shape);
    tensor.dtype = &dtype_of(row.format);
    if (row.format != Format::i32) tensor.format = row.format;
    tensor.source = rows_.size();
    tensor.health = row.health;
    tensor.stated = stated(attributes, "statistics_only");
    heads_first_.push_back(stated(attributes, "heads_first"));
    rows_.push_back(row);
    dump_.tensors.push_back(std::move(tensor));
  }
  return {};
}

Result<std::unique_ptr<RecordedDump>> RecordedDump::of(const Recording& recording) {
  std::unique_ptr<RecordedDump> recorded(new RecordedDump(recording));
  recorded->dump_.target = recording.path().string();
  recorded->dump_.producer = recording.info().isa;
  const Result<std::vector<OpRow>> ops = recording.ops();
  if (!ops) return tl::unexpected(ops.error());
  for (const OpRow& op : *ops) {
    if (Status added = recorded->add(op); !added) {
      return fail(fmt::format("{}: {}", recording.path().string(), added.error().message));
    }
  }
  return recorded;
}

Result<ElementBytes> RecordedDump::bytes(const DumpTensor& tensor) {
  const TensorRow& row = rows_[tensor.source];
  Result<std::optional<std::vector<std::byte>>> stored = recording_.tensor_bytes(row.id);
  if (!stored) return tl::unexpected(stored.error());
  if (!*stored) return fail(tensor.name + ": its elements were not recorded");
  auto bytes = std::make_shared<std::vector<std::byte>>(std::move(**stored));
  if (heads_first_[tensor.source] && row.heads > 1 && row.channels % row.heads == 0) {
    // The recording has the heads of a token side by side.
    const std::size_t width = static_cast<std::size_t>(row.channels / row.heads) * info(row.format).storage_bytes();
    std::vector<std::byte> heads(bytes->size());
    for (std::int64_t token = 0; token < row.tokens; ++token) {
      for (std::int64_t head = 0; head < row.heads; ++head) {
        const auto from = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(token * row.heads + head) * width);
        const auto to = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(head * row.tokens + token) * width);
        std::copy_n(bytes->begin() + from, width, heads.begin() + to);
      }
    }
    *bytes = std::move(heads);
  }
  const std::span<const std::byte> view(*bytes);
  return ElementBytes{view, std::move(bytes)};
}

Result<std::vector<Health>> RecordedDump::row_health(const DumpTensor& tensor) {
  const float largest = tensor.format ? info(*tensor.format).max_finite : std::numeric_limits<float>::infinity();
  const Result<ElementBytes> held = bytes(tensor);
  if (!held) return tl::unexpected(held.error());
  std::vector<Health> rows;
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    const std::int64_t first = row * tensor.channels();
    const Result<std::vector<float>> values = decode_values(
        *tensor.dtype, held->bytes, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(tensor.channels()));
    if (!values) return tl::unexpected(values.error());
    rows.push_back(health_of(*values, first, largest));
  }
  return rows;
}

}  // namespace nanscope
