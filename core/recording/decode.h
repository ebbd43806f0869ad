#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/recording/rows.h"
#include "core/recording/sqlite.h"

/// Rows out of columns, each checked before it is believed. Private to core/recording.
namespace nanscope::decode {

/// Queries of a schema version, in the order of columns in which the functions below read them; without conditions.
const std::string& select_tensors(std::uint32_t version);
/// For tensor_to_check().
std::string_view select_tensors_to_check(std::uint32_t version);
std::string_view select_ops(std::uint32_t version);
std::string_view select_steps(std::uint32_t version);
/// Of version 2 and later, in order.
inline constexpr std::string_view kSelectSpans =
    "SELECT step, request, number, first_row, row_count, first_token, context FROM spans";
inline constexpr int kTensorDetailColumn = 9;
inline constexpr int kCheckedDetailColumn = 7;
inline constexpr int kCheckedBadColumn = 9;
inline constexpr std::string_view kScaleColumns =
    "step, op, layer, target, policy, format, scale, source, calibrated_request, calibrated_step, calibrated_tokens, "
    "calibrated_absmax, locked, absmax, headroom";
inline constexpr std::string_view kKvColumns =
    "step, request, layer, block, slot_begin, slot_end, first_token, action, writer, format";

/// Rows, channels, positions and layers have no more than 2^40.
inline constexpr std::int64_t kMaxSide = std::int64_t{1} << 40;
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;

/// True when the product fits and nothing is negative: what is computed from it cannot overflow.
bool plausible_shape(std::int64_t rows, std::int64_t columns);

Result<TensorRow> tensor(const sqlite::Statement& row);
/// Reads what the rest of a recording is compared with: of health the counts, of texts the format and the axis. Neither
/// texts nor sums are looked at when all of a recording is, and whether elements are stored takes as long as the rest.
Status tensor_to_check(const sqlite::Statement& row, TensorRow& into);
/// Reads columns id, op, role, format, tokens, channels, first_token, detail, elements, nan, pos_inf, neg_inf,
/// saturated, clipped, absmax.
Result<TensorGlance> tensor_glance(const sqlite::Statement& row);
/// Reads columns id, format, tokens, channels, hash.
Result<TensorHash> tensor_hash(const sqlite::Statement& row);
Result<OpRow> op(const sqlite::Statement& row);
/// Reads all columns of an op but its attributes.
Result<OpRow> op_name(const sqlite::Statement& row);
/// Without its spans. Columns id, request, number, kind, first_token, tokens, context, rank, run, pass, batch, placed.
Result<StepRow> step(const sqlite::Statement& row);
struct SpanRow {
  std::int64_t step = 0;
  Span span;
};
Result<SpanRow> span(const sqlite::Statement& row);
Result<RunNote> note(const sqlite::Statement& row);
/// Gives a step its spans, and what its row says of the first of them. Errors: one lies outside of the step's rows.
Status take_spans(StepRow& step, std::vector<Span> spans);
Result<RequestRow> request(const sqlite::Statement& row);
/// Visits the inputs of an op as they are stored: a role, and a tensor or the name of a weight. Errors: no such list.
Status each_input(
    std::int64_t op, std::string_view stored,
    const std::function<void(std::string_view role, std::int64_t tensor, std::string_view weight)>& visit);
/// Reads columns op, inputs.
Result<std::vector<InputRow>> inputs(const sqlite::Statement& row);
Result<WeightRow> weight(const sqlite::Statement& row);
Result<ScaleRow> scale(const sqlite::Statement& row);
Result<KvRow> kv(const sqlite::Statement& row);
Result<TokenRow> token(const sqlite::Statement& row);
Result<KernelRow> kernel(const sqlite::Statement& row);
Result<EventRow> event(const sqlite::Statement& row);

}  // namespace nanscope::decode
