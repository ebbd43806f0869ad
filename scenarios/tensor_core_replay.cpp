#include "scenarios/tensor_core_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/numbers/codec.h"
#include "core/numbers/decode_span.h"
#include "core/place.h"
#include "kernels/ops/gemm_tensor_core.h"
#include "kernels/tensor_core_bound.h"

namespace nanscope::scenarios {

using kernels::TensorView;

namespace {

/// Values as the instruction reads them.
std::vector<float> values_as(Format operand, Format format, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / info(format).storage_bytes());
  decode(format, bytes, values);
  if (format == operand) return values;
  for (float& value : values) value = decode(operand, encode(operand, value, Overflow::overflow));
  return values;
}

std::string value_with_code(Format format, float value, std::uint32_t code) {
  const auto digits = static_cast<int>(2 * info(format).storage_bytes());
  return fmt::format("{} (0x{:0{}x})", value, code, digits);
}

}  // namespace

std::string device_kind(std::string_view isa) {
  constexpr std::array<std::string_view, 3> kOfCpus = {"baseline", "avx2", "avx512"};
  return std::string(std::find(kOfCpus.begin(), kOfCpus.end(), isa) != kOfCpus.end() ? "cpu" : isa);
}

/// What a product was made of, as values of the instruction's format.
struct TensorCoreReplay::Operands {
  Format format = Format::bf16;
  std::int64_t depth = 0;
  std::vector<float> x;  ///< rows of `depth`
  TensorView weight;
  std::vector<std::byte> weight_bytes;

  double magnitude(std::int64_t row, std::span<const float> weights) const {
    const auto width = static_cast<std::size_t>(depth);
    return kernels::tensor_core_magnitude(format, std::span(x).subspan(static_cast<std::size_t>(row) * width, width),
                                          weights);
  }
  std::vector<float> weights(std::int64_t column) const {
    const std::size_t bytes = static_cast<std::size_t>(depth) * info(weight.format).storage_bytes();
    return values_as(format, weight.format,
                     std::span(weight_bytes).subspan(static_cast<std::size_t>(column) * bytes, bytes));
  }
};

void TensorCoreReplay::on_outputs(const ProbeOp& op) {
  for (const ProbeTensor& tensor : op.outputs) outputs_[tensor.id] = tensor.view;
}

Result<std::vector<std::byte>> TensorCoreReplay::bytes_of(const TensorView& view) {
  std::vector<std::byte> bytes(tensor_bytes(view));
  if (Status copied = observer_.copy(view, bytes); !copied) return tl::unexpected(copied.error());
  return bytes;
}

Status TensorCoreReplay::feed(const TensorView& view, const TensorData& data) {
  if (view.stride == view.columns) return device_.upload(view.data, data.bytes);
  const std::size_t element = info(view.format).storage_bytes();
  const std::size_t row_bytes = static_cast<std::size_t>(view.columns) * element;
  for (std::int64_t row = 0; row < view.rows; ++row) {
    auto* to = static_cast<std::byte*>(view.data) + static_cast<std::size_t>(row * view.stride) * element;
    const auto from = std::span(data.bytes).subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes);
    if (Status done = device_.upload(to, from); !done) return done;
  }
  return {};
}

Result<TensorCoreReplay::Operands> TensorCoreReplay::operands(const ProbeOp& op) {
  const auto input = [&](std::string_view role) {
    return std::find_if(op.inputs.begin(), op.inputs.end(), [&](const ProbeInput& one) { return one.role == role; });
  };
  const auto x = input("x");
  const auto weight = input("weight");
  const auto none = op.inputs.end();
  const auto x_view = x == none ? outputs_.end() : outputs_.find(x->tensor);
  const auto weight_view = weight == none ? weights_.end() : weights_.find(std::string(weight->weight));
  if (x_view == outputs_.end() || weight_view == weights_.end()) {
    return fail(fmt::format("{}: the operands of the product are not known", op.name));
  }
  Operands of;
  of.format = kernels::tensor_core_operand(x_view->second.format, weight_view->second.format);
  of.depth = x_view->second.columns;
  of.weight = weight_view->second;
  auto x_bytes = bytes_of(x_view->second);
  if (!x_bytes) return tl::unexpected(x_bytes.error());
  of.x = values_as(of.format, x_view->second.format, *x_bytes);
  auto weight_bytes = bytes_of(of.weight);
  if (!weight_bytes) return tl::unexpected(weight_bytes.error());
  of.weight_bytes = std::move(*weight_bytes);
  return of;
}

/// A recording gives no elements that have not the recorded hash, so that what is equal to them, or is put in an
/// output's place, has it too.
Result<TensorData> TensorCoreReplay::recorded(const ProbeOp& op, const ProbeTensor& out) {
  const auto row = recording_.tensor(out.id);
  if (!row) return tl::unexpected(row.error());
  if (row->stored) {
    Fact<TensorData> data = stored_.fetch(out.id);
    if (!data) return fail(std::move(data.error()));
    return std::move(*data);
  }
  const auto place = place_of(recording_, *row);
  return fail(
      fmt::format("{}: recorded on {} with engine.kernel_form=tensor_core, whose bits are that device's own, "
                  "without the elements of {}: nothing can be compared on {}; "
                  "record with --capture all, or replay on {}",
                  recording_.path().string(), recording_.info().isa, place ? to_string(*place) : std::string(op.name),
                  device_.info().isa, recording_.info().isa));
}

Result<TensorCoreReplay::Compared> TensorCoreReplay::product(const ProbeOp& op, const ProbeTensor& out) {
  const auto expected = recorded(op, out);
  if (!expected) return tl::unexpected(expected.error());
  const auto bytes = bytes_of(out.view);
  if (!bytes) return tl::unexpected(bytes.error());
  Compared compared;
  compared.equal = expected->bytes == *bytes;
  if (compared.equal) return compared;
  const auto of = operands(op);
  if (!of) return tl::unexpected(of.error());
  const TensorData found{out.view.format, out.view.rows, out.view.columns, *bytes};
  for (std::int64_t column = 0; column < out.view.columns; ++column) {
    std::vector<float> weights;
    for (std::int64_t row = 0; row < out.view.rows; ++row) {
      if (found.code(row, column) == expected->code(row, column)) continue;
      if (weights.empty()) weights = of->weights(column);
      double share = 0;
      const bool within =
          kernels::within_tensor_core_bound(out.view.format, of->depth, of->magnitude(row, weights),
                                            expected->value(row, column), found.value(row, column), share);
      if (within && share <= compared.share && !compared.expected.empty()) continue;
      compared.within = within;
      compared.share = std::max(compared.share, share);
      compared.row = row, compared.column = column;
      compared.expected = value_with_code(found.format, expected->value(row, column), expected->code(row, column));
      compared.found = value_with_code(found.format, found.value(row, column), found.code(row, column));
      if (!within) return compared;
    }
  }
  if (Status fed = feed(out.view, *expected); !fed) return tl::unexpected(fed.error());
  return compared;
}

}  // namespace nanscope::scenarios
