#include "instrument/model/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "core/numbers/decode_span.h"
#include "core/text/safe_text.h"

namespace nanscope {
namespace {

/// Tensors that checkpoints carry and no number depends on: buffers that are made anew.
constexpr std::array<std::string_view, 3> kBuffers = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};

/// Rows of the stored tensor, the first of them that the part takes, and how far apart those are.
struct Slice {
  std::int64_t first = 0;
  std::int64_t total = 0;
  std::int64_t step = 1;
  std::int64_t run = 0;   ///< rows that follow each other so, before the next such run; 0: all
  std::int64_t jump = 0;  ///< from a run's first row to the next one's
};

/// Of a delta net's projections and convolutions.
Slice delta_slice(WeightPart part, const ModelConfig& model) {
  const std::int64_t keys = model.delta_key_heads * model.delta_key_dim;
  const std::int64_t all = 2 * keys + model.delta_value_heads * model.delta_value_dim;
  const std::int64_t share = model.delta_value_heads / model.delta_key_heads;  // value heads of a key head
  const std::int64_t key = model.delta_key_dim;
  const std::int64_t value = share * model.delta_value_dim;
  const std::int64_t head = 2 * (key + value);
  const auto of_heads = [&](std::int64_t first, std::int64_t run, std::int64_t jump) {
    return Slice{first, model.delta_key_heads * jump, 1, run, jump};
  };
  switch (part) {
    case WeightPart::delta_q:
      return {0, all};
    case WeightPart::delta_k:
      return {keys, all};
    case WeightPart::delta_v:
      return {2 * keys, all};
    case WeightPart::delta_q_of_heads:
      return of_heads(0, key, head);
    case WeightPart::delta_k_of_heads:
      return of_heads(key, key, head);
    case WeightPart::delta_v_of_heads:
      return of_heads(2 * key, value, head);
    case WeightPart::delta_z_of_heads:
      return of_heads(2 * key + value, value, head);
    case WeightPart::delta_b_of_heads:
      return of_heads(0, share, 2 * share);
    default:
      return of_heads(share, share, 2 * share);
  }
}

Slice slice_of(WeightPart part, const ModelConfig& model, std::int64_t rows) {
  const std::int64_t queries = model.heads * model.head_dim;
  const std::int64_t keys = model.kv_heads * model.head_dim;
  switch (part) {
    case WeightPart::whole:
      break;
    case WeightPart::q:
      return {0, queries + 2 * keys};
    case WeightPart::k:
      return {queries, queries + 2 * keys};
    case WeightPart::v:
      return {queries + keys, queries + 2 * keys};
    case WeightPart::q_of_heads:
      return {0, queries + 2 * keys, 1, queries / model.kv_heads, (queries + 2 * keys) / model.kv_heads};
    case WeightPart::k_of_heads:
      return {queries / model.kv_heads, queries + 2 * keys, 1, model.head_dim, (queries + 2 * keys) / model.kv_heads};
    case WeightPart::v_of_heads:
      return {queries / model.kv_heads + model.head_dim, queries + 2 * keys, 1, model.head_dim,
              (queries + 2 * keys) / model.kv_heads};
    case WeightPart::gate:
      return {0, 2 * rows};
    case WeightPart::up:
      return {rows, 2 * rows};
    case WeightPart::gate_in_turns:
      return {0, 2 * rows, 2};
    case WeightPart::up_in_turns:
      return {1, 2 * rows, 2};
    case WeightPart::query_before_gate:
      return {0, 2 * queries, 1, model.head_dim, 2 * model.head_dim};
    case WeightPart::gate_behind_query:
      return {model.head_dim, 2 * queries, 1, model.head_dim, 2 * model.head_dim};
    default:
      return delta_slice(part, model);
  }
  return {0, rows};
}

std::vector<std::int64_t> stored_shape(const WeightRule& rule, const ModelConfig& model, std::int64_t rows,
                                       std::int64_t columns, bool vector) {
  std::vector<std::int64_t> shape = {rows};
  if (!vector) shape = rule.transposed ? std::vector{columns, rows} : std::vector{rows, columns};
  if (rule.stacked) shape.insert(shape.begin(), model.experts);
  return shape;
}

/// rows x columns out of a stored matrix, from the first of them on.
std::shared_ptr<std::vector<std::byte>> gathered(const std::byte* from, std::size_t element, std::int64_t rows,
                                                 std::int64_t columns, const WeightPlace& place) {
  constexpr std::int64_t kTile = 32;
  auto copy = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(rows * columns) * element);
  const auto at = [&](std::int64_t index) { return static_cast<std::size_t>(index) * element; };
  for (std::int64_t first = 0; first < columns; first += kTile) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t k = first; k < std::min(columns, first + kTile); ++k) {
        std::memcpy(copy->data() + at(row * columns + k), from + at(place.at(row, k) - place.first), element);
      }
    }
  }
  return copy;
}

