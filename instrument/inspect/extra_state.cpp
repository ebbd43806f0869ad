#include "instrument/inspect/extra_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "core/numbers/decode_span.h"
#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/containers/pickle.h"
#include "instrument/dump/containers/pt.h"

namespace nanscope {
namespace {

enum class Name : std::int64_t { other, rebuild_tensor, load_from_bytes, float_storage };

/// What TransformerEngine pickles: tensors, and its recipe, an object of plain numbers whose enumerations are looked up
/// by name on some Pythons.
std::optional<std::int64_t> known_global(std::string_view module, std::string_view name) {
  const auto is = [](Name what) { return std::optional(static_cast<std::int64_t>(what)); };
  if (module == "torch._utils" && name == "_rebuild_tensor_v2") return is(Name::rebuild_tensor);
  if (module == "torch.storage" && name == "_load_from_bytes") return is(Name::load_from_bytes);
  if (module == "torch" && name == "FloatStorage") return is(Name::float_storage);
  const bool plain = (module == "collections" && name == "OrderedDict") || (module == "torch" && name == "Size") ||
                     (module == "builtins" && name == "getattr");
  if (plain || module.starts_with("transformer_engine.")) return is(Name::other);
  return std::nullopt;
}

/// A tensor of f32, row-major.
struct Floats {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

class StateReader {
 public:
  StateReader(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where), budget_(bytes.size()) {}

  Result<ExtraState> read() {
    auto pickle = read_pickle(bytes_, where_, 0, known_global, budget_, {.objects = true});
    if (!pickle) return tl::unexpected(pickle.error());
    const PickleNode& root = (*pickle)[pickle->root];
    ExtraState out;
    if (root.kind == PickleKind::none) out.lacks = "holds None";
    if (root.kind == PickleKind::none) return out;
    if (root.kind != PickleKind::dict) return refuse(where_, 0, "no dictionary, expected a module's state");
    const auto items = pickle->items(root);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string_view key = pickle->text((*pickle)[items[i]]);
      const PickleNode& value = (*pickle)[items[i + 1]];
      if (key == "recipe") out.recipe = class_of(*pickle, value);
      if (key != "scale_fwd" && key != "scale_bwd" && key != "amax_history_fwd") continue;
      auto tensor = read_tensor(*pickle, value);
      if (!tensor) return tl::unexpected(tensor.error());
      if (Status added = add(key, std::move(*tensor), out); !added) return tl::unexpected(added.error());
    }
    return finished(std::move(out));
  }

  /// Of what torch.save wrote.
  Result<ExtraState> read_saved() {
    const auto saved = open_pt({.name = where_, .bytes = bytes_, .owner = nullptr});
    if (!saved) return tl::unexpected(saved.error());
    ExtraState out;
    const auto root = (*saved)->metadata().find("");
    if (root != (*saved)->metadata().end() && root->second == "None") out.lacks = "holds None";
    const auto tensors = (*saved)->tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string& key = tensors[i].key;
      if (key != "scale_fwd" && key != "scale_bwd" && key != "amax_history_fwd") continue;
      if (tensors[i].dtype->name != "f32") return refuse(where_, tensors[i].offset, in_quotes(key) + " is not of f32");
      const auto bytes = (*saved)->bytes(i);
      if (!bytes) return tl::unexpected(bytes.error());
      Floats floats{tensors[i].shape, std::vector<float>(tensors[i].count())};
      decode(Format::f32, bytes->bytes, floats.values);
      if (Status added = add(key, std::move(floats), out); !added) return tl::unexpected(added.error());
    }
    return finished(std::move(out));
  }

 private:
  static std::string class_of(const Pickle& pickle, const PickleNode& value) {
    const auto parts = pickle.items(value);
    return value.kind == PickleKind::call ? printable(pickle.text(pickle[parts[0]])) : std::string();
  }

  Status add(std::string_view key, Floats tensor, ExtraState& out) const {
    if (key == "scale_bwd") {
      out.backwards = tensor.values.size();
      return {};
    }
    if (key == "scale_fwd") {
      out.scale = std::move(tensor.values);
      return {};
    }
    if (tensor.shape.size() != 2) return refuse(where_, 0, "a history of amax of shape " + shape_text(tensor.shape));
    if (tensor.values.empty()) return {};
    out.history = tensor.shape[0];
    out.amax.assign(static_cast<std::size_t>(tensor.shape[1]), 0.0F);
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      float& most = out.amax[i % out.amax.size()];
      if (!(tensor.values[i] <= most)) most = tensor.values[i];
    }
    return {};
  }

  Result<ExtraState> finished(ExtraState out) const {
    if (out.scale.empty() && out.lacks.empty()) out.lacks = "holds no scales";
    if (!out.amax.empty() && out.amax.size() != out.scale.size()) {
      return refuse(where_, 0, fmt::format("a history of {} amax beside {} scales", out.amax.size(), out.scale.size()));
    }
    return out;
  }

  static bool is(const Pickle& pickle, std::uint32_t index, Name what) {
    const PickleNode& node = pickle[index];
    return node.kind == PickleKind::global && node.integer == static_cast<std::int64_t>(what);
  }

  tl::unexpected<Error> refused(const PickleNode& at, const std::string& what) const {
    return refuse(where_, at.offset, what);
  }

