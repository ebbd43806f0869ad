#include <fmt/format.h>

#include <algorithm>

#include "core/recording/decode.h"
#include "core/recording/detail_codec.h"
#include "core/recording/reader_impl.h"
#include "core/recording/schema.h"
#include "core/tensor/content_hash.h"

/// The parts of a recording that are stored as bytes: health below the tensor, and tensors.
namespace nanscope {
namespace {

using sqlite::Query;
using sqlite::Statement;

struct Detail {
  TensorRow tensor;
  std::int64_t kind = schema::kDetailNone;
};

Result<Detail> decode_detail(const Statement& row) {
  auto tensor = decode::tensor(row);
  if (!tensor) return tl::unexpected(std::move(tensor.error()));
  return Detail{std::move(*tensor), row.integer(decode::kTensorDetailColumn)};
}

/// The check that stands before every allocation: the file holds as much as the shape promises.
bool fits(std::span<const std::byte> blob, std::int64_t expected) {
  return static_cast<std::int64_t>(blob.size()) == expected;
}

/// Whether rows count what their tensor does. Numbers are not compared: sums depend on the order.
bool adds_up(const std::vector<Health>& rows, const Health& whole) {
  Health sum;
  for (const Health& row : rows) {
    sum.count += row.count;
    sum.nan += row.nan;
    sum.pos_inf += row.pos_inf;
    sum.neg_inf += row.neg_inf;
  }
  return sum.count == whole.count && sum.nan == whole.nan && sum.pos_inf == whole.pos_inf &&
         sum.neg_inf == whole.neg_inf;
}

std::int64_t bytes_of(const TensorRow& tensor) {
  return tensor.tokens * tensor.channels * static_cast<std::int64_t>(info(tensor.format).storage_bytes());
}

}  // namespace

Result<std::vector<Health>> Recording::token_health(std::int64_t id) const {
  auto detail =
      impl_->first(Query(decode::select_tensors(impl_->version)).where("id = ?", std::optional(id)), decode_detail);
  if (!detail) return tl::unexpected(std::move(detail.error()));
  if (!*detail) return impl_->error(fmt::format("it has no tensor {}", id));
  const TensorRow& tensor = (*detail)->tensor;
  if ((*detail)->kind == schema::kDetailNone) return std::vector<Health>{};
  if ((*detail)->kind == schema::kDetailSelf && tensor.tokens == 1) return std::vector<Health>{tensor.health};
  auto loan = impl_->prepare("SELECT token_rows FROM detail WHERE tensor = ?");
  if (!loan) return tl::unexpected(std::move(loan.error()));
  Statement& statement = **loan.value();
  auto row = statement.bind(1, id).step();
  if (!row) return impl_->error(row.error().message);
  const auto blob = *row ? statement.blob(0) : std::span<const std::byte>{};
  const std::int64_t expected = tensor.tokens * detail_codec::record_bytes((*detail)->kind);
  if (!fits(blob, expected)) {
    return impl_->error(fmt::format("damaged: tensor {} has {} token rows, its health {} bytes instead of {}", id,
                                    tensor.tokens, blob.size(), expected));
  }
  std::vector<Health> rows =
      detail_codec::decode(blob, (*detail)->kind, detail_codec::token_rows_shape(tensor), tensor);
  if (!adds_up(rows, tensor.health))
    return impl_->error(fmt::format("damaged: the health of the rows of tensor {} does not add up to its own", id));
  return rows;
}

Result<std::optional<TileLevel>> Recording::Impl::stored_tiles(const TensorRow& tensor, int level) {
  auto loan =
      prepare("SELECT d.levels, d.tiles, t.detail FROM detail d JOIN tensors t ON t.id = d.tensor WHERE d.tensor = ?");
  if (!loan) return tl::unexpected(std::move(loan.error()));
  Statement& statement = **loan.value();
  auto row = statement.bind(1, tensor.id).step();
  if (!row) return error(row.error().message);
  if (!*row) return std::optional<TileLevel>{};
  const auto shape_of = [&](int i) { return level_shape(tensor.tokens, tensor.channels, i); };
  const int first = shape_of(0).columns > 1 ? 0 : 1;  // level 0 is the token rows where it can be
  const std::int64_t count = statement.integer(0);
  const auto blob = statement.blob(1);
  const std::int64_t kind = statement.integer(2);
  const std::int64_t record = detail_codec::record_bytes(kind);
  const bool plausible = count >= 0 && count <= std::max(0, pyramid_levels(tensor.tokens, tensor.channels) - first);
  std::optional<TileLevel> found;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  for (int i = first; plausible && i < first + count; ++i) {
    if (i <= level) {
      begin = end;
      found = TileLevel{shape_of(i), {}};
    }
    end += shape_of(i).tiles() * record;
  }
  if (!plausible || !fits(blob, end)) {
    return error(fmt::format("damaged: tensor {} has {} bytes of tiles in {} levels, expected {}", tensor.id,
                             blob.size(), count, end));
  }
  if (found) {
    found->tiles = detail_codec::decode(
        blob.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(found->shape.tiles() * record)), kind,
        found->shape, tensor);
  }
  return found;
}

