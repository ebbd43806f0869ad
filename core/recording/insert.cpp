#include "core/recording/insert.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/recording/health_columns.h"
#include "core/recording/names.h"
#include "core/recording/schema.h"
#include "core/tensor/pyramid.h"

namespace nanscope::insert {
namespace {

using sqlite::Statement;

/// Of a smaller blob a handle costs as much as the copy that it saves.
constexpr std::size_t kInPlace = std::size_t{48} << 10;
/// A larger one does not stay in SQLite's cache until it is written: its zeros would go to the disk, and come back.
constexpr std::size_t kMostInPlace = std::size_t{2} << 20;

constexpr const char* kDeleteJournal = "PRAGMA journal_mode = DELETE";

/// A JSON array of integers: readable in the shell, and its json_each() takes it apart.
std::string json(const std::vector<std::int32_t>& values) { return fmt::format("[{}]", fmt::join(values, ",")); }

/// Binds the columns of schema::kHealthColumnNames from parameter `at` on.
void bind_health(Statement& into, int at, const Health& health) {
  schema::each_health_column(
      health, [&](std::int64_t value) { into.bind(at++, value); }, [&](double value) { into.bind_real(at++, value); });
}

void append_json(std::string& to, std::string_view text) {
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; });
  if (!plain) {
    to += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return;
  }
  to += '"';
  to += text;
  to += '"';
}

/// Makes `to` [["x",12],["weight","layers.0.q_proj.weight"],...]: a number is a tensor, a text a weight.
void write_json(std::string& to, const std::vector<InputRow>& inputs) {
  to = "[";
  for (const InputRow& input : inputs) {
    to += to.size() > 1 ? ",[" : "[";
    append_json(to, input.role);
    to += ',';
    if (input.weight.empty()) {
      fmt::format_to(std::back_inserter(to), "{}", input.tensor);
    } else {
      append_json(to, input.weight);
    }
    to += ']';
  }
  to += ']';
}

tl::unexpected<Error> out_of_order(std::string_view what, std::int64_t id, std::string_view after, std::int64_t last) {
  return fail(fmt::format("{} {} added after {} {}: rows must come in logical order", what, id, after, last));
}

std::string parameters(int count) {
  std::string text = "?";
  for (int i = 1; i < count; ++i) text += ", ?";
  return text;
}

}  // namespace

Status Inserter::prepare_all() {
  statements_.resize(kNameCount);
  const auto prepare = [this](Name name, const std::string& sql) -> Status {
    auto statement = Statement::prepare(db_.get(), sql);
    if (!statement) return tl::unexpected(std::move(statement.error()));
    statements_[name] = std::move(*statement);
    return {};
  };
  const auto insert = [](std::string_view table, int columns) {
    return fmt::format("INSERT INTO {} VALUES ({})", table, parameters(columns));
  };
  const std::pair<Name, std::string> all[] = {
      {kRequest, insert("requests", 7)},
      {kReplaceRequest, "INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?, ?, ?)"},
      {kStep, insert("steps", 9)},
      {kSpan, insert("spans", 8)},
      {kOp, insert("ops", 9)},
      {kTensor, insert("tensors", 16 + schema::kHealthColumns)},
      {kDetail, insert("detail", 4)},
      {kChunk, insert("chunks", 2)},
      {kWeight, insert("weights", 5 + schema::kHealthColumns)},
      {kScale, "INSERT INTO scales VALUES (NULL, " + parameters(15) + ")"},
      {kKv, "INSERT INTO kv VALUES (NULL, " + parameters(10) + ")"},
      {kToken, "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?)"},
      {kKernel, "INSERT INTO kernels VALUES (NULL, " + parameters(5) + ")"},
      {kNote, "INSERT INTO notes VALUES (NULL, ?, ?)"},
      {kProgress, "INSERT OR REPLACE INTO progress VALUES (1, " + parameters(9) + ")"},
      {kShape, "SELECT tokens * channels, format FROM tensors WHERE id = ?"},
      {kBegin, "BEGIN IMMEDIATE"},
      {kCommit, "COMMIT"},
  };
  for (const auto& [name, sql] : all) {
    if (auto status = prepare(name, sql); !status) return status;
  }
  return {};
}

