#include "core/dump/clipping.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/diagnosis/facts.h"

namespace nanscope {
namespace {

constexpr std::int64_t kFew = 4;  ///< ties for the largest value happen
constexpr double kSmallShare = 1.0 / 1024;

/// Positions of a cache that its pass wrote: those of its fresh keys or values, or up to a dumped length. What lies
/// behind them may be anything.
std::int64_t written_elements(DumpFacts& facts, TensorIndex codes) {
  const DumpTensor& tensor = facts.tensor(codes);
  const std::int64_t all = tensor.count();
  if (!tensor.at.role.ends_with("_cache") || tensor.shape.empty()) return all;
  std::int64_t tokens = padding_of(facts, facts.pass_of(codes)).length;
  const auto fresh = facts.in_layer(codes, tensor.at.role.substr(0, 1));
  if (fresh && facts.pass_of(*fresh) == facts.pass_of(codes) && facts.tensor(*fresh).tokens() > 1) {
    tokens = std::min(tokens, facts.tensor(*fresh).tokens());
  }
  const bool positions_first = tensor.shape.size() < 4;
  if (!positions_first || tokens >= tensor.shape.front()) return all;
  return all / std::max<std::int64_t>(1, tensor.shape.front()) * tokens;
}

/// Where the codes at the largest value stand.
struct Pile {
  std::int64_t saturated = 0;
  std::int64_t just_below = 0;  ///< at the next two codes
  std::int64_t rows_with = 0;
  std::int64_t channels_with = 0;
  std::int64_t tokens_with = 0;
  std::array<std::int64_t, 4> blocks_with{};  ///< of 16, 32, 64 and 128 elements
  std::vector<std::int64_t> rows;
};

Pile pile_of(std::span<const float> values, std::int64_t channels, std::int64_t token, const FormatInfo& format) {
  Pile pile;
  const float gap = format.exponent_bits > 0 ? format.max_finite / (std::ldexp(2.0F, format.mantissa_bits) -
                                                                    (format.specials == Specials::fn ? 2.0F : 1.0F))
                                             : 1.0F;
  std::vector<bool> columns(static_cast<std::size_t>(channels), false);
  std::array<std::size_t, 4> last_block{};
  std::int64_t last_token = -1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float magnitude = std::abs(values[i]);
    pile.just_below += magnitude < format.max_finite && magnitude >= format.max_finite - 2.5F * gap ? 1 : 0;
    if (!(magnitude >= format.max_finite)) continue;
    ++pile.saturated;
    columns[i % static_cast<std::size_t>(channels)] = true;
    const auto row = static_cast<std::int64_t>(i) / channels;
    if (pile.rows.empty() || pile.rows.back() != row) pile.rows.push_back(row);
    if (static_cast<std::int64_t>(i) / token != last_token) ++pile.tokens_with;
    last_token = static_cast<std::int64_t>(i) / token;
    for (std::size_t size = 0; size < pile.blocks_with.size(); ++size) {
      const std::size_t block = i / (std::size_t{16} << size) + 1;
      if (block != last_block[size]) ++pile.blocks_with[size];
      last_block[size] = block;
    }
  }
  pile.rows_with = static_cast<std::int64_t>(pile.rows.size());
  pile.channels_with = std::count(columns.begin(), columns.end(), true);
  return pile;
}

/// How many of them a scale by the largest value explains: one a group, when nearly every group has one.
std::int64_t explained(const Pile& pile, std::int64_t count, std::int64_t channels, std::int64_t token) {
  std::int64_t most = 1;
  const auto offer = [&](std::int64_t groups, std::int64_t groups_with) {
    if (groups <= 1 || groups_with * 4 < groups * 3) return;
    most = std::max(most, groups_with == groups ? 2 * groups : groups_with);  // ties, where each has its own scale
  };
  offer(count / channels, pile.rows_with);
  offer(channels, pile.channels_with);
  offer(count / token, pile.tokens_with);
  for (std::size_t size = 0; size < pile.blocks_with.size(); ++size)
    offer(count / (std::int64_t{16} << size), pile.blocks_with[size]);
  return most;
}

/// Whether the codes were made of these values: between a projection and its cache may lie a rotation.
bool made_of_source(const QuantizedElements& elements, const FormatInfo& format) {
  std::int64_t looked_at = 0;
  std::int64_t agreeing = 0;
  const double rounding = std::ldexp(1.0, -format.mantissa_bits);
  for (std::size_t i = 0; i < elements.source->size(); ++i) {
    const double code = std::abs(double{(*elements.code_values)[i]});
    if (!(code < double{format.max_finite}) || !(code >= 8 * double{format.min_normal})) continue;
    ++looked_at;
    const double scaled = std::abs(double{(*elements.source)[i]}) / double{elements.scale_at(i)};
    agreeing += std::abs(scaled - code) <= std::max(rounding * code, 0.6 * double{format.min_normal}) ? 1 : 0;
  }
  return looked_at == 0 || agreeing * 10 >= looked_at * 9;
}

/// By the values themselves.
std::optional<Clipping> proven_clipping(DumpFacts& facts, const Quantized& quantized) {
  const std::optional<QuantizedElements> elements = elements_of(facts, quantized);
  if (!elements) return std::nullopt;
  const FormatInfo& format = info(*facts.tensor(quantized.codes).format);
  const double limit = double{format.max_finite} / rounding_headroom(format.format);
  Clipping out;
  out.proven = true;
  out.count = static_cast<std::int64_t>(elements->source->size());
  if (!made_of_source(*elements, format)) return std::nullopt;
  for (std::size_t i = 0; i < elements->source->size(); ++i) {
    out.saturated += std::abs((*elements->code_values)[i]) >= format.max_finite ? 1 : 0;
    const double scaled = std::abs(double{(*elements->source)[i]}) / double{elements->scale_at(i)};
    if (!(scaled > limit)) continue;
    const std::int64_t row = static_cast<std::int64_t>(i) / elements->channels;
    if (out.rows.empty() || out.rows.back() != row) out.rows.push_back(row);
  }
  out.clipped = !out.rows.empty() && out.saturated > 0;
  return out;
}

}  // namespace