/// The values as f32, each with the offset added once.
std::shared_ptr<std::vector<float>> with_offset(const WeightData& data, float offset) {
  auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(data.rows * data.columns));
  const std::size_t bytes = values->size() * info(data.format).storage_bytes();
  decode(data.format, std::span(data.data, bytes), *values);
  for (float& value : *values) value += offset;
  return values;
}

/// Codes times scales.
WeightData decoded(const StoredWeight& part, std::int64_t rows, std::int64_t columns) {
  const auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    part.matrix.row(
        part.first_row + row * part.row_step,
        std::span(*values).subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns)));
  }
  WeightData data;
  data.data = reinterpret_cast<const std::byte*>(values->data());
  data.rows = rows;
  data.columns = columns;
  data.stride = columns;
  data.owner = values;
  return data;
}

bool runs(Format format) { return format == Format::f32 || format == Format::bf16 || format == Format::f16; }

}  // namespace

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::filesystem::path& folder,
                                                           const ModelFamily& family, const ModelConfig& model) {
  Result<CheckpointFiles> files = CheckpointFiles::open(folder);
  if (!files) return tl::unexpected(files.error());
  auto quantization = read_quantization_config(folder);
  if (!quantization) return tl::unexpected(quantization.error());
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint(folder.string(), std::move(*files), family, model));
  checkpoint->quantization_ = std::move(*quantization);
  if (checkpoint->quantization_.method == QuantMethod::none) return checkpoint;
  for (StoredModule& module : stored_modules(checkpoint->files_)) {
    if (module.has("weight_packed") || module.has("weight_scale") || module.has("weight_scale_inv") ||
        module.has("blocks") || module.has("qweight") || module.has("SCB") || module.has("weight.absmax")) {
      std::string path = module.path;
      checkpoint->quantized_.emplace(std::move(path), std::move(module));
    }
  }
  return checkpoint;
}

CheckpointFiles::Tensor Checkpoint::find(std::string_view tensor) const {
  CheckpointFiles::Tensor found = files_.find(tensor);
  if (found.entry == nullptr && tensor.starts_with(family_.base))
    found = files_.find(tensor.substr(family_.base.size()));
  return found;
}

Result<Checkpoint::Source> Checkpoint::source(std::string_view name) const {
  const std::size_t dot = name.rfind('.');
  const std::string_view suffix = dot == std::string_view::npos ? std::string_view() : name.substr(dot);
  std::string_view stem = name.substr(0, dot);
  const auto take_number = [&](std::string_view before, std::string& number) {
    if (!stem.starts_with(before)) return false;
    const std::size_t end = stem.find('.', before.size());
    if (end == std::string_view::npos) return false;
    number = stem.substr(before.size(), end - before.size());
    stem.remove_prefix(end + 1);
    return true;
  };
  std::string layer;
  std::string expert;
  const bool in_layer = take_number("layers.", layer);
  std::string key(stem);
  if (in_layer && take_number("experts.", expert)) key = "experts." + std::string(stem);
  std::optional<Source> first;
  for (const WeightRule& rule : in_layer ? family_.parts : family_.globals) {
    if (rule.ours != key) continue;
    Source one{in_layer ? fmt::format("{}{}.", family_.layers, layer) : std::string(), rule};
    std::from_chars(expert.data(), expert.data() + expert.size(), one.expert);
    std::string theirs(rule.theirs);
    if (const std::size_t hole = theirs.find("{}"); hole != std::string::npos) theirs.replace(hole, 2, expert);
    one.bias = suffix == ".bias";
    one.tensor.append(theirs).append(!rule.stacked ? suffix : one.bias ? "_bias" : std::string_view());
    if (find(one.tensor).entry != nullptr || quantized(one.tensor) != nullptr) return one;
    if (!first) first = std::move(one);
  }
  if (first) return *first;
  return fail(fmt::format("{}: {} checkpoints have no weight '{}'", folder_, family_.name, name));
}

const StoredModule* Checkpoint::quantized(std::string_view tensor) const {
  constexpr std::string_view kWeight = ".weight";
  if (quantized_.empty()) return nullptr;
  if (tensor.ends_with(kWeight)) tensor.remove_suffix(kWeight.size());
  auto found = quantized_.find(tensor);
  if (found == quantized_.end() && tensor.starts_with(family_.base)) {
    found = quantized_.find(tensor.substr(family_.base.size()));
  }
  return found == quantized_.end() ? nullptr : &found->second;
}

