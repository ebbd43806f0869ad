#include "core/run/tensor_source.h"

#include <fmt/format.h>

#include <utility>

#include "core/numbers/codec.h"
#include "core/numbers/decode_span.h"

namespace nanscope {

std::uint32_t TensorData::code(std::int64_t index) const {
  const std::size_t size = info(format).storage_bytes();
  const std::size_t offset = static_cast<std::size_t>(index) * size;
  std::uint32_t code = 0;
  for (std::size_t i = 0; i < size; ++i) code |= std::to_integer<std::uint32_t>(bytes[offset + i]) << (8 * i);
  return code;
}

float TensorData::value(std::int64_t index) const { return decode(format, code(index)); }

void TensorData::decode_into(std::vector<float>& into) const {
  into.resize(static_cast<std::size_t>(count()));
  decode(format, bytes, into);
}

std::vector<float> TensorData::values_as(Format as) const {
  std::vector<float> values(static_cast<std::size_t>(count()));
  if (info(as).storage_bytes() == info(format).storage_bytes()) {
    decode(as, bytes, values);
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = decode(as, code(static_cast<std::int64_t>(i)));
  }
  return values;
}

TensorData TensorData::rows(std::int64_t first, std::int64_t count) const {
  const std::size_t row = static_cast<std::size_t>(channels) * info(format).storage_bytes();
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(first) * row);
  return {format, count, channels, {begin, begin + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(count) * row)}};
}

Result<TensorData> TensorSource::fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count) {
  Result<TensorData> whole = fetch(tensor);
  if (!whole) return whole;
  if (first < 0 || count < 0 || count > whole->tokens - first) {
    return fail(fmt::format("tensor {}: {} rows from row {} of {}", tensor, count, first, whole->tokens));
  }
  return whole->rows(first, count);
}

Result<TensorData> NoTensors::fetch(std::int64_t tensor) {
  return fail(fmt::format("tensor {}: elements not available", tensor));
}

Result<TensorData> StoredTensors::fetch(std::int64_t tensor) {
  const Result<TensorRow> row = recording_.tensor(tensor);
  if (!row) return tl::unexpected(row.error());
  Result<std::optional<std::vector<std::byte>>> bytes = recording_.tensor_bytes(tensor);
  if (!bytes) return tl::unexpected(bytes.error());
  if (!*bytes) return fail(fmt::format("tensor {}: its elements were not captured", tensor));
  TensorData data{row->format, row->tokens, row->channels, std::move(**bytes)};
  const std::size_t expected = static_cast<std::size_t>(data.count()) * info(data.format).storage_bytes();
  if (data.bytes.size() != expected) {
    return fail(fmt::format("tensor {}: expected {} bytes for {} x {} {}, found {}", tensor, expected, data.tokens,
                            data.channels, name(data.format), data.bytes.size()));
  }
  return data;
}

Result<TensorData> StoredTensors::fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count) {
  const Result<TensorRow> row = recording_.tensor(tensor);
  if (!row) return tl::unexpected(row.error());
  if (first < 0 || count < 0 || first > row->tokens || count > row->tokens - first) {
    return fail(fmt::format("tensor {}: {} rows from row {} of {}", tensor, count, first, row->tokens));
  }
  const auto size = row->channels * static_cast<std::int64_t>(info(row->format).storage_bytes());
  Result<std::optional<std::vector<std::byte>>> bytes = recording_.tensor_bytes(tensor, first * size, count * size);
  if (!bytes) return tl::unexpected(bytes.error());
  if (!*bytes) return fail(fmt::format("tensor {}: its elements were not captured", tensor));
  return TensorData{row->format, count, row->channels, std::move(**bytes)};
}

std::shared_ptr<const TensorData> CachedTensors::fetch(std::int64_t tensor) {
  if (const auto entry = entries_.find(tensor); entry != entries_.end()) {
    uses_.splice(uses_.begin(), uses_, entry->second.use);
    return entry->second.data;
  }
  Result<TensorData> fetched = source_.fetch(tensor);
  std::shared_ptr<const TensorData> data;
  std::string problem = fetched ? "the elements are not of the shape that its row states" : fetched.error().message;
  if (fetched) {
    const std::size_t size = static_cast<std::size_t>(fetched->count()) * info(fetched->format).storage_bytes();
    // A source that hands over fewer bytes than its shape says would make code() read past the end.
    if (fetched->bytes.size() == size) data = std::make_shared<const TensorData>(std::move(*fetched));
  }
  uses_.push_front(tensor);
  entries_.emplace(tensor, Entry{data, data ? std::string() : std::move(problem), uses_.begin()});
  if (data) held_ += data->bytes.size();
  while (held_ > budget_ && uses_.size() > 1) {
    const auto last = entries_.find(uses_.back());
    if (last->second.data) held_ -= last->second.data->bytes.size();
    entries_.erase(last);
    uses_.pop_back();
  }
  return data;
}

std::string CachedTensors::why_not(std::int64_t tensor) const {
  const auto entry = entries_.find(tensor);
  return entry == entries_.end() ? std::string() : entry->second.problem;
}

}  // namespace nanscope