bool holds_codes(const DumpTensor& tensor) {
  if (!tensor.format || tensor.dtype == nullptr) return false;
  const int bits = info(*tensor.format).bits;
  const std::string& role = tensor.at.role;
  const bool cast = role.ends_with("_cache") || role.ends_with("_codes") || tensor.at.port != Port::state;
  return bits <= 8 && *tensor.format != Format::e8m0 && cast;
}

std::optional<Clipping> clipping_of(DumpFacts& facts, const Quantized& quantized) {
  if (std::optional<Clipping> proven = proven_clipping(facts, quantized)) return proven;
  const DumpTensor& tensor = facts.tensor(quantized.codes);
  Clipping out;
  out.count = written_elements(facts, quantized.codes);
  if (static_cast<std::int64_t>(tensor.health.saturated) < kFew || tensor.channels() == 0) return out;
  const auto values = facts.values(quantized.codes);
  if (!values) return std::nullopt;
  // Of (tokens, heads, width) a token is several rows.
  const bool heads = tensor.shape.size() >= 3 && tensor.shape.front() > 1;
  const std::int64_t token = heads ? tensor.count() / tensor.shape.front() : tensor.channels();
  Pile pile = pile_of(std::span(*values).first(static_cast<std::size_t>(out.count)), tensor.channels(), token,
                      info(*tensor.format));
  out.saturated = pile.saturated;
  const std::int64_t surplus = pile.saturated - explained(pile, out.count, tensor.channels(), token);
  // Half a gap rounds to the largest code and two gaps to the next two: where nothing was cut off, those hold four
  // times as many. Twice as many tell the one from the other where values are bunched.
  out.clipped = surplus >= kFew && surplus * 2 > pile.just_below && out.share() >= kSmallShare;
  if (out.clipped) out.rows = std::move(pile.rows);
  return out;
}

}  // namespace nanscope