Result<StoredWeight> Checkpoint::stored(const StoredModule& module, const Source& from, std::int64_t rows,
                                        std::int64_t columns) const {
  auto matrix = stored_matrix(module, quantization_);
  if (!matrix) return fail(fmt::format("{}: {}", folder_, matrix.error().text));
  const Slice slice = slice_of(from.rule.part, model_, rows);
  const std::int64_t all_rows = (from.rule.stacked ? model_.experts : 1) * slice.total;
  const bool turned = from.rule.transposed && !module.has("blocks");
  if (matrix->rows != all_rows || matrix->columns != columns || turned) {
    return fail(fmt::format("{}: the quantized weight of '{}' has shape [{},{}], expected [{},{}]", folder_,
                            one_line(module.path), matrix->rows, matrix->columns, all_rows, columns));
  }
  if (slice.run > 0) {
    return fail(
        fmt::format("{}: '{}' is quantized, and holds parts of each head in turns, which is not "
                    "supported",
                    folder_, one_line(module.path)));
  }
  const std::int64_t first = slice.first + (from.rule.stacked ? from.expert * slice.total : 0);
  return StoredWeight{*matrix, first, slice.step};
}

Result<std::optional<StoredWeight>> Checkpoint::stored(std::string_view name, std::int64_t rows,
                                                       std::int64_t columns) const {
  const Result<Source> from = source(name);
  if (!from) return tl::unexpected(from.error());
  const StoredModule* module = quantized(from->tensor);
  if (module == nullptr) return std::optional<StoredWeight>();
  return stored(*module, *from, rows, columns);
}

Result<std::optional<InputScale>> Checkpoint::input_scale(std::string_view name) const {
  const Result<Source> from = source(name);
  if (!from) return tl::unexpected(from.error());
  const StoredModule* module = quantized(from->tensor);
  for (const char* part : {"input_global_scale", "input_scale", "activation_scale"}) {
    const CheckpointFiles::Tensor tensor = module != nullptr ? module->find(part) : CheckpointFiles::Tensor{};
    if (tensor.entry == nullptr) continue;
    const auto values = scale_values(tensor);
    if (!values) return fail(fmt::format("{}: {}", folder_, values.error().message));
    if (values->size() != 1) {
      return fail(
          fmt::format("{} has shape [{}], expected one number", tensor.where(), fmt::join(tensor.entry->shape, ",")));
    }
    return InputScale{values->front(), std::string_view(part) == "input_global_scale"};
  }
  return std::optional<InputScale>();
}

Result<std::string> Checkpoint::module_of(std::string_view name) const {
  constexpr std::string_view kWeight = ".weight";
  const Result<Source> from = source(name);
  if (!from) return tl::unexpected(from.error());
  const CheckpointFiles::Tensor tensor = find(from->tensor);
  std::string module = tensor.entry != nullptr ? tensor.entry->name : from->tensor;
  if (module.ends_with(kWeight)) module.resize(module.size() - kWeight.size());
  return module;
}

Result<WeightPlace> Checkpoint::place_of(const Source& from, std::int64_t rows, std::int64_t columns) const {
  const CheckpointFiles::Tensor tensor = find(from.tensor);
  const SafetensorsEntry* entry = tensor.entry;
  if (entry == nullptr) return fail(fmt::format("{}: no tensor '{}'", folder_, from.tensor));
  const WeightRule& rule = from.rule;
  // Of a vector, what are rows of its matrix are its elements.
  const bool vector = rows == 1 && (!rule.stacked || from.bias);
  const Slice slice = slice_of(rule.part, model_, vector || rule.taps ? columns : rows);
  if (rule.taps) {
    if (entry->shape != std::vector<std::int64_t>{slice.total, 1, rows}) {
      return fail(fmt::format("{} has shape [{}], expected [{},1,{}]", tensor.where(), fmt::join(entry->shape, ","),
                              slice.total, rows));
    }
    return WeightPlace{entry->name, entry->shape, slice.first * rows, 1, rows};
  }
  const std::vector<std::int64_t> shape = stored_shape(rule, model_, slice.total, columns, vector);
  // A Linear with one output keeps its two dimensions.
  if (entry->shape != shape && !(vector && entry->shape == std::vector<std::int64_t>{1, slice.total})) {
    return fail(fmt::format("{} has shape [{}], expected [{}]", tensor.where(), fmt::join(entry->shape, ","),
                            fmt::join(shape, ",")));
  }
  const bool flipped = rule.transposed && !vector;
  const std::int64_t row_size = vector ? 1 : columns;
  WeightPlace place{entry->name, entry->shape, slice.first * (flipped ? 1 : row_size)};
  if (rule.stacked) place.first += from.expert * slice.total * row_size;
  place.next_row = slice.step * (flipped ? 1 : row_size);
  place.next_column = flipped ? slice.total : vector ? slice.step : 1;
  place.offset = from.bias ? 0 : rule.offset;
  place.run = slice.run;
  place.gap = (slice.jump - slice.run) * row_size;
  if (vector && slice.run > 0) place.next_row = 0;
  return place;
}

