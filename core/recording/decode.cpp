#include "core/recording/decode.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/recording/names.h"
#include "core/recording/schema.h"

namespace nanscope::decode {

using sqlite::Statement;

const std::string kTensorColumns = fmt::format(
    "id, op, role, format, tokens, channels, heads, first_token, hash, detail, "
    "EXISTS (SELECT 1 FROM chunks WHERE chunks.id = tensors.id * {}), {}",
    schema::kChunksPerTensor, schema::kHealthColumnNames);

namespace {

constexpr int kTensorHealthAt = 11;
constexpr std::int64_t kMaxSide = std::int64_t{1} << 40;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;

Health read_health(const Statement& row, int at) {
  Health health;
  const auto count = [&] { return static_cast<std::uint64_t>(row.integer(at++)); };
  health.count = count();
  ++at;  // bad: the sum of the next three, there for the index
  health.nan = count();
  health.pos_inf = count();
  health.neg_inf = count();
  health.saturated = count();
  health.subnormal = count();
  health.zero = count();
  health.flushed = count();
  health.clipped = count();
  health.first_bad = row.integer(at++);
  health.sum = row.real(at++);
  health.sum_sq = row.real(at++);
  health.min = static_cast<float>(row.real(at++));
  health.max = static_cast<float>(row.real(at++));
  health.absmax = static_cast<float>(row.real(at++));
  return health;
}

Result<std::vector<std::int32_t>> parse_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  if (text.size() < 2 || text.front() != '[' || text.back() != ']')
    return fail("damaged: a token list is no JSON array");
  const char* at = text.data() + 1;
  const char* end = text.data() + text.size() - 1;
  while (at != end) {
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc{} || (next != end && *next != ',')) return fail("damaged: a token list holds no number");
    ids.push_back(id);
    at = next == end ? end : next + 1;
  }
  return ids;
}

Result<Format> read_format(const Statement& row, int column) {
  const std::string text = row.text(column);
  const auto format = format_from_name(text);
  if (!format) return fail(fmt::format("damaged: '{}' is no format", text.substr(0, 40)));
  return *format;
}

template <class Enum, std::size_t N>
Result<Enum> read_word(const std::array<std::string_view, N>& words, const Statement& row, int column) {
  const std::string text = row.text(column);
  const auto value = words::value<Enum>(words, text);
  if (!value) return fail(fmt::format("damaged: unexpected word '{}'", text.substr(0, 40)));
  return *value;
}

}  // namespace

bool plausible_shape(std::int64_t rows, std::int64_t columns) {
  if (rows < 0 || columns < 0 || rows > kMaxSide || columns > kMaxSide) return false;
  return rows == 0 || columns <= kMaxElements / rows;
}

Result<TensorRow> tensor(const Statement& row) {
  TensorRow tensor;
  tensor.id = row.integer(0);
  tensor.op = row.integer(1);
  tensor.role = row.text(2);
  auto format = read_format(row, 3);
  if (!format) return tl::unexpected(std::move(format.error()));
  tensor.format = *format;
  tensor.tokens = row.integer(4);
  tensor.channels = row.integer(5);
  tensor.heads = row.integer(6);
  tensor.first_token = row.integer(7);
  tensor.hash = static_cast<std::uint64_t>(row.integer(8));
  tensor.stored = row.integer(10) != 0;
  tensor.health = read_health(row, kTensorHealthAt);
  if (!plausible_shape(tensor.tokens, tensor.channels) || tensor.heads < 1) {
    return fail(fmt::format("damaged: tensor {} has the shape {} x {} in {} heads", tensor.id, tensor.tokens,
                            tensor.channels, tensor.heads));
  }
  return tensor;
}

Result<TensorGlance> tensor_glance(const Statement& row) {
  TensorGlance glance;
  glance.id = row.integer(0);
  glance.op = row.integer(1);
  glance.role = row.text(2);
  auto format = read_format(row, 3);
  if (!format) return tl::unexpected(std::move(format.error()));
  glance.format = *format;
  glance.tokens = row.integer(4);
  glance.first_token = row.integer(5);
  glance.detailed = row.integer(6) != schema::kDetailNone;
  glance.health.count = static_cast<std::uint64_t>(row.integer(7));
  glance.health.nan = static_cast<std::uint64_t>(row.integer(8));
  glance.health.pos_inf = static_cast<std::uint64_t>(row.integer(9));
  glance.health.neg_inf = static_cast<std::uint64_t>(row.integer(10));
  glance.health.clipped = static_cast<std::uint64_t>(row.integer(11));
  glance.health.absmax = static_cast<float>(row.real(12));
  if (!plausible_shape(glance.tokens, 1)) {
    return fail(fmt::format("damaged: tensor {} has {} tokens", glance.id, glance.tokens));
  }
  return glance;
}

Result<TensorHash> tensor_hash(const Statement& row) {
  TensorHash tensor;
  tensor.id = row.integer(0);
  auto format = read_format(row, 1);
  if (!format) return tl::unexpected(std::move(format.error()));
  tensor.format = *format;
  tensor.tokens = row.integer(2);
  tensor.channels = row.integer(3);
  tensor.hash = static_cast<std::uint64_t>(row.integer(4));
  return tensor;
}

