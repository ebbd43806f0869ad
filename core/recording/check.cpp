#include "core/recording/check.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/json_depth.h"
#include "core/recording/schema.h"

namespace nanscope {

using sqlite::Query;

namespace {

/// Rows that pad a step of ours: fewer than the largest engine.pad_to.
constexpr std::int64_t kMostPadding = 4095;

}  // namespace

Status Recording::Impl::Cursor::open(const std::string& sql) {
  auto loan = impl_.prepare(sql);
  if (!loan) return tl::unexpected(std::move(loan.error()));
  loan_ = std::move(*loan);
  return next();
}

Status Recording::Impl::Cursor::next() {
  if (impl_.stop.stop_requested()) return fail(kStopped);
  auto more = (**loan_).step();
  if (!more) return fail(impl_.endless() ? kEndless : more.error().message);
  there_ = *more;
  const std::int64_t before = std::exchange(id_, *more ? row().integer(0) : std::numeric_limits<std::int64_t>::max());
  if (*more && id_ <= before) return damaged("the ids of its {} do not ascend from 1", what_);
  return {};
}

/// Compares the tables with each other, each in one pass. Errors do not name the file.
class Recording::Impl::Check {
 public:
  Check(Impl& impl, const RecordingCounts& counts)
      : impl_(impl),
        counts_(counts),
        own_(impl.info.device != kDumpDevice && counts.requests > 0),
        tensors_(impl, own_) {}

  Status run() {
    using Part = Status (Check::*)();
    for (const Part part : {&Check::requests, &Check::steps, &Check::ops_and_tensors, &Check::weights, &Check::scales,
                            &Check::kv, &Check::tokens, &Check::kernels, &Check::events}) {
      if (Status status = (this->*part)(); !status) return status;
    }
    return {};
  }

 private:
  /// Visits all rows of a query until one is found wrong.
  template <class Row>
  Status each(const std::string& sql, Result<Row> (*decode)(const sqlite::Statement&),
              const std::function<Status(const Row&)>& visit) {
    Status found;
    const Status read = impl_.each(Query(sql), decode, [&](const Row& row) {
      found = visit(row);
      return found.has_value();
    });
    return found ? read : found;
  }

  Status requests() {
    if (json_depth(impl_.info.config) > kMostJsonDepth) return damaged("its configuration is nested too deeply");
    std::int64_t there = 0;
    Status status =
        each<RequestRow>("SELECT * FROM requests ORDER BY id", decode::request, [&](const RequestRow& row) -> Status {
          ++there;
          requests_.add(row.id);
          prompts_.emplace(row.id, static_cast<std::int64_t>(row.prompt_tokens.size()));
          if (json_depth(row.prompt) > kMostJsonDepth)
            return damaged("the prompt of request {} is nested too deeply", row.id);
          const auto prompt = static_cast<std::int64_t>(row.prompt_tokens.size());
          if (row.cached_tokens < 0 || row.cached_tokens > prompt)
            return damaged("request {} has {} of {} tokens from the cache", row.id, row.cached_tokens, prompt);
          return {};
        });
    if (status && there != counts_.requests) return damaged("{} of {} requests are there", there, counts_.requests);
    return status;
  }

  Status steps() {
    auto rows = impl_.steps(Query(std::string(decode::select_steps(impl_.version))).then(" ORDER BY id"));
    if (!rows) return tl::unexpected(rows.error());
    steps_ = std::move(*rows);
    std::int64_t spans = 0;
    for (const StepRow& step : steps_) {
      std::int64_t rows = 0;
      for (const Span& span : step.all_spans()) {
        ++spans;
        rows = std::max(rows + span.rows, step.batch * span.rows);
        if (Status status = compare_span(step, span); !status) return status;
      }
      if (own_ && step.tokens > rows + (rows > 0 ? kMostPadding : 0))
        return damaged("step {} of {} tokens has {} rows", step.id, rows, step.tokens);
    }
    const auto there = static_cast<std::int64_t>(steps_.size());
    if (there != counts_.steps) return damaged("{} of {} steps are there", there, counts_.steps);
    if (impl_.version == 1) return {};
    const auto all = sqlite::query_integer(impl_.db.get(), "SELECT count(*) FROM spans");
    if (!all) return tl::unexpected(all.error());
    if (*all != spans) return damaged("it holds a sequence without its step");
    return {};
  }

  /// What is not of a dump runs over the tokens that the recording holds.
  Status compare_span(const StepRow& step, const Span& span) const {
    if (span.index < 0) return damaged("step {} is number {} of request {}", step.id, span.index, span.request);
    if (!own_ || (span.rows == 0 && span.context == 0)) return {};
    const auto prompt = prompts_.find(span.request);
    if (prompt == prompts_.end()) return damaged("step {} is of request {}, which is not there", step.id, span.request);
    if (span.context > prompt->second + span.index || span.rows > span.context)
      return damaged("step {}, number {} of a request of {} tokens, sees {} of them", step.id, span.index,
                     prompt->second, span.context);
    return {};
  }

