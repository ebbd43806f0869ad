#include "instrument/recompute/values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "core/numbers/codec.h"
#include "core/numbers/decode_span.h"
#include "core/run/mask.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {
namespace {

constexpr std::size_t kHeldElements = std::size_t{24} << 20;
constexpr int kDeepest = 12;

}  // namespace

Format Values::precision(const Tensor& tensor) {
  constexpr std::int64_t kSampled = 4096;
  // Where 64 % of all numbers fit a narrow format, 32 do in 6e-7 of all cases; of numbers of f32 one in 2^13 does.
  constexpr std::int64_t kFewest = 32;
  constexpr std::int64_t kFewestOfModel = 1;  ///< where what surrounds it is of that format anyway
  if (!tensor.known || tensor.stated || tensor.format != Format::f32 || tensor.count() == 0) return tensor.format;
  const auto known = precisions_.find(tensor.id);
  if (known != precisions_.end()) return known->second;
  const std::int64_t rows =
      std::clamp<std::int64_t>(kSampled / std::max<std::int64_t>(1, tensor.channels), 1, tensor.tokens);
  Format narrowest = tensor.format;
  bool few = false;
  const Fact<TensorData> data = run().read(tensor, 0, rows);
  for (const Format format : {Format::f16, Format::bf16}) {
    std::int64_t told = 0;
    bool holds = data.has_value();
    for (std::int64_t i = 0; holds && i < data->count(); ++i) {
      const float value = data->value(i);
      if (value == 0 || !std::isfinite(value)) continue;
      ++told;
      holds = decode(format, encode(format, value, Overflow::saturate)) == value;
    }
    const bool of_model = told < kFewest && holds && activation_format(tensor.step) == format;
    few = few || (told < kFewest && holds);
    if (holds && told >= (of_model ? kFewestOfModel : kFewest)) narrowest = format;
  }
  // While the step's tensors vote on its format, what so few numbers say is not known yet.
  if (few && voting_) return narrowest;
  return precisions_[tensor.id] = narrowest;
}

bool Values::ones_hide(const Tensor& mask, std::int64_t length) {
  const auto known = ones_hide_.find(mask.id);
  if (known != ones_hide_.end()) return known->second;
  const auto all = run().values(mask);
  return ones_hide_[mask.id] = all && nanscope::ones_hide(std::span(*all), mask.channels, length);
}

Format Values::activation_format(StepId step) {
  const auto known = formats_.find(step);
  if (known != formats_.end()) return known->second;
  formats_[step] = Format::f32;  // for the tensors that vote
  voting_ = true;
  std::map<Format, std::int64_t> votes;
  for (const Tensor& tensor : run().content(step).tensors) {
    const Op* op = run().maker(tensor);
    const bool counts =
        tensor.known && op != nullptr &&
        (op->kind == OpKind::gemm || op->kind == OpKind::layer_norm || op->kind == OpKind::residual_add);
    if (counts && info(tensor.format).bits >= 16) votes[precision(tensor)] += tensor.count();
  }
  voting_ = false;
  const auto most =
      std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return formats_[step] = most == votes.end() ? Format::f32 : most->first;
}

std::optional<Format> Values::served_format(const Op& op, std::string_view role) {
  const Tensor* weight = run().input(op, role);
  if (weight == nullptr || !weight->known || info(weight->format).bits < 16) return std::nullopt;
  const Format served = activation_format(op.step);
  if (roundoff(served) <= roundoff(precision(*weight))) return std::nullopt;
  return served;
}

bool Values::available(const Tensor& tensor, int depth) {
  if (tensor.known) return !tensor.stated;
  if (depth > kDeepest) return false;
  const auto known = available_.find(tensor.id);
  if (known != available_.end()) return known->second;
  available_[tensor.id] = false;
  const Op* op = run().maker(tensor);
  const Recipe* recipe = op != nullptr ? recipe_of(op->kind) : nullptr;
  if (recipe == nullptr) return false;
  // A weight that was not dumped is not among the inputs; the recipe itself says so.
  bool all = true;
  for (const Input& input : op->inputs) {
    const Tensor* in = run().tensor(input.tensor);
    const Op* maker = in != nullptr ? run().maker(*in) : nullptr;
    const bool optional = maker != nullptr && maker->kind == OpKind::parameter;
    if (!optional) all = all && in != nullptr && available(*in, depth + 1);
  }
  return available_[tensor.id] = all;
}

