#include "core/recording/reader.h"

#include <fmt/format.h>

#include <cstring>

#include "core/recording/decode.h"
#include "core/recording/names.h"
#include "core/recording/reader_impl.h"
#include "core/recording/schema.h"

namespace nanscope {
namespace {

using sqlite::Query;
using sqlite::Statement;

// What belongs to a step or an op is a range of ids: from its first to the next one's first. Before the first step lie
// parameters, whose step is 0.
constexpr std::string_view kOpsOfStep =
    "id >= coalesce((SELECT first_op FROM steps WHERE id = ?), 0) AND "
    "id < coalesce((SELECT first_op FROM steps WHERE id > ? ORDER BY id LIMIT 1), 9223372036854775807) AND step = ?";
constexpr std::string_view kTensorsOfOp =
    "id >= (SELECT first_tensor FROM ops WHERE id = ?) AND "
    "id < coalesce((SELECT first_tensor FROM ops WHERE id > ? ORDER BY id LIMIT 1), 9223372036854775807) AND op = ?";
constexpr std::string_view kTensorsOfStep =
    "id >= (SELECT first_tensor FROM ops WHERE id >= coalesce((SELECT first_op FROM steps WHERE id = ?), 0) ORDER BY "
    "id LIMIT 1) "
    "AND id < coalesce((SELECT first_tensor FROM ops WHERE id >= "
    "(SELECT first_op FROM steps WHERE id > ? ORDER BY id LIMIT 1) ORDER BY id LIMIT 1), 9223372036854775807)";

/// Refuses a scan that does not ascend: only a damaged file does that, and it might never end.
class Ascending {
 public:
  bool accept(std::int64_t id) {
    ok_ = ok_ && (first_ || id > last_);
    first_ = false;
    last_ = id;
    return ok_;
  }
  bool ok() const { return ok_; }