Status Inserter::write_progress() {
  return statements_[kProgress]
      .bind(1, progress_.state)
      .bind(2, progress_.expected_ops)
      .bind(3, progress_.requests)
      .bind(4, progress_.steps)
      .bind(5, progress_.ops)
      .bind(6, progress_.tensors)
      .bind(7, progress_.stored_tensors)
      .bind(8, progress_.unknown_tensors)
      .bind(9, progress_.expected_tensors)
      .run();
}

Status Inserter::apply(Item& item) {
  return std::visit([this](auto& one) { return write(one); }, item);
}

Status Inserter::Parts::check() const {
  if (written == expected) return {};
  return fail(fmt::format("tensor {}: {} of {} bytes were added", tensor, written, expected));
}

void Inserter::close_blobs() {
  chunk_.close();
  tiles_.close();
}

Status Inserter::end_transaction() {
  close_blobs();
  return statements_[kCommit].run();
}

Status Inserter::commit() {
  if (auto status = parts_.check(); !status) return status;
  if (auto status = write_progress(); !status) return status;
  if (auto status = end_transaction(); !status) return status;
  committed_ = progress_;
  return statements_[kBegin].run();
}

Status Inserter::abandon() {
  progress_ = committed_;
  close_blobs();
  statements_.clear();
  if (sqlite3_get_autocommit(db_.get()) == 0) {
    if (auto status = sqlite::execute(db_.get(), "ROLLBACK"); !status) return status;
  }
  return in_memory_ ? Status{} : sqlite::execute(db_.get(), kDeleteJournal);
}

Status Inserter::complete() {
  if (auto status = parts_.check(); !status) return status;
  progress_.state = words::word(words::kRunStates, RunState::complete);
  if (auto status = write_progress(); !status) return status;
  if (auto status = end_transaction(); !status) return status;
  statements_.clear();
  if (in_memory_) return {};
  return sqlite::execute(db_.get(), kDeleteJournal);
}

sqlite::Database Inserter::release() {
  close_blobs();
  statements_.clear();
  return std::move(db_);
}

Status Inserter::write(const AddRequest& item) {
  const RequestRow& row = item.row;
  const std::string prompt_tokens = json(row.prompt_tokens);
  const std::string output_tokens = json(row.output_tokens);
  if (!item.replace) ++progress_.requests;
  return statements_[item.replace ? kReplaceRequest : kRequest]
      .bind(1, row.id)
      .bind(2, row.name)
      .bind(3, row.prompt)
      .bind(4, prompt_tokens)
      .bind(5, row.cached_tokens)
      .bind(6, output_tokens)
      .bind(7, row.output_text)
      .run();
}

Status Inserter::write(const StepRow& row) {
  if (row.id <= last_step_) return out_of_order("step", row.id, "step", last_step_);
  last_step_ = row.id;
  ++progress_.steps;
  std::int64_t at = 0;
  for (const Span& span : row.all_spans()) {
    if (span.row < 0 || span.rows < 0 || span.row > row.tokens || span.rows > row.tokens - span.row) {
      return fail(fmt::format("step {}: a sequence of {} rows from row {} in {} rows", row.id, span.rows, span.row,
                              row.tokens));
    }
    Status added = statements_[kSpan]
                       .bind(1, row.id)
                       .bind(2, at++)
                       .bind(3, span.request)
                       .bind(4, span.index)
                       .bind(5, span.row)
                       .bind(6, span.rows)
                       .bind(7, span.first_token)
                       .bind(8, span.context)
                       .run();
    if (!added) return added;
  }
  return statements_[kStep]
      .bind(1, row.id)
      .bind(2, words::word(words::kStepKinds, row.kind))
      .bind(3, row.rank)
      .bind(4, row.run)
      .bind(5, row.pass)
      .bind(6, row.tokens)
      .bind(7, row.batch)
      .bind(8, std::int64_t{row.placed})
      .bind(9, last_op_ + 1)
      .run();
}

