#include <algorithm>

#include "core/recording/check.h"
#include "core/recording/detail_codec.h"
#include "core/recording/schema.h"
#include "core/tensor/pyramid.h"

namespace nanscope {
namespace {

/// Elements of a tensor that only a replay can give: half a gigabyte of f32.
constexpr std::int64_t kMostMadeAgain = std::int64_t{1} << 27;

/// Rows of a tensor that lie as its axis says; nothing where any number may be.
std::optional<std::int64_t> rows_of_axis(Axis axis, const StepRow& step) {
  switch (axis) {
    case Axis::rows:
      return step.tokens;
    case Axis::live: {
      std::int64_t live = 0;
      for (const Span& span : step.all_spans()) live += span.rows;
      return live;
    }
    case Axis::ends:
      return static_cast<std::int64_t>(step.all_spans().size());
    case Axis::keys:
    case Axis::part:
    case Axis::slots:
    case Axis::none:
      return std::nullopt;
  }
  return std::nullopt;
}

Status compare_place(const TensorRow& tensor, const StepRow* step) {
  if (tensor.first_token < 0 || tensor.first_token > decode::kMaxSide)
    return damaged("tensor {} begins at position {}", tensor.id, tensor.first_token);
  if (step == nullptr) return {};
  const auto spans = step->spans ? static_cast<std::int64_t>(step->spans->size()) : 1;
  if (tensor.sequence >= spans)
    return damaged("tensor {} is of sequence {} of a step that has {}", tensor.id, tensor.sequence, spans);
  const auto rows = tensor.axis ? rows_of_axis(*tensor.axis, *step) : std::nullopt;
  if (rows && *rows != tensor.tokens)
    return damaged("tensor {} has {} rows, its step {} has {}", tensor.id, tensor.tokens, step->id, *rows);
  return {};
}

}  // namespace

Status Recording::Impl::TensorCheck::open() {
  Status status = rows_.open(std::string(decode::select_tensors_to_check(version_)) + " ORDER BY id");
  if (status) status = parts_.open("SELECT id, length(data) FROM chunks ORDER BY id");
  if (status)
    status = details_.open("SELECT tensor, length(token_rows), levels, length(tiles) FROM detail ORDER BY tensor");
  return status;
}

Status Recording::Impl::TensorCheck::take(const StepRow* step) {
  const TensorRow& tensor = tensor_;
  if (Status read = decode::tensor_to_check(rows_.row(), tensor_); !read) return read;
  ids_.add(tensor.id);
  if (tensor.known) ++known_;
  Status status = compare_place(tensor, step);
  if (status) status = compare_health(tensor);
  bool stored = false;
  if (status) status = take_parts(tensor, stored);
  const std::int64_t elements = tensor.tokens * tensor.channels;
  if (status && made_again_ && !stored && tensor.known && elements > kMostMadeAgain)
    return damaged("tensor {} has {} x {} elements, more than a run makes again", tensor.id, tensor.tokens,
                   tensor.channels);
  const bool backed = stored || made_again_ || !tensor.known || tensor.stated || elements == 0 ||
                      rows_.row().integer(decode::kCheckedDetailColumn) != schema::kDetailNone;
  if (status && !backed)
    return damaged("tensor {} has {} x {} elements, of which it holds nothing", tensor.id, tensor.tokens,
                   tensor.channels);
  if (status) status = take_detail(tensor);
  return status ? rows_.next() : status;
}

Status Recording::Impl::TensorCheck::compare_health(const TensorRow& tensor) const {
  const Health& health = tensor.health;
  const std::int64_t bad = rows_.row().integer(decode::kCheckedBadColumn);
  const auto most = static_cast<std::uint64_t>(decode::kMaxElements);
  for (const std::uint64_t count : {health.nan, health.pos_inf, health.neg_inf, health.saturated, health.subnormal,
                                    health.zero, health.flushed, health.clipped}) {
    if (count > health.count || count > most)
      return damaged("tensor {} counts {} of {} elements", tensor.id, static_cast<std::int64_t>(count), health.count);
  }
  if (bad < 0 || static_cast<std::uint64_t>(bad) != health.bad())
    return damaged("tensor {} has a bad count that is not the sum of its parts", tensor.id);
  if (tensor.known && !tensor.stated && health.count != static_cast<std::uint64_t>(tensor.tokens * tensor.channels))
    return damaged("tensor {} of {} x {} elements has the health of {}", tensor.id, tensor.tokens, tensor.channels,
                   health.count);
  const bool somewhere = health.first_bad >= 0;
  const bool right = tensor.stated || !tensor.known || somewhere == (bad > 0);
  if (health.first_bad < -1 || (somewhere && static_cast<std::uint64_t>(health.first_bad) >= health.count) || !right)
    return damaged("tensor {} with {} bad elements has its first at {}", tensor.id, bad, health.first_bad);
  return {};
}

Status Recording::Impl::TensorCheck::take_parts(const TensorRow& tensor, bool& any) {
  const std::int64_t size =
      tensor.tokens * tensor.channels * static_cast<std::int64_t>(nanscope::info(tensor.format).storage_bytes());
  const std::int64_t first = tensor.id * schema::kChunksPerTensor;
  if (tensor.id > std::numeric_limits<std::int64_t>::max() / schema::kChunksPerTensor - 1)
    return damaged("{} is no id of a tensor", tensor.id);
  if (parts_.id() < first)
    return damaged("it holds elements without their tensor ({})", parts_.id() / schema::kChunksPerTensor);
  if (size == 0) ++empty_;
  if (parts_.id() >= first + schema::kChunksPerTensor) return {};
  ++stored_;
  any = true;
  std::int64_t there = 0;
  for (; parts_.id() < first + schema::kChunksPerTensor;) {
    const std::int64_t bytes = parts_.row().integer(1);
    if (parts_.id() - first != there / schema::kChunkBytes || bytes != std::min(schema::kChunkBytes, size - there))
      return damaged("part {} of tensor {} has {} bytes, at offset {} of {}", parts_.id() - first, tensor.id, bytes,
                     there, size);
    there += bytes;
    if (Status status = parts_.next(); !status) return status;
  }
  if (there != size) return damaged("{} of {} bytes of tensor {} are there", there, size, tensor.id);
  return {};
}

Status Recording::Impl::TensorCheck::take_detail(const TensorRow& tensor) {
  if (details_.id() < tensor.id) return damaged("it holds health of rows without their tensor ({})", details_.id());
  const std::int64_t kind = rows_.row().integer(decode::kCheckedDetailColumn);
  if (kind < schema::kDetailNone || kind > schema::kDetailNumbers)
    return damaged("tensor {} has its health in place {}", tensor.id, kind);
  if (kind == schema::kDetailSelf && (tensor.tokens != 1 || level_shape(1, tensor.channels, 0).columns > 1))
    return damaged("tensor {} of {} x {} has the health of one tile", tensor.id, tensor.tokens, tensor.channels);
  const bool stored = kind >= schema::kDetailStored;
  if (stored != (details_.id() == tensor.id))
    return damaged("the health of the rows of tensor {} is {}", tensor.id,
                   stored ? "missing" : "there and not mentioned");
  if (!stored) return {};
  const std::int64_t record = detail_codec::record_bytes(kind);
  const std::int64_t rows = details_.row().integer(1);
  if (rows != tensor.tokens * record)
    return damaged("tensor {} has {} rows, their health {} bytes instead of {}", tensor.id, tensor.tokens, rows,
                   tensor.tokens * record);
  const std::int64_t levels = details_.row().integer(2);
  const int first = level_shape(tensor.tokens, tensor.channels, 0).columns > 1 ? 0 : 1;
  std::int64_t tiles = 0;
  const bool plausible = levels >= 0 && levels <= std::max(0, pyramid_levels(tensor.tokens, tensor.channels) - first);
  for (int i = first; plausible && i < first + levels; ++i)
    tiles += level_shape(tensor.tokens, tensor.channels, i).tiles() * record;
  if (!plausible || details_.row().integer(3) != tiles)
    return damaged("tensor {} has {} bytes of tiles in {} levels, expected {}", tensor.id, details_.row().integer(3),
                   levels, tiles);
  return details_.next();
}

Status Recording::Impl::TensorCheck::finish(const RecordingCounts& counts) const {
  if (parts_.there())
    return damaged("it holds elements without their tensor ({})", parts_.id() / schema::kChunksPerTensor);
  if (details_.there()) return damaged("it holds health of rows without their tensor ({})", details_.id());
  if (known_ != counts.tensors) return damaged("{} of {} tensors are there", known_, counts.tensors);
  if (stored_ > counts.stored_tensors || stored_ + empty_ < counts.stored_tensors)
    return damaged("the elements of {} of {} tensors are there", stored_, counts.stored_tensors);
  return {};
}

}  // namespace nanscope
