#include "scenarios/report/tokens_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    text += fmt::format("{}{:02x}", text.empty() ? "" : " ", static_cast<unsigned char>(byte));
  return text;
}

/// A piece between quotes, so that its spaces are seen.
std::string piece_of(const Tokenizer& tokenizer, std::int64_t id, const Terminal& terminal) {
  const std::string_view bytes = tokenizer.token_text(static_cast<std::int32_t>(id));
  if (bytes.empty()) return "no text";
  return fmt::format("\"{}\"", printable(bytes, terminal));
}

std::string decoded_line(const Tokenizer& tokenizer, const TokensOf& made, const Terminal& terminal) {
  const std::string decoded = tokenizer.decode(made.ids);
  std::string line = fmt::format("Decoded   \"{}\"", printable(decoded, terminal));
  if (made.text) line += decoded == *made.text ? ", equal to the text" : ", not equal to the text";
  return line + "\n";
}

/// Token 0 is what an argmax answers where all logits are NaN: nothing is greater than the first, and the first NaN is
/// it.
std::string special_lines(const Tokenizer& tokenizer, const TokensOf& made, const Terminal& terminal) {
  Table table({Align::left, Align::right, Align::left, Align::left});
  table.row({"role", "id", "piece", "source"});
  table.row({"first", "0", piece_of(tokenizer, 0, terminal), "the answer of an argmax over a row of NaN"});
  for (const SpecialToken& one : made.special) {
    table.row({one.role, std::to_string(one.id), piece_of(tokenizer, one.id, terminal), one.source});
  }
  return table.text("  ", terminal.width);
}

Json token_json(const Tokenizer& tokenizer, std::int64_t id) {
  const std::string_view bytes = tokenizer.token_text(static_cast<std::int32_t>(id));
  return {{"id", id}, {"piece", std::string(bytes)}, {"bytes", hex_of(bytes)}};
}

}  // namespace

std::string tokens_text(const Tokenizer& tokenizer, const TokensOf& made, const Terminal& terminal) {
  std::string text = fmt::format("Tokenizer {}, {} ids\n", printable(made.file, terminal), tokenizer.vocab_size());
  if (!made.ids.empty() || made.text) {
    text += fmt::format("Tokens    {}", made.ids.size());
    text += made.text ? fmt::format(" for {}\n\n", counted(made.text->size(), "byte")) : "\n\n";
    Table table({Align::right, Align::right, Align::left, Align::left});
    table.row({"index", "id", "piece", "bytes"});
    for (std::size_t i = 0; i < made.ids.size(); ++i) {
      table.row({std::to_string(i), std::to_string(made.ids[i]), piece_of(tokenizer, made.ids[i], terminal),
                 hex_of(tokenizer.token_text(made.ids[i]))});
    }
    text += table.text("  ", terminal.width) + "\n" + decoded_line(tokenizer, made, terminal);
  }
  return text + "\n" + special_lines(tokenizer, made, terminal);
}

std::string tokens_json(const Tokenizer& tokenizer, const TokensOf& made) {
  Json json = {{"schema", "nanscope.tokens/1"},
               {"tokenizer", made.file},
               {"vocabulary", tokenizer.vocab_size()},
               {"text", made.text ? Json(*made.text) : Json(nullptr)},
               {"decoded", tokenizer.decode(made.ids)},
               {"tokens", Json::array()},
               {"special", Json::array()}};
  for (const std::int32_t id : made.ids) json["tokens"].push_back(token_json(tokenizer, id));
  json["special"].push_back(token_json(tokenizer, 0));
  json["special"].back()["role"] = "first";
  for (const SpecialToken& one : made.special) {
    Json entry = token_json(tokenizer, one.id);
    entry["role"] = one.role;
    entry["source"] = one.source;
    json["special"].push_back(std::move(entry));
  }
  return dump_json(json) + "\n";
}

}  // namespace nanscope::report