Status Inserter::apply(const AddOp& item) {
  const OpRow& row = item.row;
  if (row.id <= last_op_) return out_of_order("op", row.id, "op", last_op_);
  if (row.step != last_step_) return out_of_order(fmt::format("op {} of step", row.id), row.step, "step", last_step_);
  last_op_ = row.id;
  ++progress_.ops;
  write_json(inputs_, item.inputs);
  return statements_[kOp]
      .bind(1, row.id)
      .bind(2, row.step)
      .bind(3, row.layer)
      .bind(4, row.name)
      .bind(5, row.kind)
      .bind(6, row.attributes)
      .bind(7, inputs_)
      .bind(8, last_tensor_ + 1)
      .bind(9, std::int64_t{row.by_name})
      .run();
}

Status Inserter::write_detail(const TensorRow& row, const detail_codec::Encoded& detail) {
  Statement& statement = statements_[kDetail].bind(1, row.id).bind(2, detail.token_rows).bind(3, detail.levels);
  const std::size_t bytes = detail.tiles.size() + detail.upper.size();
  if (bytes >= kInPlace && bytes <= kMostInPlace) {
    if (auto status = statement.bind_zeros(4, bytes).run(); !status) return status;
    return tiles_.write(db_.get(), row.id, {detail.tiles, detail.upper});
  }
  if (detail.upper.empty()) return statement.bind(4, detail.tiles).run();
  joined_.assign(detail.tiles.begin(), detail.tiles.end());
  joined_.insert(joined_.end(), detail.upper.begin(), detail.upper.end());
  return statement.bind(4, joined_).run();
}

Status Inserter::write_tensor(const TensorRow& row, std::int64_t detail) {
  Statement& statement = statements_[kTensor];
  statement.bind(1, row.id)
      .bind(2, row.op)
      .bind(3, row.role)
      .bind(4, name(row.format))
      .bind(5, row.tokens)
      .bind(6, row.channels)
      .bind(7, row.heads)
      .bind(8, row.first_token)
      .bind(9, static_cast<std::int64_t>(row.hash))
      .bind(10, detail);
  bind_health(statement, 11, row.health);
  constexpr int kAfter = 11 + schema::kHealthColumns;
  return statement.bind(kAfter, row.axis ? words::word(words::kAxes, *row.axis) : std::string_view())
      .bind(kAfter + 1, row.sequence)
      .bind(kAfter + 2, row.name)
      .bind(kAfter + 3, std::int64_t{row.known})
      .bind(kAfter + 4, std::int64_t{row.guessed})
      .bind(kAfter + 5, std::int64_t{row.stated})
      .run();
}

Status Inserter::write_chunk(std::int64_t id, std::span<const std::byte> elements) {
  Statement& statement = statements_[kChunk].bind(1, id);
  if (elements.size() < kInPlace) return statement.bind(2, elements).run();
  if (auto status = statement.bind_zeros(2, elements.size()).run(); !status) return status;
  return chunk_.write(db_.get(), id, {elements});
}

Status Inserter::write_chunks(std::int64_t tensor, std::span<const std::byte> elements) {
  ++progress_.stored_tensors;
  std::int64_t id = tensor * schema::kChunksPerTensor;
  constexpr auto kChunk = static_cast<std::size_t>(schema::kChunkBytes);
  for (; !elements.empty(); elements = elements.subspan(std::min(elements.size(), kChunk))) {
    if (auto status = write_chunk(id++, elements.first(std::min(elements.size(), kChunk))); !status) return status;
  }
  return {};
}

