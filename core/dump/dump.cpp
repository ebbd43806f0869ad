#include "core/dump/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <tuple>

#include "core/dump/name_words.h"
#include "core/dump/natural_order.h"

namespace nanscope {
namespace {

/// Everything of a name but the key, so that folders stay together.
std::string_view folder_of(const DumpTensor& tensor) {
  const std::size_t slash = tensor.name.rfind('/');
  return slash == std::string::npos ? std::string_view() : std::string_view(tensor.name).substr(0, slash);
}

/// Before, in and after the layers; a layer that is not known is no layer.
std::tuple<int, std::int64_t, int> place_in_pass(const TensorName& at) {
  if (at.layer) return {1, *at.layer, at.order};
  if (!at.known) return {3, 0, 0};
  return {at.order < 0 ? 0 : 2, 0, at.order};
}

/// Whether a part of a module's path is the word: "encoder" of "model.encoder.layers".
bool in_path(std::string_view path, std::string_view word) {
  for (const std::string_view part : split_text(path, '.')) {
    if (part == word) return true;
  }
  return false;
}

/// Where a model has a decoder, its encoder is a tower with sequences of its own. An encoder alone (BERT, ViT) is the
/// model. What attends from the one to the other is a tower too, also where the encoder ran before the dump began.
void settle_towers(std::vector<DumpTensor>& tensors) {
  constexpr std::string_view kCross[] = {"encoder_attn", "enc_dec_attention", "crossattention", "cross_attn",
                                         "cross_attention"};
  const auto has = [&](std::string_view word) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const DumpTensor& one) { return one.at.tower.empty() && in_path(one.at.module, word); });
  };
  const auto is_cross = [&](const DumpTensor& one) {
    return std::any_of(std::begin(kCross), std::end(kCross),
                       [&](std::string_view word) { return in_path(one.at.module, word); });
  };
  const bool both = has("encoder") && has("decoder");
  // Attention of that name alone is the model's own.
  const bool has_own = std::any_of(tensors.begin(), tensors.end(), [&](const DumpTensor& one) {
    return one.at.op == "q_proj" && one.at.tower.empty() && !is_cross(one);
  });
  for (DumpTensor& one : tensors) {
    if (!one.at.tower.empty()) continue;
    if (both && in_path(one.at.module, "encoder")) one.at.tower = "encoder";
    if (has_own && is_cross(one)) one.at.tower = "cross";
  }
}

bool executes_before(const DumpTensor& a, const DumpTensor& b) {
  if (natural_less(folder_of(a), folder_of(b))) return true;
  if (natural_less(folder_of(b), folder_of(a))) return false;
  const auto key = [](const TensorName& at) {
    // Encoders of pictures and sound run before the language model, what predicts more tokens after it.
    const int tower = at.tower.empty() || at.tower == "cross" ? 1 : at.tower == "mtp" ? 2 : 0;
    return std::tuple(at.request.value_or(0), at.step.value_or(0), at.rank.value_or(0), tower);
  };
  if (key(a.at) != key(b.at)) return key(a.at) < key(b.at);
  if (place_in_pass(a.at) != place_in_pass(b.at)) return place_in_pass(a.at) < place_in_pass(b.at);
  if (a.at.expert != b.at.expert) return a.at.expert.value_or(-1) < b.at.expert.value_or(-1);
  return natural_less(a.name, b.name);
}

}  // namespace

std::int64_t DumpTensor::channels() const { return shape.empty() ? 1 : shape.back(); }

std::int64_t DumpTensor::rows() const {
  if (shape.empty()) return 1;
  return std::accumulate(shape.begin(), shape.end() - 1, std::int64_t{1}, std::multiplies<>());
}

bool is_parameter(const DumpTensor& tensor) {
  constexpr std::string_view kRoles[] = {
      "weight",     "bias",        "mask",       "block_table", "slot_mapping", "seq_lens", "tokens", "query_start_loc",
      "query_lens", "past_length", "positions",  "router_bias", "inv_freq",     "cos",      "sin",    "temperature",
      "block_size", "sinks",       "request_ids"};
  switch (tensor.at.form) {
    case Form::scale:
    case Form::second_scale:
    case Form::zero_point:
    case Form::amax:
    case Form::amax_history:
      return true;
    default:
      return std::find(std::begin(kRoles), std::end(kRoles), tensor.at.role) != std::end(kRoles);
  }
}

void sort_by_execution(std::vector<DumpTensor>& tensors, std::span<const std::int64_t> recorded) {
  settle_towers(tensors);
  if (recorded.size() != tensors.size()) {
    std::stable_sort(tensors.begin(), tensors.end(), executes_before);
    return;
  }
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return recorded[a] < recorded[b]; });
  std::vector<DumpTensor> sorted;
  sorted.reserve(tensors.size());
  for (const std::size_t i : order) sorted.push_back(std::move(tensors[i]));
  tensors = std::move(sorted);
}

Result<std::vector<float>> DumpElements::values(const DumpTensor& tensor, std::int64_t first, std::int64_t count) {
  const Result<ElementBytes> held = bytes(tensor);
  if (!held) return tl::unexpected(held.error());
  // Bytes that are codes of a format are read as that format.
  const bool stored_otherwise = tensor.format && tensor.dtype->format != tensor.format;
  const Dtype* own = stored_otherwise ? find_dtype(nanscope::name(*tensor.format)) : nullptr;
  const Dtype& dtype = own != nullptr ? *own : *tensor.dtype;
  return decode_values(dtype, held->bytes, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(count));
}

Result<std::vector<std::int64_t>> DumpElements::integers(const DumpTensor& tensor) {
  if (tensor.dtype->kind != DtypeKind::integer && tensor.dtype->kind != DtypeKind::boolean) {
    return fail(tensor.name + ": holds no integers");
  }
  const Result<ElementBytes> held = bytes(tensor);
  if (!held) return tl::unexpected(held.error());
  std::vector<std::int64_t> all(static_cast<std::size_t>(tensor.count()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = stored_integer(*tensor.dtype, held->bytes, i);
  return all;
}

}  // namespace nanscope
