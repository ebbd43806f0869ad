#include "core/run/tensor_source.h"

#include <fmt/format.h>

#include <utility>

#include "core/numbers/codec.h"
#include "core/numbers/decode_span.h"
#include "core/tensor/health_of.h"

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

Fact<TensorData> TensorSource::fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count) {
  Fact<TensorData> whole = fetch(tensor);
  if (!whole) return whole;
  if (first < 0 || count < 0 || count > whole->tokens - first) {
    return unreadable(fmt::format("tensor {}: {} rows from row {} of {}", tensor, count, first, whole->tokens));
  }
  return whole->rows(first, count);
}

Fact<TensorData> NoTensors::fetch(std::int64_t tensor) {
  return absent(fmt::format("tensor {}: elements not available", tensor));
}

namespace {

/// Why elements cannot be those that a health was taken of; empty: they can. Sums are left out, whose order the format
/// of the recording defines.
std::string against_health(const TensorRow& row, std::span<const float> values) {
  // No health is taken of integers.
  if (!row.known || row.stated || row.format == Format::i32 || row.health.count != values.size()) return {};
  const Health found = health_of(values, 0);
  const Health& recorded = row.health;
  const auto count = [](std::string_view what, std::uint64_t in_health, std::uint64_t in_elements) {
    return fmt::format("{} {} in its health, {} in its elements", what, in_health, in_elements);
  };
  if (found.nan != recorded.nan) return count("NaN", recorded.nan, found.nan);
  if (found.pos_inf != recorded.pos_inf) return count("+Inf", recorded.pos_inf, found.pos_inf);
  if (found.neg_inf != recorded.neg_inf) return count("-Inf", recorded.neg_inf, found.neg_inf);
  if (found.zero != recorded.zero) return count("zeros", recorded.zero, found.zero);
  if (found.first_bad != recorded.first_bad) return "the first NaN or Inf is at another place in its elements";
  if (found.finite() > 0 &&
      (found.min != recorded.min || found.max != recorded.max || found.absmax != recorded.absmax)) {
    return fmt::format("values from {:.9g} to {:.9g} in its health, {:.9g} to {:.9g} in its elements", recorded.min,
                       recorded.max, found.min, found.max);
  }
  return {};
}

}  // namespace

Fact<TensorData> StoredTensors::fetch(std::int64_t tensor) {
  const Result<TensorRow> row = recording_.tensor(tensor);
  if (!row) return unreadable(row.error().message);
  Result<std::optional<std::vector<std::byte>>> bytes = recording_.tensor_bytes(tensor);
  if (!bytes) return unreadable(bytes.error().message);
  if (!*bytes) return absent(fmt::format("tensor {}: its elements were not captured", tensor));
  TensorData data{row->format, row->tokens, row->channels, std::move(**bytes)};
  const std::size_t expected = static_cast<std::size_t>(data.count()) * info(data.format).storage_bytes();
  if (data.bytes.size() != expected) {
    return unreadable(fmt::format("tensor {}: expected {} bytes for {} x {} {}, found {}", tensor, expected,
                                  data.tokens, data.channels, name(data.format), data.bytes.size()));
  }
  std::vector<float> values;
  data.decode_into(values);
  if (const std::string why = against_health(*row, values); !why.empty()) {
    return unreadable(fmt::format("{}: damaged: tensor {}: {}", recording_.path().string(), tensor, why));
  }
  return data;
}

Fact<TensorData> StoredTensors::fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count) {
  const Result<TensorRow> row = recording_.tensor(tensor);
  if (!row) return unreadable(row.error().message);
  if (first < 0 || count < 0 || first > row->tokens || count > row->tokens - first) {
    return unreadable(fmt::format("tensor {}: {} rows from row {} of {}", tensor, count, first, row->tokens));
  }
  const auto size = row->channels * static_cast<std::int64_t>(info(row->format).storage_bytes());
  Result<std::optional<std::vector<std::byte>>> bytes = recording_.tensor_bytes(tensor, first * size, count * size);
  if (!bytes) return unreadable(bytes.error().message);
  if (!*bytes) return absent(fmt::format("tensor {}: its elements were not captured", tensor));
  return TensorData{row->format, count, row->channels, std::move(**bytes)};
}

Fact<std::shared_ptr<const TensorData>> CachedTensors::fetch(std::int64_t tensor) {
  if (const auto entry = entries_.find(tensor); entry != entries_.end()) {
    uses_.splice(uses_.begin(), uses_, entry->second.use);
    return entry->second.data;
  }
  Fact<TensorData> fetched = source_.fetch(tensor);
  Fact<std::shared_ptr<const TensorData>> data = unreadable("the elements are not of the shape that its row has");
  if (!fetched) {
    data = tl::unexpected(fetched.error());
  } else if (fetched->bytes.size() ==
             static_cast<std::size_t>(fetched->count()) * info(fetched->format).storage_bytes()) {
    // A source that gives fewer bytes than its shape says would make code() read past the end.
    data = std::make_shared<const TensorData>(std::move(*fetched));
  }
  uses_.push_front(tensor);
  const auto size_of = [](const Entry& entry) { return entry.data ? (*entry.data)->bytes.size() : 0; };
  const auto kept = entries_.emplace(tensor, Entry{std::move(data), uses_.begin()}).first;
  held_ += size_of(kept->second);
  Fact<std::shared_ptr<const TensorData>> given = kept->second.data;
  while (held_ > budget_ && uses_.size() > 1) {
    const auto last = entries_.find(uses_.back());
    held_ -= size_of(last->second);
    entries_.erase(last);
    uses_.pop_back();
  }
  return given;
}

}  // namespace nanscope