std::optional<ElementBytes> Values::stored_rows(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  const bool inside = first >= 0 && count >= 0 && first + count <= tensor.tokens;
  const std::size_t row_bytes = static_cast<std::size_t>(tensor.channels) * info(tensor.format).storage_bytes();
  const auto size = static_cast<std::size_t>(count) * row_bytes;
  if (auto whole = inside ? run().stored(tensor) : std::nullopt)
    return ElementBytes{whole->bytes.subspan(static_cast<std::size_t>(first) * row_bytes, size),
                        std::move(whole->owner)};
  Fact<TensorData> data = run().read(tensor, first, count);
  if (!data) return std::nullopt;
  const auto held = std::make_shared<const TensorData>(std::move(*data));
  return ElementBytes{held->bytes, held};
}

std::optional<Block> Values::rows(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  if (const auto held = held_.find(tensor.id); held != held_.end()) {
    const Block& whole = *held->second;
    if (first < 0 || first + count > whole.rows) return std::nullopt;
    const auto begin = static_cast<std::ptrdiff_t>(first * whole.columns);
    const auto end = static_cast<std::ptrdiff_t>((first + count) * whole.columns);
    Block part{count, whole.columns, {whole.value.begin() + begin, whole.value.begin() + end}, {}};
    if (!whole.error.empty()) part.error.assign(whole.error.begin() + begin, whole.error.begin() + end);
    return part;
  }
  if (tensor.known) {
    const auto stored = stored_rows(tensor, first, count);
    if (!stored) return std::nullopt;
    Block made{count, tensor.channels, std::vector<float>(static_cast<std::size_t>(count * tensor.channels)), {}};
    const std::size_t row_bytes = static_cast<std::size_t>(tensor.channels) * info(tensor.format).storage_bytes();
    in_rows(count, tensor.channels, [&](std::int64_t begin, std::int64_t end) {
      const auto size = static_cast<std::size_t>((end - begin) * tensor.channels);
      decode(tensor.format, stored->bytes.subspan(static_cast<std::size_t>(begin) * row_bytes),
             std::span(made.value).subspan(static_cast<std::size_t>(begin * tensor.channels), size));
    });
    return made;
  }
  const Op* op = run().maker(tensor);
  if (op == nullptr || depth_ > kDeepest || !available(tensor)) return std::nullopt;
  ++depth_;
  const OpForm form = recomputer_.form_of(*op, tensor);
  auto prediction =
      recomputer_.settled(*op, tensor) ? recomputer_.predict(*op, tensor, form, first, count) : std::nullopt;
  --depth_;
  if (!prediction) return std::nullopt;
  Block made{prediction->rows, prediction->columns, std::move(prediction->value), std::move(prediction->bound)};
  // An element that could not be computed may be anything.
  in_rows(made.rows, made.columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * made.columns; i < end * made.columns; ++i) {
      float& bound = made.error[static_cast<std::size_t>(i)];
      bound = bound < 0 ? std::numeric_limits<float>::infinity() : bound;
    }
  });
  return made;
}

std::shared_ptr<const Block> Values::all(const Tensor& tensor) {
  const auto known = held_.find(tensor.id);
  if (known != held_.end()) return known->second;
  auto made = rows(tensor, 0, tensor.tokens);
  if (!made) return nullptr;
  auto whole = std::make_shared<const Block>(std::move(*made));
  if (held_elements_ + whole->value.size() > kHeldElements) {
    held_.clear();
    held_elements_ = 0;
  }
  if (static_cast<std::int64_t>(whole->value.size()) <= kMostHeld) {
    held_elements_ += whole->value.size();
    held_[tensor.id] = whole;
  }
  return whole;
}

}  // namespace nanscope