  /// Ops lie in the ranges that their steps begin, tensors in those of their ops.
  Status ops_and_tensors() {
    Cursor steps(impl_, "steps");
    Cursor ops(impl_, "ops");
    Status status = steps.open("SELECT id, first_op FROM steps ORDER BY id");
    if (status) status = ops.open("SELECT id, step, layer, first_tensor, inputs, attributes FROM ops ORDER BY id");
    if (status) status = tensors_.open();
    std::size_t begun = 0;
    std::int64_t first_op = 0;
    while (status && ops.there()) {
      for (; status && steps.there() && steps.row().integer(1) <= ops.id(); ++begun, status = steps.next()) {
        if (steps.row().integer(1) < std::max<std::int64_t>(1, std::exchange(first_op, steps.row().integer(1))))
          return damaged("step {} begins before the step before it", steps.id());
      }
      const StepRow* step = begun == 0 ? nullptr : &steps_[begun - 1];
      if (status) status = take_op(ops.row(), step);
      const std::int64_t op = ops.id();
      if (status) status = ops.next();
      const std::int64_t end = ops.there() ? ops.row().integer(3) : std::numeric_limits<std::int64_t>::max();
      for (; status && tensors_.there() && tensors_.id() < end; status = tensors_.take(step)) {
        if (tensors_.op() != op)
          return damaged("tensor {} of op {} lies among those of op {}", tensors_.id(), tensors_.op(), op);
      }
    }
    return status ? compare_ops() : status;
  }

  /// Columns id, step, layer, first_tensor, inputs, attributes.
  Status take_op(const sqlite::Statement& row, const StepRow* step) {
    const std::int64_t id = row.integer(0);
    ops_.add(id);
    ++op_count_;
    if (row.integer(1) != (step == nullptr ? 0 : step->id))
      return damaged("op {} of step {} lies among those of step {}", id, row.integer(1),
                     step == nullptr ? 0 : step->id);
    if (row.integer(2) < -1 || row.integer(2) > decode::kMaxSide)
      return damaged("op {} is of layer {}", id, row.integer(2));
    if (row.integer(3) < std::max<std::int64_t>(1, std::exchange(first_tensor_, row.integer(3))))
      return damaged("the tensors of op {} begin before those of the op before it", id);
    if (tensors_.id() < row.integer(3)) return damaged("tensor {} lies before those of its op", tensors_.id());
    if (json_depth(row.view(5)) > kMostJsonDepth) return damaged("the attributes of op {} are nested too deeply", id);
    bool right = true;
    Status read = decode::each_input(id, row.view(4), [&](std::string_view, std::int64_t tensor, std::string_view) {
      right = right && tensor >= 0;
      if (tensor > 0 && !tensors_.ids().has(tensor)) later_.push_back({id, tensor});
    });
    if (read && !right) return damaged("op {} reads a tensor below 0", id);
    return read;
  }

  Status compare_ops() const {
    if (op_count_ != counts_.ops) return damaged("{} of {} ops are there", op_count_, counts_.ops);
    if (tensors_.there()) return damaged("it holds a tensor without its op ({})", tensors_.id());
    for (const auto& [op, tensor] : later_) {
      if (!tensors_.ids().has(tensor)) return damaged("op {} reads tensor {}, which is not there", op, tensor);
    }
    return tensors_.finish(counts_);
  }

  Status weights() {
    return each<WeightRow>("SELECT * FROM weights ORDER BY rowid", decode::weight, [](const WeightRow& row) -> Status {
      if (!decode::plausible_shape(row.rows, row.columns))
        return damaged("weight '{}' has the shape {} x {}", row.name.substr(0, 100), row.rows, row.columns);
      return {};
    });
  }

  Status scales() {
    return each<ScaleRow>(fmt::format("SELECT {} FROM scales ORDER BY id", decode::kScaleColumns), decode::scale,
                          [this](const ScaleRow& row) -> Status {
                            if (!has_step(row.step))
                              return damaged("a scale is of step {}, which is not there", row.step);
                            if (row.op != 0 && !ops_.has(row.op))
                              return damaged("a scale is of op {}, which is not there", row.op);
                            if (row.layer < -1 || row.layer > decode::kMaxSide || row.calibrated_tokens < 0)
                              return damaged("a scale of op {} is of layer {}, from {} tokens", row.op, row.layer,
                                             row.calibrated_tokens);
                            return {};
                          });
  }