  static std::optional<std::vector<std::int64_t>> numbers(const Pickle& pickle, const PickleNode& list) {
    std::vector<std::int64_t> all;
    if (list.kind != PickleKind::tuple) return std::nullopt;
    for (const std::uint32_t item : pickle.items(list)) {
      if (pickle[item].kind != PickleKind::integer || pickle[item].integer < 0) return std::nullopt;
      all.push_back(pickle[item].integer);
    }
    return all;
  }

  /// _rebuild_tensor_v2(_load_from_bytes(b"..."), offset, shape, strides, ...) of at most two dimensions.
  Result<Floats> read_tensor(const Pickle& pickle, const PickleNode& value) {
    const auto parts = pickle.items(value);
    const auto arguments = value.kind == PickleKind::call ? pickle.items(pickle[parts[1]]) : parts;
    if (value.kind != PickleKind::call || !is(pickle, parts[0], Name::rebuild_tensor) || arguments.size() < 4)
      return refused(value, "no tensor, expected scales");
    const PickleNode& storage = pickle[arguments[0]];
    const PickleNode& first = pickle[arguments[1]];
    const auto shape = numbers(pickle, pickle[arguments[2]]);
    const auto strides = numbers(pickle, pickle[arguments[3]]);
    const bool described = storage.kind == PickleKind::call && first.kind == PickleKind::integer &&
                           first.integer >= 0 && shape && strides && shape->size() == strides->size() &&
                           !shape->empty() && shape->size() <= 2;
    if (!described) return refused(value, "a tensor that is not described as pickle does");
    auto stored = read_storage(pickle, storage);
    if (!stored) return tl::unexpected(stored.error());
    const auto many = static_cast<std::int64_t>(stored->size());
    const std::int64_t rows = shape->size() == 2 ? shape->front() : 1;
    const std::int64_t columns = shape->back();
    // Each number is within the storage's size, so that no product below overflows.
    const auto beyond = [&](std::int64_t number) { return number > many; };
    if (beyond(first.integer) || std::any_of(shape->begin(), shape->end(), beyond) ||
        std::any_of(strides->begin(), strides->end(), beyond) || rows * columns > many)
      return refused(value,
                     fmt::format("a tensor of shape {} reaches beyond its storage of {}", shape_text(*shape), many));
    Floats out{*shape, {}};
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t at = first.integer + (shape->size() == 2 ? r * strides->front() : 0) + c * strides->back();
        if (at >= many) return refused(value, fmt::format("a tensor that reaches beyond its storage of {}", many));
        out.values.push_back((*stored)[static_cast<std::size_t>(at)]);
      }
    }
    return out;
  }

  /// The format of torch.save before 1.6, in which a storage is pickled by itself: four pickles, then its description,
  /// the list of its key, a count and the elements (torch/serialization.py, _legacy_save).
  Result<std::vector<float>> read_storage(const Pickle& pickle, const PickleNode& call) {
    const auto parts = pickle.items(call);
    const auto arguments = pickle.items(pickle[parts[1]]);
    if (!is(pickle, parts[0], Name::load_from_bytes) || arguments.size() != 1 ||
        pickle[arguments[0]].kind != PickleKind::bytes)
      return refused(call, "a storage that is not stored as pickle does");
    std::span<const std::byte> left = std::as_bytes(std::span(pickle.text(pickle[arguments[0]])));
    constexpr int kPickles = 5;
    constexpr int kDescription = 3;
    for (int i = 0; i < kPickles; ++i) {
      std::uint64_t length = 0;
      const auto one = read_pickle(left, where_, call.offset, known_global, budget_, {.length = &length});
      if (!one) return tl::unexpected(one.error());
      left = left.subspan(length);
      if (i != kDescription) continue;
      const PickleNode& described = (*one)[one->root];
      const auto id = described.kind == PickleKind::persistent ? one->items((*one)[one->items(described)[0]])
                                                               : std::span<const std::uint32_t>();
      if (id.size() < 5 || !is(*one, id[1], Name::float_storage))
        return refused(call, "a storage that is not of f32, as scales are");
    }
    if (left.size() < sizeof(std::uint64_t)) return refused(call, "a storage that ends before its elements");
    const auto count = little_endian<std::uint64_t>(left, 0);
    left = left.subspan(sizeof count);
    if (left.size() % sizeof(float) != 0 || count != left.size() / sizeof(float)) {
      return refused(call, fmt::format("a storage of {} elements that has {} bytes", count, left.size()));
    }
    if (!budget_.take(left.size())) return refused(call, "storages that take more memory than four times the state");
    std::vector<float> values(static_cast<std::size_t>(count));
    decode(Format::f32, left, values);
    return values;
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  ReadBudget budget_;
};

}  // namespace

bool ExtraState::used() const {
  return std::any_of(amax.begin(), amax.end(), [](float one) { return !(one <= 0); });
}

Result<ExtraState> read_extra_state(std::span<const std::byte> bytes, const std::string& where) {
  ExtraState none;
  none.lacks = "is of zero length";
  if (bytes.empty()) return none;
  constexpr std::array kZip = {std::byte{'P'}, std::byte{'K'}};
  const bool saved = bytes.size() > kZip.size() && std::equal(kZip.begin(), kZip.end(), bytes.begin());
  StateReader reader(bytes, where);
  return saved ? reader.read_saved() : reader.read();
}

}  // namespace nanscope
