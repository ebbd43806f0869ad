#include "core/dump/name_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace nanscope {
namespace {

struct FormRow {
  Form form;
  std::string_view phrases;  ///< words of a phrase joined by '_', phrases apart by spaces
};

constexpr std::array kForms = {
    FormRow{
        Form::codes,
        "codes code fp8 f8 e4m3 e5m2 e4m3fn e4m3fnuz e5m2fnuz float8 int8 i8 qint8 int4 fp4 nvfp4 mxfp4 mxfp8 mxfp6 "
        "fp6 quant quantized quantised qdata packed q8 u8 q quantized_codes"},
    FormRow{Form::dequantised,
            "dequant dequantized dequantised deq dq dequantize read readback read_back restored decoded"},
    FormRow{Form::scale,
            "scale scales scaling descale descales sf scale_inv scales_inv inv_scale dequant_scale scale_factor "
            "scale_factors quant_scale"},
    FormRow{Form::second_scale,
            "scale_2 scale2 global_scale second_scale tensor_scale per_tensor_scale scale_of_scale scale_scale"},
    FormRow{Form::zero_point, "zero_point zero_points zp"},
    FormRow{Form::amax, "amax absmax abs_max max_abs"},
    FormRow{Form::amax_history, "amax_history amax_hist absmax_history amaxes amax_buffer"},
    FormRow{Form::masked, "masked after_mask with_mask"},
    FormRow{Form::partial, "partial local partial_sum before_allreduce before_all_reduce pre_allreduce"},
    FormRow{Form::raw,
            "raw pre uncapped unnormalized unnormalised pre_softcap unscaled unquantized unquantised prequant "
            "pre_quant before_quant orig original hp "
            "high_precision"},
};

bool is_letter(char c) { return c >= 'a' && c <= 'z'; }
bool is_lower(char c) { return is_letter(c) || (c >= '0' && c <= '9'); }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

}  // namespace

std::string in_words(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_upper(c)) {
      // "attnO", "expert1Up", and not "E4M3".
      const bool last = i + 1 == text.size();
      const bool hump = i > 0 && (last ? is_letter(text[i - 1]) : is_lower(text[i - 1]) && is_letter(text[i + 1]));
      if (hump) out += '_';
      out += static_cast<char>(c - 'A' + 'a');
    } else {
      out += c == '-' || c == ' ' ? '_' : c;
    }
  }
  return out;
}

std::vector<std::string_view> split_text(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (const std::string_view part : Parts(text, by)) parts.push_back(part);
  return parts;
}

bool listed(std::string_view list, std::string_view word) {
  for (std::size_t at = list.find(word); at != std::string_view::npos; at = list.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return !word.empty();
  }
  return false;
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool digits =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<FormWords> form_at_end(std::string_view text) {
  std::optional<FormWords> best;
  std::size_t longest = 0;
  for (const FormRow& row : kForms) {
    for (const std::string_view phrase : Parts(row.phrases, ' ')) {
      if (phrase.size() <= longest || !text.ends_with(phrase)) continue;
      const std::string_view rest = text.substr(0, text.size() - phrase.size());
      // One letter is a form behind another word alone: "k_q" is codes, "q" is the queries.
      if (rest.empty() ? phrase.size() < 2 : rest.back() != '_') continue;
      longest = phrase.size();
      best = FormWords{row.form, std::string(rest.empty() ? rest : rest.substr(0, rest.size() - 1))};
    }
  }
  return best;
}

std::optional<FormWords> form_at_beginning(std::string_view text) {
  std::optional<FormWords> best;
  std::size_t longest = 0;
  for (const FormRow& row : kForms) {
    for (const std::string_view phrase : Parts(row.phrases, ' ')) {
      if (phrase.size() <= longest || phrase.size() < 2 || !text.starts_with(phrase)) continue;
      if (text.size() <= phrase.size() + 1 || text[phrase.size()] != '_') continue;
      longest = phrase.size();
      best = FormWords{row.form, std::string(text.substr(phrase.size() + 1))};
    }
  }
  return best;
}

std::string calls_apart(std::string_view key) {
  constexpr std::string_view kAgain = "_again";
  const std::size_t begin = key.find(kAgain);
  if (begin == std::string_view::npos) return std::string(key);
  std::size_t end = begin;
  while (key.substr(end).starts_with(kAgain)) {
    end = key.find_first_not_of("0123456789", end + kAgain.size());
    end = std::min(end, key.size());
  }
  const std::string_view call = key.substr(begin + 1, end - begin - 1);
  std::string_view index = key.substr(end);
  std::string_view side = key.substr(0, begin);
  const std::size_t dot = side.rfind('.');
  if (index.empty() && dot != std::string_view::npos && number(side.substr(dot + 1))) {
    index = side.substr(dot);
    side = side.substr(0, dot);
  }
  if (!index.empty() && (index.front() != '.' || !number(index.substr(1)))) return std::string(key);
  for (const std::string_view port : {".input", ".output"}) {
    if (!side.ends_with(port)) continue;
    const std::string_view module = side.substr(0, side.size() - port.size());
    const bool counted = number(module.substr(module.rfind('.') + 1)).has_value();  // "layers.3" stays the layer
    return fmt::format("{}{}{}{}{}", module, counted ? '.' : '_', call, port, index);
  }
  return std::string(key);
}

std::optional<PlaceWord> place_word(std::string_view word) {
  if (listed("step iter iteration pass forward fwd forward_pass", word)) return PlaceWord::step;
  if (word == "decode") return PlaceWord::decode;
  if (listed("rank tp_rank tp pp_rank dp_rank ep_rank gpu device worker", word)) return PlaceWord::rank;
  if (listed("request req prompt session turn call conversation sample", word)) return PlaceWord::request;
  if (listed("layer layers block blocks blk l h stage dec decoder_layer decoder_block", word)) return PlaceWord::layer;
  return std::nullopt;
}

Counted counted_word(std::string_view text) {
  std::size_t digits = text.size();
  while (digits > 0 && is_digit(text[digits - 1])) --digits;
  std::string_view word = text.substr(0, digits);
  while (!word.empty() && word.back() == '_') word.remove_suffix(1);
  return {word, number(text.substr(digits))};
}

std::optional<std::int64_t> step_in(std::string_view stem) {
  std::string words = in_words(stem);
  std::replace(words.begin(), words.end(), '.', '_');
  const std::vector<std::string_view> parts = split_text(words, '_');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Counted counted = counted_word(parts[i]);
    if (place_word(counted.word) != PlaceWord::step) continue;
    if (counted.count) return counted.count;
    if (i + 1 < parts.size() && number(parts[i + 1])) return number(parts[i + 1]);
  }
  return std::nullopt;
}

}  // namespace nanscope