Result<OpRow> op_name(const Statement& row) {
  OpRow op;
  op.id = row.integer(0);
  op.step = row.integer(1);
  op.layer = row.integer(2);
  op.name = row.text(3);
  op.kind = row.text(4);
  return op;
}

Result<OpRow> op(const Statement& row) {
  auto op = op_name(row);
  if (op) op->attributes = row.text(5);
  return op;
}

Result<StepRow> step(const Statement& row) {
  StepRow step;
  step.id = row.integer(0);
  step.request = row.integer(1);
  step.index = row.integer(2);
  auto kind = read_word<StepKind>(words::kStepKinds, row, 3);
  if (!kind) return tl::unexpected(std::move(kind.error()));
  step.kind = *kind;
  step.first_token = row.integer(4);
  step.tokens = row.integer(5);
  step.context = row.integer(6);
  return step;
}

Result<RequestRow> request(const Statement& row) {
  RequestRow request;
  request.id = row.integer(0);
  request.name = row.text(1);
  request.prompt = row.text(2);
  auto prompt = parse_ids(row.text(3));
  if (!prompt) return tl::unexpected(std::move(prompt.error()));
  request.prompt_tokens = std::move(*prompt);
  request.cached_tokens = row.integer(4);
  auto output = parse_ids(row.text(5));
  if (!output) return tl::unexpected(std::move(output.error()));
  request.output_tokens = std::move(*output);
  request.output_text = row.text(6);
  return request;
}

Result<std::vector<InputRow>> inputs(const Statement& row) {
  const auto list = nlohmann::json::parse(row.text(1), nullptr, false);
  const auto damaged = [&] { return fail(fmt::format("damaged: the inputs of op {} are no list", row.integer(0))); };
  if (!list.is_array()) return damaged();
  std::vector<InputRow> inputs;
  for (const auto& pair : list) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string()) return damaged();
    InputRow input;
    input.op = row.integer(0);
    input.role = pair[0].get<std::string>();
    if (pair[1].is_number_integer()) {
      input.tensor = pair[1].get<std::int64_t>();
    } else if (pair[1].is_string()) {
      input.weight = pair[1].get<std::string>();
    } else {
      return damaged();
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

Result<WeightRow> weight(const Statement& row) {
  WeightRow weight;
  weight.name = row.text(0);
  auto format = read_format(row, 1);
  if (!format) return tl::unexpected(std::move(format.error()));
  weight.format = *format;
  weight.rows = row.integer(2);
  weight.columns = row.integer(3);
  weight.hash = static_cast<std::uint64_t>(row.integer(4));
  weight.health = read_health(row, 5);
  return weight;
}

Result<ScaleRow> scale(const Statement& row) {
  ScaleRow scale;
  scale.step = row.integer(0);
  scale.op = row.integer(1);
  scale.layer = row.integer(2);
  scale.target = row.text(3);
  scale.policy = row.text(4);
  auto format = read_format(row, 5);
  if (!format) return tl::unexpected(std::move(format.error()));
  scale.format = *format;
  scale.scale = row.real(6);
  auto source = read_word<ScaleSource>(words::kScaleSources, row, 7);
  if (!source) return tl::unexpected(std::move(source.error()));
  scale.source = *source;
  scale.calibrated_request = row.integer(8);
  scale.calibrated_step = row.integer(9);
  scale.calibrated_tokens = row.integer(10);
  scale.calibrated_absmax = row.real(11);
  scale.locked = row.integer(12) != 0;
  scale.absmax = row.real(13);
  scale.headroom = row.real(14);
  return scale;
}

Result<KvRow> kv(const Statement& row) {
  KvRow kv;
  kv.step = row.integer(0);
  kv.request = row.integer(1);
  kv.layer = row.integer(2);
  kv.block = row.integer(3);
  kv.slot_begin = row.integer(4);
  kv.slot_end = row.integer(5);
  kv.first_token = row.integer(6);
  auto action = read_word<KvAction>(words::kKvActions, row, 7);
  if (!action) return tl::unexpected(std::move(action.error()));
  kv.action = *action;
  kv.writer = row.text(8);
  auto format = read_format(row, 9);
  if (!format) return tl::unexpected(std::move(format.error()));
  kv.format = *format;
  return kv;
}

Result<TokenRow> token(const Statement& row) {
  TokenRow token;
  token.request = row.integer(0);
  token.position = row.integer(1);
  token.token = static_cast<std::int32_t>(row.integer(2));
  token.text = row.text(3);
  auto source = read_word<TokenSource>(words::kTokenSources, row, 4);
  if (!source) return tl::unexpected(std::move(source.error()));
  token.source = *source;
  return token;
}

Result<KernelRow> kernel(const Statement& row) {
  KernelRow kernel;
  kernel.op = row.integer(0);
  kernel.name = row.text(1);
  kernel.start_ns = row.integer(2);
  kernel.duration_ns = row.integer(3);
  kernel.details = row.text(4);
  return kernel;
}

Result<EventRow> event(const Statement& row) {
  EventRow event;
  event.id = row.integer(0);
  event.fault = row.text(1);
  event.tensor = row.integer(2);
  event.because = row.integer(3);
  event.summary = row.text(4);
  event.evidence = row.text(5);
  return event;
}

}  // namespace nanscope::decode