  Status kv() {
    return each<KvRow>(
        fmt::format("SELECT {} FROM kv ORDER BY id", decode::kKvColumns), decode::kv,
        [this](const KvRow& row) -> Status {
          if (!has_step(row.step))
            return damaged("a row of the KV history is of step {}, which is not there", row.step);
          const bool slots = row.slot_begin >= 0 && row.slot_begin <= row.slot_end && row.slot_end <= kMostSlots;
          const bool place =
              row.block >= 0 && row.block <= decode::kMaxSide && row.layer >= -1 && row.layer <= decode::kMaxSide;
          if (!slots || !place || std::abs(row.first_token) > decode::kMaxSide)
            return damaged("a row of the KV history is of slots {} to {} of block {}, layer {}, position {}",
                           row.slot_begin, row.slot_end, row.block, row.layer, row.first_token);
          return {};
        });
  }

  Status tokens() {
    return each<TokenRow>("SELECT * FROM tokens ORDER BY request, position", decode::token,
                          [this](const TokenRow& row) -> Status {
                            if (!requests_.has(row.request) || row.position < 0 || row.position > decode::kMaxSide)
                              return damaged("a token is at position {} of request {}", row.position, row.request);
                            return {};
                          });
  }

  Status kernels() {
    return each<KernelRow>("SELECT op, name, start_ns, duration_ns, details FROM kernels ORDER BY id", decode::kernel,
                           [this](const KernelRow& row) -> Status {
                             if (row.op != 0 && !ops_.has(row.op))
                               return damaged("a kernel is of op {}, which is not there", row.op);
                             if (json_depth(row.details) > kMostJsonDepth)
                               return damaged("the details of a kernel are nested too deeply");
                             return {};
                           });
  }

  Status events() {
    std::int64_t last = 0;
    return each<EventRow>("SELECT * FROM events ORDER BY id", decode::event, [&](const EventRow& row) -> Status {
      const bool ascending = row.id > std::exchange(last, row.id);
      if (!ascending || row.because < 0 || row.because >= row.id ||
          (row.tensor != 0 && !tensors_.ids().has(row.tensor)))
        return damaged("event {} is of tensor {}, because of event {}", row.id, row.tensor, row.because);
      if (json_depth(row.evidence) > kMostJsonDepth)
        return damaged("the evidence of event {} is nested too deeply", row.id);
      return {};
    });
  }

  bool has_step(std::int64_t id) const {
    return id == 0 || std::binary_search(steps_.begin(), steps_.end(), id, ById());
  }

  struct ById {
    bool operator()(const StepRow& row, std::int64_t id) const { return row.id < id; }
    bool operator()(std::int64_t id, const StepRow& row) const { return id < row.id; }
  };
  struct Reading {
    std::int64_t op, tensor;
  };
  static constexpr std::int64_t kMostSlots = std::int64_t{1} << 24;

  Impl& impl_;
  RecordingCounts counts_;
  bool own_;  ///< of an engine, not of a dump
  TensorCheck tensors_;
  std::vector<StepRow> steps_;
  IdRanges requests_;
  std::unordered_map<std::int64_t, std::int64_t> prompts_;  ///< tokens of the prompt of a request
  IdRanges ops_;
  std::int64_t op_count_ = 0;
  std::int64_t first_tensor_ = 0;
  std::vector<Reading> later_;  ///< inputs that stand behind their reader
};

Status Recording::check() const {
  // In one transaction, that of open_checked() or another: a writer that lives goes on between two queries.
  const bool own = sqlite3_get_autocommit(impl_->db.get()) != 0;
  if (auto status = own ? sqlite::execute(impl_->db.get(), "BEGIN") : Status{}; !status)
    return impl_->error(status.error().message);
  auto counts = this->counts();
  Status status = counts ? Impl::Check(*impl_, *counts).run() : tl::unexpected(counts.error());
  if (own) std::ignore = sqlite::execute(impl_->db.get(), "COMMIT");
  if (status || !counts) return status;
  return impl_->error(status.error().message);
}

Result<Recording> Recording::open_checked(const std::filesystem::path& path, std::stop_token stop) {
  auto recording = open(path);
  if (!recording) return recording;
  recording->stop_with(std::move(stop));
  if (auto status = recording->check(); !status) return tl::unexpected(std::move(status.error()));
  const auto state = recording->state();
  // Nobody writes to a complete recording any more: all that is read of it is one transaction, which spares SQLite its
  // locks and the look for a journal at each of some ten thousand queries. Not had, each is one.
  if (state && *state == RunState::complete)
    std::ignore = sqlite::execute(recording->impl_->db.get(), "BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1");
  return recording;
}

}  // namespace nanscope