void merge_health(AddTensor& tensor) {
  if (std::exchange(tensor.merged, true)) return;
  TensorRow& row = tensor.row;
  detail_codec::HealthView& health = tensor.health;
  const LevelShape base = level_shape(row.tokens, row.channels, 0);
  // Of another size they are an error, which apply() tells.
  if (health.tiles.size() != static_cast<std::size_t>(base.tiles())) return;
  if (base.columns == 1) {
    health.tokens = std::exchange(health.tiles, {});
  } else {
    tensor.detail.tokens.resize(static_cast<std::size_t>(base.rows));
    merge_rows(health.tiles, base, tensor.detail.tokens);
    health.tokens = tensor.detail.tokens;
  }
  row.health = merge_all(health.tokens);
}

Status Inserter::apply(AddTensor& item) {
  const TensorRow& row = item.row;
  const LevelShape base = level_shape(row.tokens, row.channels, 0);
  const auto rows = static_cast<std::size_t>(row.tokens);
  const std::size_t elements = rows * static_cast<std::size_t>(row.channels);
  const auto& detail = item.health;
  if (!detail.tokens.empty() && detail.tokens.size() != rows) {
    return fail(fmt::format("tensor {}: {} token rows of health for {} tokens", row.id, detail.tokens.size(), rows));
  }
  if (!detail.tiles.empty() &&
      (detail.tokens.empty() || detail.tiles.size() != static_cast<std::size_t>(base.tiles()))) {
    return fail(fmt::format("tensor {}: {} tiles of health, expected {} beside its token rows", row.id,
                            detail.tiles.size(), base.tiles()));
  }
  if (!detail.tokens.empty() && detail.tiles.empty() && base.columns > 1) {
    return fail(fmt::format("tensor {}: {} channels need tiles of health, not token rows alone", row.id, row.channels));
  }
  if (!item.elements.empty() && item.elements.size() != elements * info(row.format).storage_bytes()) {
    return fail(fmt::format("tensor {}: {} bytes for {} x {} elements of {}", row.id, item.elements.size(), row.tokens,
                            row.channels, name(row.format)));
  }
  if (row.id <= last_tensor_) return out_of_order("tensor", row.id, "tensor", last_tensor_);
  if (row.op != last_op_) return out_of_order(fmt::format("tensor {} of op", row.id), row.op, "op", last_op_);
  last_tensor_ = row.id;
  detail_codec::Encoded encoded{.kind = schema::kDetailNone};
  if (!detail.tokens.empty()) {
    if (base.tiles() == 1 && detail_codec::same_bits(detail.tokens[0], row.health)) {
      encoded.kind = schema::kDetailSelf;
    } else {
      encoded = encoder_.encode(row, detail);
    }
  }
  ++progress_.tensors;
  if (!row.known) ++progress_.unknown_tensors;
  auto status = write_tensor(row, encoded.kind);
  if (status && encoded.kind >= schema::kDetailStored) status = write_detail(row, encoded);
  return status && !item.elements.empty() ? write_chunks(row.id, item.elements) : status;
}

Result<std::size_t> Inserter::bytes_of(std::int64_t tensor) {
  Statement& shape = statements_[kShape];
  auto row = shape.bind(1, tensor).step();
  if (!row) return tl::unexpected(std::move(row.error()));
  std::size_t expected = 0;
  if (*row) {
    const auto format = format_from_name(shape.text(1));
    expected = static_cast<std::size_t>(shape.integer(0)) * info(format.value_or(Format::f32)).storage_bytes();
  }
  const bool found = *row;
  shape.reset();
  if (!found) return fail(fmt::format("tensor {}: bytes of a tensor that was never added", tensor));
  return expected;
}

Status Inserter::write(AddBytes& item) {
  const Result<std::size_t> expected = bytes_of(item.tensor);
  if (!expected) return tl::unexpected(expected.error());
  if (*expected != item.bytes.size()) {
    return fail(fmt::format("tensor {}: {} bytes, its shape needs {}", item.tensor, item.bytes.size(), *expected));
  }
  return item.bytes.empty() ? Status{} : write_chunks(item.tensor, item.bytes);
}

