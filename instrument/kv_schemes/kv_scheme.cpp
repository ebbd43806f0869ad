#include "instrument/kv_schemes/kv_scheme.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "core/blocks/block_codec.h"
#include "core/blocks/presets.h"

namespace nanscope {
namespace {

template <class Enum>
struct Words;
template <>
struct Words<KvAxis> {
  static constexpr std::array names = {"tensor", "token", "channel", "head", "token_head", "block"};
};
template <>
struct Words<KvStatistic> {
  static constexpr std::array names = {"absmax", "percentile", "outliers", "min_max"};
};
template <>
struct Words<KvLifetime> {
  static constexpr std::array names = {"first", "fixed", "request", "step", "running", "delayed"};
};
template <>
struct Words<KvTransform> {
  static constexpr std::array names = {"none", "minus_mean", "hadamard"};
};
template <>
struct Words<KvLayers> {
  static constexpr std::array names = {"all", "late", "early", "inner"};
};
template <>
struct Words<KvRounding> {
  static constexpr std::array names = {"even", "away", "up"};
};
template <>
struct Words<KvZero> {
  static constexpr std::array names = {"code", "integer", "value"};
};
template <>
struct Words<KvOwn> {
  static constexpr std::array names = {"quantized", "first", "as_is"};
};
template <>
struct Words<KvWindow> {
  static constexpr std::array names = {"sliding", "filled"};
};

/// Every field but the format, by its word in the text.
template <class Scheme, class Visit>
void fields(Scheme& scheme, const Visit& visit) {
  visit("axis", scheme.axis), visit("group", scheme.group), visit("statistic", scheme.statistic);
  visit("percentile", scheme.percentile), visit("outliers", scheme.outliers), visit("lifetime", scheme.lifetime);
  visit("history", scheme.history), visit("divisor", scheme.divisor), visit("scale", scheme.fixed_scale);
  visit("smallest", scheme.smallest_scale), visit("reciprocal", scheme.reciprocal), visit("zero", scheme.zero);
  visit("rounding", scheme.rounding), visit("scale_format", scheme.scale_format), visit("transform", scheme.transform);
  visit("before_rope", scheme.before_rope), visit("layers", scheme.layers), visit("keep_first", scheme.keep_first);
  visit("keep_last", scheme.keep_last), visit("window", scheme.window), visit("own", scheme.own);
}

template <class Value>
std::string value_text(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<Value, Format>) {
    return std::string(name(value));
  } else if constexpr (std::is_enum_v<Value>) {
    return Words<Value>::names[static_cast<std::size_t>(value)];
  } else {
    return fmt::format("{}", value);
  }
}

template <class Value>
bool read_value(std::string_view text, Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    value = text == "true";
    return text == "true" || text == "false";
  } else if constexpr (std::is_same_v<Value, Format>) {
    const auto format = format_from_name(text);
    if (format) value = *format;
    return format.has_value();
  } else if constexpr (std::is_enum_v<Value>) {
    const auto& words = Words<Value>::names;
    const auto found = std::find(words.begin(), words.end(), text);
    value = static_cast<Value>(found - words.begin());
    return found != words.end();
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  }
}

template <class Value>
std::string allowed_values(const Value&) {
  if constexpr (std::is_same_v<Value, bool>) {
    return "true or false";
  } else if constexpr (std::is_same_v<Value, Format>) {
    return "f32, f16 or bf16";
  } else if constexpr (std::is_enum_v<Value>) {
    return fmt::format("{}", fmt::join(Words<Value>::names, ", "));
  } else {
    return "a number";
  }
}

bool read_format(std::string_view word, KvScheme& scheme) {
  if (const BlockPreset* preset = find_block_preset(word)) {
    scheme.block = preset->name;
    scheme.format = preset->format.element;
    return true;
  }
  if (word.starts_with("int") && word.size() == 4 && std::string_view("2348").find(word[3]) != std::string_view::npos) {
    scheme.format = Format::int8;
    scheme.bits = word[3] == '8' ? 0 : word[3] - '0';
    return true;
  }
  const auto format = format_from_name(word);
  if (!format) return false;
  scheme.format = *format;
  return true;
}

