#include "core/numbers/bits_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "core/numbers/anatomy.h"
#include "core/numbers/bits_words.h"

namespace nanscope {

namespace bits {
namespace {

/// The real value as f32: the cast starts from it, or a code stands for it.
std::uint32_t given_bits(const StoredValue& one, double scale) {
  if (one.input.kind == InputKind::f32_bits) return one.input.bits;
  if (one.input.kind == InputKind::code)
    return std::bit_cast<std::uint32_t>(f32_of(one.rounding.value) * static_cast<float>(scale));
  return std::bit_cast<std::uint32_t>(f32_of(one.input.value));
}

}  // namespace

Result<std::vector<StoredValue>> store_values(const BitsOptions& options, std::span<const std::string> values) {
  if (options.format.empty()) return fail("several values need a format: add -f FORMAT, or --block PRESET");
  std::vector<StoredValue> all;
  for (const std::string& typed : values) {
    BitsOptions one = options;
    one.input = typed;
    const Result<Request> request = parse_request(one);
    if (!request) return tl::unexpected(request.error());
    StoredValue stored{.typed = typed, .input = request->input, .rounding = {}};
    if (stored.input.kind == InputKind::code) {
      stored.rounding = round_value(*request->format, exact_value(*request->format, stored.input.bits),
                                    overflow_of(options, *request->format));
      stored.rounding.code = stored.input.bits;
    } else {
      stored.rounding = cast_input(stored.input, *request->format, options);
    }
    all.push_back(std::move(stored));
  }
  return all;
}

Distinct count_distinct(std::span<const StoredValue> values, double scale) {
  std::set<std::uint32_t> given;
  std::set<std::uint32_t> stored;
  for (const StoredValue& one : values) {
    given.insert(given_bits(one, scale));
    stored.insert(one.rounding.code);
  }
  return {.given = given.size(), .stored = stored.size()};
}

}  // namespace bits

namespace {

using Row = std::array<std::string, 6>;

Row row_of(const bits::StoredValue& one, const BitsOptions& options) {
  const Rounding& r = one.rounding;
  const bool code = one.input.kind == bits::InputKind::code;
  const double back = code ? r.value : r.stored;
  return {one.typed,
          short_decimal(r.value),
          bits::code_text(r.format, r.code),
          short_decimal(back),
          bits::real_text(back, options.scale),
          code ? "the code as given" : bits::outcome(r)};
}

}  // namespace

Result<std::string> bits_values_text(const BitsOptions& options, std::span<const std::string> values) {
  const Result<std::vector<bits::StoredValue>> stored = bits::store_values(options, values);
  if (!stored) return tl::unexpected(stored.error());
  if (stored->empty()) return fail("no number given");
  const bool scaled = options.scale != 1.0;
  const Format format = stored->front().rounding.format;
  const bool clips = bits::overflow_of(options, format) == Overflow::saturate;
  std::string text =
      fmt::format("{} values as {}, {}{}{}\n\n", values.size(), name(format), clips ? "saturating" : "not saturating",
                  scaled ? fmt::format(", scale {}", options.scale) : "", options.ftz ? ", subnormal f32 flushed" : "");
  std::vector<Row> rows = {{"value", "/ scale", "code", "stored", "back", "result"}};
  for (const bits::StoredValue& one : *stored) rows.push_back(row_of(one, options));
  for (const Row& row : rows) {
    std::string cells = " ";
    for (std::size_t column = 0; column < row.size(); ++column) {
      if (!scaled && (column == 1 || column == 4)) continue;
      std::size_t width = 0;
      for (const Row& other : rows) width = std::max(width, other[column].size());
      cells += column + 1 < row.size() ? fmt::format(" {:<{}} ", row[column], width) : " " + row[column];
    }
    text += cells + "\n";
  }
  const bits::Distinct distinct = bits::count_distinct(*stored, options.scale);
  return text + fmt::format("\n{} distinct value{} became {}\n", distinct.given, distinct.given == 1 ? "" : "s",
                            distinct.stored);
}

}  // namespace nanscope