Status Inserter::write(AddPart& item) {
  if (item.tensor != parts_.tensor) {
    if (auto status = parts_.check(); !status) return status;
    const Result<std::size_t> expected = bytes_of(item.tensor);
    if (!expected) return tl::unexpected(expected.error());
    parts_ = {item.tensor, 0, *expected};
    ++progress_.stored_tensors;
  }
  const std::size_t left = parts_.expected - parts_.written;
  if (item.bytes.size() != std::min(left, static_cast<std::size_t>(schema::kChunkBytes))) {
    return fail(fmt::format("tensor {}: a part of {} bytes where {} are left", item.tensor, item.bytes.size(), left));
  }
  if (item.bytes.empty()) return {};
  const auto part = static_cast<std::int64_t>(parts_.written) / schema::kChunkBytes;
  if (part >= schema::kChunksPerTensor) return fail(fmt::format("tensor {}: too large to be stored", item.tensor));
  parts_.written += item.bytes.size();
  return write_chunk(item.tensor * schema::kChunksPerTensor + part, item.bytes);
}

Status Inserter::write(const WeightRow& row) {
  Statement& statement = statements_[kWeight];
  statement.bind(1, row.name)
      .bind(2, name(row.format))
      .bind(3, row.rows)
      .bind(4, row.columns)
      .bind(5, static_cast<std::int64_t>(row.hash));
  bind_health(statement, 6, row.health);
  return statement.run();
}

Status Inserter::write(const ScaleRow& row) {
  return statements_[kScale]
      .bind(1, row.step)
      .bind(2, row.op)
      .bind(3, row.layer)
      .bind(4, row.target)
      .bind(5, row.policy)
      .bind(6, name(row.format))
      .bind_real(7, row.scale)
      .bind(8, words::word(words::kScaleSources, row.source))
      .bind(9, row.calibrated_request)
      .bind(10, row.calibrated_step)
      .bind(11, row.calibrated_tokens)
      .bind_real(12, row.calibrated_absmax)
      .bind(13, std::int64_t{row.locked})
      .bind_real(14, row.absmax)
      .bind_real(15, row.headroom)
      .run();
}

Status Inserter::write(const KvRow& row) {
  return statements_[kKv]
      .bind(1, row.step)
      .bind(2, row.request)
      .bind(3, row.layer)
      .bind(4, row.block)
      .bind(5, row.slot_begin)
      .bind(6, row.slot_end)
      .bind(7, row.first_token)
      .bind(8, words::word(words::kKvActions, row.action))
      .bind(9, row.writer)
      .bind(10, name(row.format))
      .run();
}

Status Inserter::write(const TokenRow& row) {
  return statements_[kToken]
      .bind(1, row.request)
      .bind(2, row.position)
      .bind(3, std::int64_t{row.token})
      .bind(4, row.text)
      .bind(5, words::word(words::kTokenSources, row.source))
      .run();
}

Status Inserter::write(const KernelRow& row) {
  return statements_[kKernel]
      .bind(1, row.op)
      .bind(2, row.name)
      .bind(3, row.start_ns)
      .bind(4, row.duration_ns)
      .bind(5, row.details)
      .run();
}

Status Inserter::write(const RunNote& note) { return statements_[kNote].bind(1, note.tensor).bind(2, note.text).run(); }

Status Inserter::write(const ExpectedOps& item) {
  progress_.expected_ops = item.ops;
  return {};
}

Status Inserter::write(const ExpectedTensors& item) {
  progress_.expected_tensors = item.tensors;
  return {};
}

Status Inserter::write(const SetConfig& item) {
  auto update = sqlite::Statement::prepare(db_.get(), "UPDATE run SET value = ? WHERE key = 'config'");
  return update ? update->bind(1, item.config).run() : Status(tl::unexpected(std::move(update.error())));
}

}  // namespace nanscope::insert