const BlockFormat* block_of(const KvScheme& scheme) {
  const BlockPreset* preset = scheme.block.empty() ? nullptr : find_block_preset(scheme.block);
  return preset == nullptr ? nullptr : &preset->format;
}

bool is_float(Format format) { return format == Format::f32 || format == Format::f16 || format == Format::bf16; }

bool is_of_each_token(const KvScheme& scheme) {
  return scheme.axis == KvAxis::token || scheme.axis == KvAxis::token_head || scheme.axis == KvAxis::block;
}

Status check_block(const KvScheme& scheme) {
  const BlockFormat* block = block_of(scheme);
  if (block == nullptr) return fail(fmt::format("there is no block format '{}'", scheme.block));
  const bool integers = block->element == Format::int8;
  const bool known_ties = block->ties == Ties::even || (integers && block->ties != Ties::stochastic);
  const bool known_zeros = block->zero_sign == ZeroSign::kept || integers;
  if (block->block.rows != 1 || block->four_over_six || block->scaling == Scaling::bounds || !known_ties ||
      !known_zeros || block->nan_code >= 0)
    return fail(fmt::format("a cache is not kept in {}: rows are stored one by one, element by element", scheme.block));
  if (scheme.axis != KvAxis::tensor || scheme.statistic != KvStatistic::absmax || scheme.group != 0)
    return fail(fmt::format("{} says its scales itself: no axis, group or statistic beside it", scheme.block));
  if (scheme.lifetime != KvLifetime::step && block->second == SecondScale::none)
    return fail(fmt::format("{} has no scale above its blocks': no lifetime beside it", scheme.block));
  return {};
}

Status check_scales(const KvScheme& scheme) {
  const bool grouped_channels = scheme.axis == KvAxis::channel && scheme.group > 0;
  if (scheme.axis == KvAxis::block && scheme.group <= 0) return fail("axis=block needs group=N channels");
  if (scheme.group < 0 || (scheme.group > 0 && scheme.axis != KvAxis::block && scheme.axis != KvAxis::channel))
    return fail("group=N is of axis=block and axis=channel");
  if ((is_of_each_token(scheme) || grouped_channels) && scheme.lifetime != KvLifetime::step &&
      scheme.lifetime != KvLifetime::fixed)
    return fail(fmt::format("axis={}{} makes its scales anew: no lifetime={} beside it", value_text(scheme.axis),
                            grouped_channels ? " with a group of tokens" : "", value_text(scheme.lifetime)));
  const bool integers = scheme.format == Format::int8;
  if (scheme.statistic == KvStatistic::min_max && !integers)
    return fail("statistic=min_max is of integers: int2, int3, int4 or int8");
  if (scheme.statistic == KvStatistic::min_max && scheme.zero == KvZero::value && scheme.bits == 0)
    return fail("zero=value is of at most 4 bits");
  if (scheme.statistic == KvStatistic::min_max && scheme.lifetime == KvLifetime::fixed)
    return fail("lifetime=fixed has no zero points: no statistic=min_max beside it");
  if (scheme.statistic == KvStatistic::min_max && scheme.transform == KvTransform::minus_mean)
    return fail("transform=minus_mean leaves nothing to a zero point: no statistic=min_max beside it");
  return {};
}

Status check_numbers(const KvScheme& scheme) {
  if (!(scheme.percentile > 0 && scheme.percentile <= 100)) return fail("percentile is above 0 and at most 100");
  if (!(scheme.outliers > 0 && scheme.outliers < 0.5)) return fail("outliers is a share above 0 and below 0.5");
  if (scheme.history < 1 || scheme.history > 4096) return fail("history is 1 to 4096");
  if (!(scheme.divisor >= 0) || !(scheme.smallest_scale >= 0)) return fail("divisor and smallest are not below 0");
  constexpr std::int64_t kMost = 1 << 20;
  if (scheme.keep_first < 0 || scheme.keep_last < 0 || scheme.keep_first > kMost || scheme.keep_last > kMost)
    return fail("keep_first and keep_last are 0 to 1048576 tokens");
  if (scheme.window == KvWindow::filled && scheme.keep_last == 0) return fail("window=filled needs keep_last=N");
  if (!is_float(scheme.scale_format)) return fail("scale_format is f32, f16 or bf16");
  return {};
}