 private:
  bool first_ = true;
  bool ok_ = true;
  std::int64_t last_ = 0;
};

}  // namespace

Recording::Recording(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Recording::Recording(Recording&&) noexcept = default;
Recording& Recording::operator=(Recording&&) noexcept = default;
Recording::~Recording() = default;

void Recording::stop_with(std::stop_token stop) { impl_->stop = std::move(stop); }

const std::filesystem::path& Recording::path() const { return impl_->path; }
const RunInfo& Recording::info() const { return impl_->info; }
std::uint32_t Recording::schema() const { return impl_->version; }

Result<RunState> Recording::state() const {
  auto loan = impl_->prepare("SELECT state FROM progress");
  if (!loan) return tl::unexpected(std::move(loan.error()));
  Statement& statement = **loan.value();
  auto row = statement.step();
  if (!row) return impl_->error(row.error().message);
  const auto state = words::value<RunState>(words::kRunStates, *row ? statement.text(0) : "");
  if (!state) return impl_->error("damaged: its state is no known word");
  statement.reset();  // or this reader's own lock would hold the writer up while we look at it
  if (*state != RunState::recording) return *state;
  return impl_->writer_lives() ? RunState::recording : RunState::interrupted;
}

Result<RecordingCounts> Recording::counts() const {
  const auto decode = [](const Statement& row) {
    RecordingCounts counts;
    counts.expected_ops = row.integer(0);
    counts.requests = row.integer(1);
    counts.steps = row.integer(2);
    counts.ops = row.integer(3);
    counts.tensors = row.integer(4);
    counts.stored_tensors = row.integer(5);
    const std::int64_t unknown = row.integer(6);
    if (unknown < 0 || unknown > counts.tensors) {
      return Result<RecordingCounts>(
          fail(fmt::format("damaged: {} of {} tensors are said to be unknown", unknown, counts.tensors)));
    }
    counts.tensors -= unknown;
    counts.expected_tensors = row.integer(7);
    return Result<RecordingCounts>(counts);
  };
  const std::string_view added = impl_->version == 1 ? "0, 0" : "unknown_tensors, expected_tensors";
  auto counts = impl_->first<RecordingCounts>(
      Query(fmt::format("SELECT expected_ops, requests, steps, ops, tensors, stored_tensors, {} FROM progress", added)),
      decode);
  if (!counts) return tl::unexpected(std::move(counts.error()));
  if (!*counts) return impl_->error("damaged: table progress is empty");
  return **counts;
}

Result<std::vector<RequestRow>> Recording::requests() const {
  return impl_->all(Query("SELECT * FROM requests ORDER BY id"), decode::request);
}

Result<RequestRow> Recording::request(std::int64_t id) const {
  auto found = impl_->first(Query("SELECT * FROM requests").where("id = ?", std::optional(id)), decode::request);
  if (!found) return tl::unexpected(std::move(found.error()));
  if (!*found) return impl_->error(fmt::format("it has no request {}", id));
  return std::move(**found);
}

Result<std::vector<StepRow>> Recording::Impl::steps(const Query& query) {
  auto rows = all(query, decode::step);
  if (!rows || rows->empty() || version == 1) return rows;
  // All between the first and the last of them: they are few beside the ops.
  Query of_them{std::string(decode::kSelectSpans)};
  of_them.where("step >= ?", std::optional(rows->front().id)).where("step <= ?", std::optional(rows->back().id));
  std::map<std::int64_t, std::vector<Span>> spans;
  auto status = each(of_them.then(" ORDER BY step, span"), decode::span, [&](const decode::SpanRow& row) {
    spans[row.step].push_back(row.span);
    return true;
  });
  if (!status) return tl::unexpected(std::move(status.error()));
  for (StepRow& row : *rows) {
    if (auto taken = decode::take_spans(row, std::move(spans[row.id])); !taken) return error(taken.error().message);
  }
  return rows;
}

Result<std::vector<StepRow>> Recording::steps(std::optional<std::int64_t> request) const {
  Query query{std::string(decode::select_steps(impl_->version))};
  query.where(impl_->version == 1 ? "request = ?" : "id IN (SELECT step FROM spans WHERE request = ?)", request);
  return impl_->steps(query.then(" ORDER BY id"));
}

Result<StepRow> Recording::step(std::int64_t id) const {
  auto found =
      impl_->steps(Query(std::string(decode::select_steps(impl_->version))).where("id = ?", std::optional(id)));
  if (!found) return tl::unexpected(std::move(found.error()));
  if (found->empty()) return impl_->error(fmt::format("it has no step {}", id));
  return std::move(found->front());
}

Result<std::optional<StepRow>> Recording::find_step(std::int64_t request, std::int64_t index) const {
  Query query{std::string(decode::select_steps(impl_->version))};
  if (impl_->version == 1) {
    query.where("request = ?", std::optional(request)).where("number = ?", std::optional(index));
  } else {
    query.where("id = (SELECT step FROM spans WHERE request = ? AND number = ? ORDER BY step LIMIT 1)")
        .value(request)
        .value(index);
  }
  auto found = impl_->steps(query.then(" ORDER BY id LIMIT 1"));
  if (!found) return tl::unexpected(std::move(found.error()));
  return found->empty() ? std::nullopt : std::optional(std::move(found->front()));
}

Status Recording::for_each_op(const OpFilter& filter, const std::function<bool(const OpRow&)>& visit) const {
  Ascending order;
  Query query{std::string(decode::select_ops(impl_->version))};
  query.where_range(kOpsOfStep, filter.step, 3)
      .where("layer = ?", filter.layer)
      .where("name = ?", filter.name)
      .where("kind = ?", filter.kind)
      .where("id >= ?", std::optional(filter.first_id))
      .then(" ORDER BY id")
      .limit(filter.limit);
  auto status = impl_->each(query, decode::op, [&](const OpRow& op) { return order.accept(op.id) && visit(op); });
  if (status && !order.ok()) return impl_->error("damaged: the ids of its ops do not ascend");
  return status;
}

Result<std::vector<OpRow>> Recording::ops(const OpFilter& filter) const {
  std::vector<OpRow> rows;
  auto status = for_each_op(filter, [&](const OpRow& row) {
    rows.push_back(row);
    return true;
  });
  if (!status) return tl::unexpected(std::move(status.error()));
  return rows;
}

Status Recording::for_each_op_name(const std::function<bool(const OpRow&)>& visit) const {
  Ascending order;
  const Query query("SELECT id, step, layer, name, kind FROM ops ORDER BY id");
  auto status = impl_->each(query, decode::op_name, [&](const OpRow& op) { return order.accept(op.id) && visit(op); });
  if (status && !order.ok()) return impl_->error("damaged: the ids of its ops do not ascend");
  return status;
}

Result<OpRow> Recording::op(std::int64_t id) const {
  auto found = impl_->first(Query(std::string(decode::select_ops(impl_->version))).where("id = ?", std::optional(id)),
                            decode::op);
  if (!found) return tl::unexpected(std::move(found.error()));
  if (!*found) return impl_->error(fmt::format("it has no op {}", id));
  return std::move(**found);
}

Result<std::vector<InputRow>> Recording::inputs_of(std::int64_t op) const {
  auto found = impl_->first(Query("SELECT id, inputs FROM ops").where("id = ?", std::optional(op)), decode::inputs);
  if (!found) return tl::unexpected(std::move(found.error()));
  if (!*found) return impl_->error(fmt::format("it has no op {}", op));
  return std::move(**found);
}

Status Recording::for_each_tensor(const TensorFilter& filter,
                                  const std::function<bool(const TensorRow&)>& visit) const {
  Ascending order;
  Query query{decode::select_tensors(impl_->version)};
  query.where_range(kTensorsOfStep, filter.step, 2).where("role = ?", filter.role);
  if (filter.bad_only) query.where("bad > 0");
  query.where("id >= ?", std::optional(filter.first_id)).then(" ORDER BY id").limit(filter.limit);
  auto status =
      impl_->each(query, decode::tensor, [&](const TensorRow& row) { return order.accept(row.id) && visit(row); });
  if (status && !order.ok()) return impl_->error("damaged: the ids of its tensors do not ascend");
  return status;
}

Result<std::vector<TensorRow>> Recording::tensors(const TensorFilter& filter) const {
  std::vector<TensorRow> rows;
  auto status = for_each_tensor(filter, [&](const TensorRow& row) {
    rows.push_back(row);
    return true;
  });
  if (!status) return tl::unexpected(std::move(status.error()));
  return rows;
}

Status Recording::for_each_glance(std::optional<std::int64_t> step,
                                  const std::function<bool(const TensorGlance&)>& visit) const {
  Ascending order;
  Query query(
      "SELECT id, op, role, format, tokens, channels, first_token, detail, elements, nan, pos_inf, neg_inf, saturated, "
      "clipped, absmax FROM tensors");
  query.where_range(kTensorsOfStep, step, 2).then(" ORDER BY id");
  auto status = impl_->each(query, decode::tensor_glance,
                            [&](const TensorGlance& row) { return order.accept(row.id) && visit(row); });
  if (status && !order.ok()) return impl_->error("damaged: the ids of its tensors do not ascend");
  return status;
}

Result<std::vector<TensorHash>> Recording::tensor_hashes() const {
  return impl_->all(Query("SELECT id, format, tokens, channels, hash FROM tensors ORDER BY id"), decode::tensor_hash);
}

Result<std::vector<TensorRow>> Recording::tensors_of(std::int64_t op) const {
  return impl_->all(Query(decode::select_tensors(impl_->version)).where_range(kTensorsOfOp, op, 3).then(" ORDER BY id"),
                    decode::tensor);
}

Result<TensorRow> Recording::tensor(std::int64_t id) const {
  std::optional<TensorRow>& last = impl_->last_tensor;
  if (last && last->id == id && !impl_->stop.stop_requested()) return *last;
  auto found =
      impl_->first(Query(decode::select_tensors(impl_->version)).where("id = ?", std::optional(id)), decode::tensor);
  if (!found) return tl::unexpected(std::move(found.error()));
  if (!*found) return impl_->error(fmt::format("it has no tensor {}", id));
  last = std::move(**found);
  return *last;
}

Result<std::optional<BadOp>> Recording::first_bad_op() const {
  Query query{decode::select_tensors(impl_->version) + " INDEXED BY tensors_bad"};
  auto tensor = impl_->first(query.where("bad > 0").then(" ORDER BY op, id LIMIT 1"), decode::tensor);
  if (!tensor) return tl::unexpected(std::move(tensor.error()));
  if (!*tensor) return std::optional<BadOp>{};
  auto maker = op((*tensor)->op);
  if (!maker) return tl::unexpected(std::move(maker.error()));
  return BadOp{std::move(*maker), std::move(**tensor)};
}

Result<std::vector<WeightRow>> Recording::weights() const {
  return impl_->all(Query("SELECT * FROM weights ORDER BY rowid"), decode::weight);
}

Result<std::vector<ScaleRow>> Recording::scales(const ScaleFilter& filter) const {
  return impl_->all(Query(fmt::format("SELECT {} FROM scales", decode::kScaleColumns))
                        .where("step = ?", filter.step)
                        .where("op = ?", filter.op)
                        .where("layer = ?", filter.layer)
                        .where("target = ?", filter.target)
                        .then(" ORDER BY id"),
                    decode::scale);
}

Result<std::vector<KvRow>> Recording::kv_history(const KvFilter& filter) const {
  return impl_->all(Query(fmt::format("SELECT {} FROM kv", decode::kKvColumns))
                        .where("block = ?", filter.block)
                        .where("request = ?", filter.request)
                        .where("step = ?", filter.step)
                        .where("step <= ?", filter.up_to_step)
                        .then(" ORDER BY id"),
                    decode::kv);
}

Result<std::vector<TokenRow>> Recording::tokens(std::int64_t request) const {
  return impl_->all(
      Query("SELECT * FROM tokens").where("request = ?", std::optional(request)).then(" ORDER BY position"),
      decode::token);
}

Result<std::vector<RunNote>> Recording::notes() const {
  if (impl_->version == 1) return std::vector<RunNote>{};
  return impl_->all(Query("SELECT tensor, text FROM notes ORDER BY id"), decode::note);
}

Result<std::vector<KernelRow>> Recording::kernels(std::optional<std::int64_t> op) const {
  return impl_->all(
      Query("SELECT op, name, start_ns, duration_ns, details FROM kernels").where("op = ?", op).then(" ORDER BY id"),
      decode::kernel);
}

Status Recording::for_each_kernel(const std::function<bool(const KernelRow&)>& visit) const {
  return impl_->each(Query("SELECT op, name, start_ns, duration_ns, '' FROM kernels ORDER BY id"), decode::kernel,
                     visit);
}

Result<std::vector<EventRow>> Recording::events() const {
  return impl_->all(Query("SELECT * FROM events ORDER BY id"), decode::event);
}

}  // namespace nanscope