Result<TileLevel> Recording::tiles(std::int64_t id, int level) const {
  auto tensor = this->tensor(id);
  if (!tensor) return tl::unexpected(std::move(tensor.error()));
  const int levels = pyramid_levels(tensor->tokens, tensor->channels);
  if (level < 0 || level >= std::max(levels, 1)) {
    return impl_->error(fmt::format("tensor {} has {} levels of tiles, there is no level {}", id, levels, level));
  }
  const LevelShape finest = level_shape(tensor->tokens, tensor->channels, 0);
  auto stored = impl_->stored_tiles(*tensor, level);
  if (!stored) return tl::unexpected(std::move(stored.error()));
  TileLevel found;
  if (*stored) {
    found = std::move(**stored);
  } else {
    auto rows = token_health(id);
    if (!rows) return tl::unexpected(std::move(rows.error()));
    if (rows->empty()) return TileLevel{level_shape(tensor->tokens, tensor->channels, level), {}};
    if (finest.columns != 1) return impl_->error(fmt::format("damaged: tensor {} has no tiles", id));
    found = {finest, std::move(*rows)};
  }
  while (found.shape.level < level) {
    found.tiles = merge_level(found.tiles, found.shape);
    found.shape = level_shape(tensor->tokens, tensor->channels, found.shape.level + 1);
  }
  return found;
}

Result<std::vector<std::byte>> Recording::Impl::read_elements(const TensorRow& tensor, std::int64_t offset,
                                                              std::int64_t size) {
  const std::int64_t total = bytes_of(tensor);
  std::vector<std::byte> bytes;
  auto loan = prepare("SELECT data FROM chunks WHERE id = ?");
  if (!loan) return tl::unexpected(std::move(loan.error()));
  sqlite::Statement& statement = **loan.value();
  while (size > 0) {
    // Grows chunk by chunk, each of which is in the file: a lie about the shape allocates nothing.
    const std::int64_t part = offset / schema::kChunkBytes;
    const std::int64_t begin = offset % schema::kChunkBytes;
    const std::int64_t expected = std::min(schema::kChunkBytes, total - part * schema::kChunkBytes);
    if (part >= schema::kChunksPerTensor) return error(fmt::format("damaged: tensor {} is too large", tensor.id));
    auto row = statement.bind(1, tensor.id * schema::kChunksPerTensor + part).step();
    if (!row) return error(row.error().message);
    const auto blob = *row ? statement.blob(0) : std::span<const std::byte>{};
    if (!fits(blob, expected)) {
      return error(fmt::format("damaged: part {} of tensor {} has {} bytes instead of {}", part, tensor.id, blob.size(),
                               expected));
    }
    const std::int64_t take = std::min(size, expected - begin);
    const auto piece = blob.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(take));
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    statement.reset();
    offset += take;
    size -= take;
  }
  return bytes;
}

Status Recording::Impl::compare_hash(const TensorRow& tensor, std::span<const std::byte> whole) {
  if (compared_.contains(tensor.id)) return {};
  ContentHash hash;
  const std::int64_t total = bytes_of(tensor);
  if (!whole.empty()) hash.add(whole);
  for (std::int64_t at = 0; whole.empty() && at < total; at += schema::kChunkBytes) {
    const auto part = read_elements(tensor, at, std::min(schema::kChunkBytes, total - at));
    if (!part) return tl::unexpected(part.error());
    hash.add(*part);
  }
  const std::uint64_t found = hash.finish();
  if (found != tensor.hash) {
    return error(fmt::format("damaged: the elements of tensor {} have the hash {:016x}, recorded was {:016x}",
                             tensor.id, found, tensor.hash));
  }
  compared_.insert(tensor.id);
  return {};
}

Result<std::optional<std::vector<std::byte>>> Recording::tensor_bytes(std::int64_t id) const {
  auto tensor = this->tensor(id);
  if (!tensor) return tl::unexpected(std::move(tensor.error()));
  return tensor_bytes(id, 0, bytes_of(*tensor));
}

Result<std::optional<std::vector<std::byte>>> Recording::tensor_bytes(std::int64_t id, std::int64_t offset,
                                                                      std::int64_t size) const {
  auto tensor = this->tensor(id);
  if (!tensor) return tl::unexpected(std::move(tensor.error()));
  const std::int64_t total = bytes_of(*tensor);
  if (offset < 0 || size < 0 || offset > total || size > total - offset) {
    return impl_->error(
        fmt::format("tensor {} has {} bytes, {} from offset {} are out of range", id, total, size, offset));
  }
  if (!tensor->stored) return std::optional<std::vector<std::byte>>{};
  auto bytes = impl_->read_elements(*tensor, offset, size);
  if (!bytes) return tl::unexpected(std::move(bytes.error()));
  const bool whole = size == total;
  if (auto same =
          impl_->compare_hash(*tensor, whole ? std::span<const std::byte>(*bytes) : std::span<const std::byte>());
      !same)
    return tl::unexpected(std::move(same.error()));
  return std::move(*bytes);
}

}  // namespace nanscope