/// Of each token alone, in bytes: scales and zero points.
double scale_bytes(const KvScheme& scheme, double heads, double channels, double context) {
  const double size = static_cast<double>(info(scheme.scale_format).storage_bytes());
  const bool for_good = scheme.lifetime == KvLifetime::first || scheme.lifetime == KvLifetime::fixed;
  const double tokens = scheme.lifetime == KvLifetime::request ? context : 1;
  double count = 0;
  switch (scheme.axis) {
    case KvAxis::token:
      count = 1;
      break;
    case KvAxis::token_head:
      count = heads;
      break;
    case KvAxis::block:
      count = std::ceil(channels / static_cast<double>(scheme.group));
      break;
    case KvAxis::channel:
      count = scheme.group > 0 ? channels / static_cast<double>(scheme.group) : for_good ? 0 : channels / tokens;
      break;
    case KvAxis::head:
      count = for_good ? 0 : heads / tokens;
      break;
    case KvAxis::tensor:
      count = for_good ? 0 : 1 / tokens;
      break;
  }
  double bytes = count * size;
  if (scheme.statistic == KvStatistic::min_max)
    bytes += count * (scheme.zero == KvZero::integer ? (scheme.bits == 0 ? 8 : scheme.bits) / 8.0 : size);
  return bytes;
}

std::vector<KvPolicy> all_policies() {
  std::vector<KvPolicy> all;
  const auto add = [&](std::string_view name, std::string_view ships_in, std::string_view doc, std::string_view needs,
                       std::string_view k, std::string_view v) {
    all.push_back({name, ships_in, doc, needs, parse_kv_scheme(k).value(), parse_kv_scheme(v).value()});
  };
#define NANSCOPE_KV_POLICY(name, ships_in, doc, needs, k, v) add(name, ships_in, doc, needs, k, v);
#include "instrument/kv_schemes/policies.def"
#undef NANSCOPE_KV_POLICY
  return all;
}

}  // namespace

bool quantizes(const KvScheme& scheme) { return !is_float(scheme.format); }

KvScheme scheme_of_layer(const KvScheme& scheme, std::int64_t layer, std::int64_t layers) {
  const bool kept = (scheme.layers == KvLayers::late && layer < layers / 2) ||
                    (scheme.layers == KvLayers::early && layer >= layers / 2) ||
                    (scheme.layers == KvLayers::inner && (layer < 2 || layer >= layers - 2));
  if (!kept) return scheme;
  KvScheme as_is;
  as_is.format = Format::f32;
  as_is.before_rope = scheme.before_rope;
  return as_is;
}

bool keeps_rows(const KvScheme& scheme) {
  return quantizes(scheme) &&
         (scheme.keep_first > 0 || scheme.keep_last > 0 || scheme.own != KvOwn::quantized ||
          scheme.statistic == KvStatistic::outliers || (scheme.axis == KvAxis::channel && scheme.group > 0));
}

std::span<const KvPolicy> kv_policies() {
  static const std::vector<KvPolicy> all = all_policies();
  return all;
}

