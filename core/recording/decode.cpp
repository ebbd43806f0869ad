#include "core/recording/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/parse_json.h"
#include "core/recording/names.h"
#include "core/recording/schema.h"

namespace nanscope::decode {

using sqlite::Statement;

namespace {

constexpr int kTensorHealthAt = 11;
constexpr int kTensorAxisAt = kTensorHealthAt + schema::kHealthColumns;

constexpr int kCountColumns = 11;  ///< of health: those that are integers
constexpr int kCheckedHealthAt = 8;
constexpr int kCheckedAxisAt = kCheckedHealthAt + kCountColumns;

constexpr std::string_view kFirstAxisColumns = "'', -1, '', 1, 0, 0";
constexpr std::string_view kAxisColumns = "axis, sequence, name, known, guessed, stated";

std::string tensor_query(std::string_view stored, std::string_view last_columns) {
  return fmt::format(
      "SELECT id, op, role, format, tokens, channels, heads, first_token, hash, detail, {}, {}, {} FROM tensors",
      stored, schema::kHealthColumnNames, last_columns);
}

std::string is_stored() {
  return fmt::format("EXISTS (SELECT 1 FROM chunks WHERE chunks.id = tensors.id * {})", schema::kChunksPerTensor);
}

/// The columns up to first_bad.
void read_counts(const Statement& row, int at, Health& health) {
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
  health.first_bad = row.integer(at);
}

Health read_health(const Statement& row, int at) {
  Health health;
  read_counts(row, at, health);
  at += kCountColumns;
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

/// JSON of the one kind that lists of inputs are.
class ListReader {
 public:
  explicit ListReader(std::string_view text) : rest_(text) {}

  bool at(char c) {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n\r\t"), rest_.size()));
    return !rest_.empty() && rest_.front() == c;
  }
  bool ends() { return !at('\0') && rest_.empty(); }
  bool take(char c) {
    if (!at(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool number(std::int64_t& into) {
    if (ends()) return false;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), into);
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return error == std::errc{};
  }
  bool text(std::string& into) {
    if (!at('"')) return false;
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return false;
    const std::string_view quoted = rest_.substr(0, end + 1);
    rest_.remove_prefix(end + 1);
    into = quoted.substr(1, end - 1);
    const bool plain = std::all_of(into.begin(), into.end(), [](char c) { return c >= ' ' && c < 0x7f && c != '\\'; });
    if (plain) return true;
    const auto decoded = parse_json_or_none(quoted);
    if (!decoded.is_string()) return false;
    into = decoded.get<std::string>();
    return true;
  }

 private:
  std::string_view rest_;
};

Result<Format> read_format(const Statement& row, int column) {
  const std::string_view text = row.view(column);
  const auto format = format_from_name(text);
  if (!format) return fail(fmt::format("damaged: '{}' is no format", text.substr(0, 40)));
  return *format;
}

template <class Enum, std::size_t N>
Result<Enum> read_word(const std::array<std::string_view, N>& words, const Statement& row, int column) {
  const std::string_view text = row.view(column);
  const auto value = words::value<Enum>(words, text);
  if (!value) return fail(fmt::format("damaged: unexpected word '{}'", text.substr(0, 40)));
  return *value;
}

/// What schema 1 leaves open is an empty word.
Result<std::optional<Axis>> read_axis(const Statement& row, int column) {
  if (row.view(column).empty()) return std::optional<Axis>();
  auto axis = read_word<Axis>(words::kAxes, row, column);
  if (!axis) return tl::unexpected(std::move(axis.error()));
  return std::optional(*axis);
}

Result<bool> read_flag(const Statement& row, int column) {
  const std::int64_t value = row.integer(column);
  if (value != 0 && value != 1) return fail(fmt::format("damaged: {} where 0 or 1 is to be", value));
  return value == 1;
}

bool plausible(std::int64_t value) { return value >= 0 && value <= kMaxSide; }

}  // namespace

const std::string& select_tensors(std::uint32_t version) {
  static const std::string first = tensor_query(is_stored(), kFirstAxisColumns);
  static const std::string second = tensor_query(is_stored(), kAxisColumns);
  return version == 1 ? first : second;
}

std::string_view select_tensors_to_check(std::uint32_t version) {
  return version == 1 ? "SELECT id, op, format, tokens, channels, heads, first_token, detail, elements, bad, nan, "
                        "pos_inf, neg_inf, saturated, subnormal, zero, flushed, clipped, first_bad, '', -1, 1, 0, 0 "
                        "FROM tensors"
                      : "SELECT id, op, format, tokens, channels, heads, first_token, detail, elements, bad, nan, "
                        "pos_inf, neg_inf, saturated, subnormal, zero, flushed, clipped, first_bad, axis, sequence, "
                        "known, guessed, stated FROM tensors";
}

std::string_view select_ops(std::uint32_t version) {
  return version == 1 ? "SELECT id, step, layer, name, kind, attributes, 1 FROM ops"
                      : "SELECT id, step, layer, name, kind, attributes, by_name FROM ops";
}

std::string_view select_steps(std::uint32_t version) {
  return version == 1 ? "SELECT id, request, number, kind, first_token, tokens, context, 0, '', '', 1, 1 FROM steps"
                      : "SELECT id, 0, 0, kind, 0, tokens, 0, rank, run, pass, batch, placed FROM steps";
}

bool plausible_shape(std::int64_t rows, std::int64_t columns) {
  if (rows < 0 || columns < 0 || rows > kMaxSide || columns > kMaxSide) return false;
  return rows == 0 || columns <= kMaxElements / rows;
}

namespace {

/// Columns of what the rows are, and from `flags` on of how much of that is known.
Status read_axis_columns(const Statement& row, int axis_at, int flags, TensorRow& into) {
  const auto axis = read_axis(row, axis_at);
  if (!axis) return tl::unexpected(axis.error());
  into.axis = *axis;
  into.sequence = row.integer(axis_at + 1);
  for (bool* flag : {&into.known, &into.guessed, &into.stated}) {
    const auto value = read_flag(row, flags++);
    if (!value) return tl::unexpected(value.error());
    *flag = *value;
  }
  if (into.sequence < -1) return fail(fmt::format("damaged: tensor {} is of sequence {}", into.id, into.sequence));
  return {};
}

/// Columns of format and shape, from the format's on.
Status read_shape(const Statement& row, int at, TensorRow& into) {
  const auto format = read_format(row, at);
  if (!format) return tl::unexpected(format.error());
  into.format = *format;
  into.tokens = row.integer(at + 1);
  into.channels = row.integer(at + 2);
  into.heads = row.integer(at + 3);
  into.first_token = row.integer(at + 4);
  if (plausible_shape(into.tokens, into.channels) && into.heads >= 1 && into.channels % into.heads == 0) return {};
  return fail(fmt::format("damaged: tensor {} has the shape {} x {} in {} heads", into.id, into.tokens, into.channels,
                          into.heads));
}

}  // namespace

Result<TensorRow> tensor(const Statement& row) {
  TensorRow tensor;
  tensor.id = row.integer(0);
  tensor.op = row.integer(1);
  tensor.role = row.text(2);
  if (auto read = read_shape(row, 3, tensor); !read) return tl::unexpected(std::move(read.error()));
  tensor.hash = static_cast<std::uint64_t>(row.integer(8));
  tensor.stored = row.integer(10) != 0;
  tensor.health = read_health(row, kTensorHealthAt);
  tensor.name = row.text(kTensorAxisAt + 2);
  if (auto read = read_axis_columns(row, kTensorAxisAt, kTensorAxisAt + 3, tensor); !read)
    return tl::unexpected(std::move(read.error()));
  return tensor;
}

Status tensor_to_check(const Statement& row, TensorRow& into) {
  into.id = row.integer(0);
  into.op = row.integer(1);
  if (auto read = read_shape(row, 2, into); !read) return read;
  read_counts(row, kCheckedHealthAt, into.health);
  return read_axis_columns(row, kCheckedAxisAt, kCheckedAxisAt + 2, into);
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
  glance.channels = row.integer(5);
  glance.first_token = row.integer(6);
  glance.detailed = row.integer(7) != schema::kDetailNone;
  glance.health.count = static_cast<std::uint64_t>(row.integer(8));
  glance.health.nan = static_cast<std::uint64_t>(row.integer(9));
  glance.health.pos_inf = static_cast<std::uint64_t>(row.integer(10));
  glance.health.neg_inf = static_cast<std::uint64_t>(row.integer(11));
  glance.health.saturated = static_cast<std::uint64_t>(row.integer(12));
  glance.health.clipped = static_cast<std::uint64_t>(row.integer(13));
  glance.health.absmax = static_cast<float>(row.real(14));
  if (!plausible_shape(glance.tokens, glance.channels)) {
    return fail(fmt::format("damaged: tensor {} has the shape {} x {}", glance.id, glance.tokens, glance.channels));
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
  if (!op) return op;
  op->attributes = row.text(5);
  auto by_name = read_flag(row, 6);
  if (!by_name) return tl::unexpected(std::move(by_name.error()));
  op->by_name = *by_name;
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
  step.rank = row.integer(7);
  step.run = row.text(8);
  step.pass = row.text(9);
  step.batch = row.integer(10);
  auto placed = read_flag(row, 11);
  if (!placed) return tl::unexpected(std::move(placed.error()));
  step.placed = *placed;
  const bool whole =
      step.batch >= 1 && step.batch <= std::max<std::int64_t>(1, step.tokens) && step.tokens % step.batch == 0;
  if (!plausible(step.tokens) || !whole) {
    return fail(fmt::format("damaged: step {} has {} rows in a batch of {}", step.id, step.tokens, step.batch));
  }
  return step;
}

Result<SpanRow> span(const Statement& row) {
  SpanRow found;
  found.step = row.integer(0);
  Span& span = found.span;
  span.request = row.integer(1);
  span.index = row.integer(2);
  span.row = row.integer(3);
  span.rows = row.integer(4);
  span.first_token = row.integer(5);
  span.context = row.integer(6);
  return found;
}

Status take_spans(StepRow& step, std::vector<Span> spans) {
  for (const Span& span : spans) {
    const bool inside = plausible(span.row) && plausible(span.rows) && span.row + span.rows <= step.tokens;
    if (!inside || !plausible(span.first_token) || !plausible(span.context)) {
      return fail(fmt::format("damaged: step {} of {} rows has a sequence of {} rows from row {}, at position {} of {}",
                              step.id, step.tokens, span.rows, span.row, span.first_token, span.context));
    }
  }
  if (!spans.empty()) {
    step.request = spans.front().request;
    step.index = spans.front().index;
    step.first_token = spans.front().first_token;
    step.context = spans.front().context;
  }
  step.spans = std::move(spans);
  return {};
}

Result<RunNote> note(const Statement& row) { return RunNote{row.text(0), row.text(1)}; }

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

Status each_input(std::int64_t op, std::string_view stored,
                  const std::function<void(std::string_view, std::int64_t, std::string_view)>& visit) {
  // A tree of it all would take most of the time in which a recording is checked.
  ListReader list(stored);
  bool more = list.take('[') && !list.take(']');
  const bool empty = !more && stored.size() > 1;
  while (more) {
    std::string role;
    std::string weight;
    std::int64_t tensor = 0;
    if (!list.take('[') || !list.text(role) || !list.take(',')) break;
    if (!(list.at('"') ? list.text(weight) : list.number(tensor)) || !list.take(']')) break;
    visit(role, tensor, weight);
    more = list.take(',');
    if (!more && list.take(']') && list.ends()) return {};
  }
  if (empty && list.ends()) return {};
  return fail(fmt::format("damaged: the inputs of op {} are no list", op));
}

Result<std::vector<InputRow>> inputs(const Statement& row) {
  std::vector<InputRow> inputs;
  const std::int64_t op = row.integer(0);
  const Status read =
      each_input(op, row.view(1), [&](std::string_view role, std::int64_t tensor, std::string_view weight) {
        inputs.push_back({op, std::string(role), tensor, std::string(weight)});
      });
  if (!read) return tl::unexpected(read.error());
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