Result<WeightPlace> Checkpoint::place(std::string_view name, std::int64_t rows, std::int64_t columns) const {
  const Result<Source> from = source(name);
  if (!from) return tl::unexpected(from.error());
  if (quantized(from->tensor) != nullptr) {
    return fail(fmt::format("{}: the weight '{}' is quantized, and can be read alone", folder_, from->tensor));
  }
  if (find(from->tensor).gguf != nullptr)
    return fail(fmt::format("{}: the weight '{}' lies in a GGUF file, and can be read alone", folder_, from->tensor));
  return place_of(*from, rows, columns);
}

Result<WeightData> Checkpoint::weight(std::string_view name, std::int64_t rows, std::int64_t columns) const {
  const Result<Source> from = source(name);
  if (!from) return tl::unexpected(from.error());
  if (const StoredModule* module = quantized(from->tensor); module != nullptr) {
    const auto part = stored(*module, *from, rows, columns);
    if (!part) return tl::unexpected(part.error());
    return decoded(*part, rows, columns);
  }
  const Result<WeightPlace> place = place_of(*from, rows, columns);
  if (!place) return tl::unexpected(place.error());
  const CheckpointFiles::Tensor tensor = find(from->tensor);
  const SafetensorsEntry* entry = tensor.entry;
  const std::string where = tensor.where();
  if (!entry->format || !runs(*entry->format)) {
    const bool code = entry->format && info(*entry->format).bits == 8;
    return fail(fmt::format("{} is {}{}; weights in F32, BF16 and F16 are run, and codes with a scale beside them",
                            where, one_line(entry->dtype), code ? " without a scale" : ""));
  }
  const std::size_t element = info(*entry->format).storage_bytes();
  const CheckpointFiles::Held held = tensor.held();
  WeightData data{.format = *entry->format,
                  .data = held.bytes.data(),
                  .rows = rows,
                  .columns = columns,
                  .stride = columns,
                  .owner = held.owner,
                  .mapped = held.owner == nullptr};
  data.data += static_cast<std::size_t>(place->first) * element;
  if (place->next_column != 1 || (rows > 1 && place->next_row != columns) || place->run > 0) {
    const auto copy = gathered(data.data, element, rows, columns, *place);
    data.data = copy->data();
    data.owner = copy;
    data.mapped = false;
  } else if (reinterpret_cast<std::uintptr_t>(data.data) % element != 0) {
    const auto copy = std::make_shared<std::vector<std::byte>>(
        data.data, data.data + static_cast<std::size_t>(rows * columns) * element);
    data.data = copy->data();
    data.owner = copy;
    data.mapped = false;
  }
  if (place->offset == 0) return data;
  const auto values = with_offset(data, place->offset);
  data.format = Format::f32;
  data.data = reinterpret_cast<const std::byte*>(values->data());
  data.owner = values;
  data.mapped = false;
  return data;
}

bool Checkpoint::of_mtp_layer(std::string_view tensor) const {
  if (tensor.starts_with("mtp.")) return true;  // Qwen3-Next's
  for (std::int64_t layer = model_.layers; layer < model_.layers + model_.mtp_layers; ++layer) {
    if (tensor.starts_with(fmt::format("{}{}.", family_.layers, layer))) return true;
  }
  return false;
}

Status Checkpoint::check_all_used(const std::set<std::string, std::less<>>& ours) const {
  std::set<const SafetensorsEntry*> used;
  for (const std::string& name : ours) {
    const Result<Source> from = source(name);
    if (!from) continue;
    used.insert(find(from->tensor).entry);
    const StoredModule* module = quantized(from->tensor);
    if (module == nullptr) continue;
    // With scales of the inputs and of the KV cache, which only what quantizes those reads.
    for (const auto& [part, tensor] : module->tensors) used.insert(tensor.entry);
  }
  std::vector<std::string> unused;
  for (const auto& [name, stored] : files_.tensors()) {
    const bool buffer = std::any_of(kBuffers.begin(), kBuffers.end(),
                                    [&, text = std::string_view(name)](auto end) { return text.ends_with(end); });
    const bool tied = model_.tied_head && name == "lm_head.weight";
    if (!used.contains(stored.entry) && !buffer && !tied && !of_mtp_layer(name)) unused.push_back(one_line(name));
  }
  if (unused.empty()) return {};
  return fail(fmt::format("{}: {} tensors belong to no weight of a {} model with this config.json, '{}' first", folder_,
                          unused.size(), family_.name, unused.front()));
}

Status Checkpoint::check_unchanged() const { return files_.check_unchanged(); }

}  // namespace nanscope