const KvPolicy* find_kv_policy(std::string_view name) {
  const auto all = kv_policies();
  const auto found = std::find_if(all.begin(), all.end(), [&](const KvPolicy& policy) { return policy.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string to_text(const KvScheme& scheme) {
  std::string text = !scheme.block.empty() ? scheme.block
                     : scheme.bits != 0    ? fmt::format("int{}", scheme.bits)
                                           : std::string(name(scheme.format));
  const KvScheme defaults;
  std::vector<std::string> usual;
  fields(defaults, [&](std::string_view, const auto& value) { usual.push_back(value_text(value)); });
  std::size_t at = 0;
  fields(scheme, [&](std::string_view word, const auto& value) {
    const std::string own = value_text(value);
    if (own != usual[at++]) text += fmt::format(",{}={}", word, own);
  });
  return text;
}

Result<KvScheme> parse_kv_scheme(std::string_view text) {
  KvScheme scheme;
  bool first = true;
  for (std::string_view rest = text; first || !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (first) {
      if (!read_format(part, scheme))
        return fail(
            fmt::format("KV scheme '{}': '{}' is no format (bf16, e4m3, int8, int4, mxfp8, q8_0, ...)", text, part));
      first = false;
      continue;
    }
    const std::size_t equals = part.find('=');
    const std::string_view word = part.substr(0, equals);
    bool known = false;
    std::optional<std::string> refused;
    fields(scheme, [&](std::string_view field, auto& value) {
      if (field != word) return;
      known = true;
      const std::string_view given = equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
      if (!read_value(given, value)) refused = allowed_values(value);
    });
    if (!known) return fail(fmt::format("KV scheme '{}': nothing is called '{}'", text, word));
    if (refused) return fail(fmt::format("KV scheme '{}': '{}' is refused; {} is {}", text, part, word, *refused));
  }
  return scheme;
}

Status check(const KvScheme& scheme, std::int64_t kv_heads, std::int64_t head_dim) {
  const std::string text = to_text(scheme);
  const auto named = [&](const Status& status) {
    return status ? Status() : Status(fail(fmt::format("KV scheme '{}': {}", text, status.error().message)));
  };
  if (kv_heads < 1 || head_dim < 1) return fail(fmt::format("KV scheme '{}': no heads", text));
  if (Status status = check_numbers(scheme); !status) return named(status);
  if (scheme.transform == KvTransform::hadamard && (head_dim & (head_dim - 1)) != 0)
    return named(fail(fmt::format("a head of {} channels is no power of two: no transform=hadamard", head_dim)));
  if (!quantizes(scheme)) {
    if (scheme.transform == KvTransform::minus_mean)
      return named(fail(fmt::format("{} has no scale: no transform=minus_mean", name(scheme.format))));
    return {};
  }
  if (!scheme.block.empty()) return named(check_block(scheme));
  const bool bytes = info(scheme.format).bits == 8 && scheme.format != Format::e8m0;
  if (!bytes) return named(fail(fmt::format("{} is kept in a block format only", name(scheme.format))));
  if (scheme.bits != 0 && (scheme.format != Format::int8 || scheme.bits < 2 || scheme.bits > 4))
    return named(fail("bits are 2, 3 or 4 of integers"));
  return named(check_scales(scheme));
}

double bytes_a_token(const KvScheme& scheme, std::int64_t kv_heads, std::int64_t head_dim, std::int64_t context) {
  constexpr double kHigh = 2;  // bf16
  const auto channels = static_cast<double>(kv_heads * head_dim);
  const auto tokens = static_cast<double>(std::max<std::int64_t>(1, context));
  if (!quantizes(scheme)) return channels * static_cast<double>(info(scheme.format).storage_bytes());
  double coded = 0;
  if (const BlockFormat* block = block_of(scheme)) {
    const BlockBytes bytes = block_bytes(*block, 1, kv_heads * head_dim);
    coded = static_cast<double>(bytes.codes + bytes.scales);
  } else {
    const double bits = scheme.bits != 0 ? scheme.bits : info(scheme.format).bits;
    coded = channels * bits / 8 + scale_bytes(scheme, static_cast<double>(kv_heads), channels, tokens);
  }
  if (scheme.transform == KvTransform::minus_mean) coded += channels * 4 / tokens;
  if (scheme.statistic == KvStatistic::outliers) coded += scheme.outliers * channels * (kHigh + 2);
  const double kept = std::min(1.0, static_cast<double>(scheme.keep_first + scheme.keep_last) / tokens);
  return kept * kHigh * channels + (1 - kept) * coded;
}

}  // namespace nanscope
