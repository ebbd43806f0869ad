#pragma once
#include "core/recording/rows.h"
#include "core/recording/sqlite.h"

/// Rows out of columns, each checked before it is believed. Private to core/recording.
namespace nanscope::decode {

/// Column lists of the tables, in the order in which the functions below read them.
extern const std::string kTensorColumns;
inline constexpr int kTensorDetailColumn = 9;

/// True when the product fits and nothing is negative: what is computed from it cannot overflow.
bool plausible_shape(std::int64_t rows, std::int64_t columns);

Result<TensorRow> tensor(const sqlite::Statement& row);
/// Reads columns id, op, role, format, tokens, first_token, detail, elements, nan, pos_inf, neg_inf, clipped, absmax.
Result<TensorGlance> tensor_glance(const sqlite::Statement& row);
/// Reads columns id, format, tokens, channels, hash.
Result<TensorHash> tensor_hash(const sqlite::Statement& row);
Result<OpRow> op(const sqlite::Statement& row);
/// Reads all columns of an op but its attributes.
Result<OpRow> op_name(const sqlite::Statement& row);
Result<StepRow> step(const sqlite::Statement& row);
Result<RequestRow> request(const sqlite::Statement& row);
/// Reads columns op, inputs.
Result<std::vector<InputRow>> inputs(const sqlite::Statement& row);
Result<WeightRow> weight(const sqlite::Statement& row);
Result<ScaleRow> scale(const sqlite::Statement& row);
Result<KvRow> kv(const sqlite::Statement& row);
Result<TokenRow> token(const sqlite::Statement& row);
Result<KernelRow> kernel(const sqlite::Statement& row);
Result<EventRow> event(const sqlite::Statement& row);

}  // namespace nanscope::decode
