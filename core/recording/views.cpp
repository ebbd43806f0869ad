#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/recording/detail_codec.h"
#include "core/recording/schema.h"
#include "core/tensor/health.h"

/// Views for people with the stock `sqlite3` shell: names spelled out, enumerators as words, hashes
/// in hex, health blobs decoded. Only built-in functions of SQLite 3.38 and later are used.
namespace nanscope::schema {
namespace {

/// The value of `count` little-endian bytes at `offset` of a blob whose hex digits are `hex`.
/// instr() gives 0 for the digit that is not in its list: '0'.
std::string little_endian(std::string_view hex, std::size_t offset, std::size_t count) {
  std::string sum;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t digit = 2 * (offset + i) + 1;
    if (i > 0) sum += " | ";
    sum += fmt::format(
        "((instr('123456789ABCDEF', substr({0}, {1}, 1)) << 4 | instr('123456789ABCDEF', substr({0}, {2}, 1))) << {3})",
        hex, digit, digit + 1, 8 * i);
  }
  return "(" + sum + ")";
}

/// 2 to the integer power `exponent`, |exponent| <= 180: a product of three shifts.
std::string power_of_two(const std::string& exponent) {
  const auto product = [](const std::string& n) {
    return fmt::format("((1 << ({0}) / 3) * 1.0 * (1 << (({0}) + 1) / 3) * (1 << (({0}) + 2) / 3))", n);
  };
  return fmt::format("(CASE WHEN {0} >= 0 THEN {1} ELSE 1.0 / {2} END)", exponent, product(exponent),
                     product("-(" + exponent + ")"));
}

/// The value of the IEEE 754 single whose bits are the integer `bits`.
std::string single(const std::string& bits) {
  const std::string exponent = fmt::format("({} >> 23 & 255)", bits);
  const std::string fraction = fmt::format("({} & 8388607)", bits);
  return fmt::format(
      "(CASE WHEN {0} & 2147483648 THEN -1.0 ELSE 1.0 END * CASE {1} WHEN 255 THEN 9e999 WHEN 0 THEN {2} * {3} "
      "ELSE ({2} + 8388608) * {4} END)",
      bits, exponent, fraction, power_of_two("-149"), power_of_two(exponent + " - 150"));
}

constexpr std::string_view kLayer = "CASE o.layer WHEN -1 THEN '-' ELSE o.layer END";
// Of a step with several sequences, the first one's; parameters are of none.
const std::string kPlace =
    fmt::format("coalesce(p.request || '/' || p.number, '-/-') || '/' || {} || '/' || o.name", kLayer);

/// Joins a step as s and its first span as p.
std::string step_join(std::string_view id) {
  return fmt::format("LEFT JOIN steps s ON s.id = {0} LEFT JOIN spans p ON p.step = {0} AND p.span = 0", id);
}

Object view(std::string_view name, const std::string& select) {
  return {name, fmt::format("CREATE VIEW {} AS {}", name, select)};
}

Object completeness() {
  return view("v_completeness",
              "SELECT CASE state WHEN 'recording' THEN 'recording, or interrupted if no process writes it' ELSE state "
              "END AS state, ops || ' of ' || CASE expected_ops WHEN 0 THEN 'an unknown number of' ELSE expected_ops "
              "END || ' expected ops captured' AS completeness, requests, steps, ops, expected_ops, tensors, "
              "stored_tensors FROM progress");
}

Object requests() {
  return view("v_requests",
              "SELECT id AS request, name, output_text, json_array_length(prompt_tokens) AS prompt_tokens, "
              "cached_tokens, json_array_length(output_tokens) AS output_tokens, prompt FROM requests ORDER BY id");
}

Object steps() {
  return view("v_steps",
              "SELECT s.id AS id, s.kind AS phase, s.rank AS rank, s.run AS run, s.pass AS pass, s.tokens AS rows, "
              "s.batch AS batch, p.request AS request, p.number AS step, p.first_row || '..' || (p.first_row + "
              "p.row_count - 1) AS of_rows, p.first_token || '..' || (p.first_token + p.row_count - 1) AS tokens, "
              "p.context AS context FROM steps s LEFT JOIN spans p ON p.step = s.id ORDER BY s.id, p.span");
}

Object ops() {
  return view("v_ops", fmt::format("SELECT o.id AS id, {} AS place, p.request AS request, p.number AS step, "
                                   "s.kind AS phase, {} AS layer, o.name AS op, o.kind AS kind, "
                                   "o.attributes AS attributes FROM ops o {} ORDER BY o.id",
                                   kPlace, kLayer, step_join("o.step")));
}

Object inputs() {
  return view("v_inputs",
              fmt::format("SELECT o.id AS op, {} AS place, i.key AS slot, json_extract(i.value, '$[0]') AS role, "
                          "CASE json_type(i.value, '$[1]') WHEN 'integer' THEN json_extract(i.value, '$[1]') END "
                          "AS tensor, CASE json_type(i.value, '$[1]') WHEN 'text' THEN json_extract(i.value, '$[1]') "
                          "END AS weight FROM ops o JOIN json_each(o.inputs) i {}",
                          kPlace, step_join("o.step")));
}

const std::string kTensorSelect = fmt::format(
    "SELECT t.id AS id, {} || '.' || t.role AS place, p.request AS request, p.number AS step, {} AS layer, "
    "o.name AS op, t.role AS role, t.format AS format, t.tokens || 'x' || t.channels AS shape, t.heads AS heads, "
    "t.first_token AS first_token, t.axis AS axis, t.name AS name, printf('%016x', t.hash) AS hash, t.bad AS bad, "
    "t.nan AS nan, t.pos_inf AS pos_inf, "
    "t.neg_inf AS neg_inf, t.saturated AS saturated, t.clipped AS clipped, t.flushed AS flushed, "
    "t.subnormal AS subnormal, t.zero AS zero, t.min AS min, t.max AS max, t.absmax AS absmax, "
    "CASE WHEN t.elements > t.bad THEN t.sum / (t.elements - t.bad) END AS mean",
    kPlace, kLayer);
const std::string kTensorJoin = "FROM tensors t JOIN ops o ON o.id = t.op " + step_join("o.step");

Object tensors() {
  return view("v_tensors", fmt::format("{}, EXISTS (SELECT 1 FROM chunks c WHERE c.id = t.id * {}) AS stored {} "
                                       "ORDER BY t.id",
                                       kTensorSelect, kChunksPerTensor, kTensorJoin));
}

Object bad() {
  return view("v_bad",
              fmt::format("SELECT t.id AS id, {} || '.' || t.role || '[' || (t.first_token + t.first_bad / t.channels) "
                          "|| ',' || (t.first_bad % t.channels) || ']' AS first_bad, t.bad AS bad, t.elements AS "
                          "elements, t.nan AS nan, t.pos_inf AS pos_inf, t.neg_inf AS neg_inf, o.kind AS kind, "
                          "t.format AS format FROM tensors t INDEXED BY tensors_bad JOIN ops o ON o.id = t.op {} "
                          "WHERE t.bad > 0 ORDER BY t.op, t.id",
                          kPlace, step_join("o.step")));
}

Object token_health() {
  const std::pair<const char*, std::size_t> counts[] = {
      {"elements", 0},   {"nan", 8},   {"pos_inf", 16}, {"neg_inf", 24}, {"saturated", 32},
      {"subnormal", 40}, {"zero", 48}, {"flushed", 56}, {"clipped", 64}, {"first_bad", 72}};
  const std::pair<const char*, std::size_t> singles[] = {{"min", 96}, {"max", 100}, {"absmax", 104}};
  const std::pair<const char*, std::size_t> numbers[] = {{"min", 16}, {"max", 20}};
  std::string own;
  std::string decoded;  // the bits of singles; their values come from a query around it: SQLite reads less text
  std::string rest;     // of a record that is numbers alone
  std::string columns;
  for (const auto& [name, offset] : counts) {
    own += fmt::format(", t.{0} AS {0}", name);
    decoded += fmt::format(", {} AS {}", little_endian("r.value", offset, 8), name);
    const std::string_view column = name;
    rest += fmt::format(", {} AS {}", column == "elements" ? "t.channels" : column == "first_bad" ? "-1" : "0", name);
    columns += fmt::format(", {}", name);
  }
  for (const auto& [name, offset] : singles) {
    own += fmt::format(", t.{0} AS {0}", name);
    decoded += fmt::format(", {} AS {}", little_endian("r.value", offset, 4), name);
  }
  for (const auto& [name, offset] : numbers)
    rest += fmt::format(", {} AS {}", little_endian("r.value", offset, 4), name);
  const std::string extremes = fmt::format(", {} AS min, {} AS max", single("min"), single("max"));
  // An array of as many elements as the tensor has rows stands in for a counting loop.
  const auto rows = [](std::size_t record) {
    return fmt::format(
        "json_each((SELECT json_group_array(hex(substr(d.token_rows, n.key * {0} + 1, {0}))) FROM "
        "json_each('[' || substr(replace(hex(zeroblob(t.tokens)), '00', ',0'), 2) || ']') n))",
        record);
  };
  const std::string names = fmt::format("t.id AS tensor, {} || '.' || t.role AS place", kPlace);
  const auto stored = [&](std::string_view record, std::size_t size, std::int64_t kind) {
    return fmt::format(
        "(SELECT {}, t.first_token + r.key AS token{} {} JOIN detail d ON d.tensor = t.id, {} r WHERE t.detail = {})",
        names, record, kTensorJoin, rows(size), kind);
  };
  return view("v_token_health",
              fmt::format("SELECT {0}, t.first_token AS token{1} {2} WHERE t.detail = {3} UNION ALL SELECT tensor, "
                          "place, token{4}{5}, {6} AS absmax FROM {7} UNION ALL SELECT *, max(abs(min), abs(max)) AS "
                          "absmax FROM (SELECT tensor, place, token{4}{5} FROM {8})",
                          names, own, kTensorJoin, kDetailSelf, columns, extremes, single("absmax"),
                          stored(decoded, sizeof(Health), kDetailStored),
                          stored(rest, sizeof(detail_codec::Numbers), kDetailNumbers)));
}

Object scales() {
  return view("v_scales",
              fmt::format("SELECT c.id AS id, {} AS place, c.target AS target, c.policy AS policy, c.format AS format, "
                          "c.scale AS scale, c.source AS source, c.calibrated_request AS calibrated_request, "
                          "c.calibrated_step AS calibrated_step, c.calibrated_tokens AS calibrated_tokens, "
                          "c.calibrated_absmax AS calibrated_absmax, CASE c.locked WHEN 0 THEN 'no' ELSE 'yes' END "
                          "AS locked, c.absmax AS absmax, c.headroom AS headroom, CASE WHEN c.headroom < 1 THEN "
                          "'clips' ELSE '' END AS verdict FROM scales c LEFT JOIN ops o ON o.id = c.op {} "
                          "ORDER BY c.id",
                          kPlace, step_join("c.step")));
}

Object kv() {
  return view(
      "v_kv",
      fmt::format("SELECT k.id AS id, k.block AS block, k.slot_begin || '..' || (k.slot_end - 1) AS slots, k.action AS "
                  "action, k.request AS request, p.number AS step, CASE k.layer WHEN -1 THEN 'all' ELSE k.layer END AS "
                  "layer, k.first_token || '..' || (k.first_token + k.slot_end - k.slot_begin - 1) AS tokens, "
                  "k.writer AS writer, k.format AS format FROM kv k {} ORDER BY k.id",
                  step_join("k.step")));
}

Object tokens() {
  return view("v_tokens", "SELECT request, position, token, text, source FROM tokens ORDER BY request, position");
}

Object kernels() {
  return view("v_kernels", fmt::format("SELECT k.id AS id, {} AS place, k.name AS kernel, k.start_ns AS start_ns, "
                                       "k.duration_ns / 1000.0 AS microseconds, k.details AS details FROM kernels k "
                                       "LEFT JOIN ops o ON o.id = k.op {} ORDER BY k.id",
                                       kPlace, step_join("o.step")));
}

Object notes() { return view("v_notes", "SELECT id, tensor, text FROM notes ORDER BY id"); }

Object events() {
  return view("v_events",
              fmt::format("SELECT e.id AS id, e.fault AS fault, {} || '.' || t.role AS place, e.because AS because, "
                          "e.summary AS summary, e.evidence AS evidence FROM events e LEFT JOIN tensors t ON t.id = "
                          "e.tensor LEFT JOIN ops o ON o.id = t.op {} ORDER BY e.id",
                          kPlace, step_join("o.step")));
}

}  // namespace

std::span<const Object> views() {
  // Never destroyed: see objects().
  static const std::vector<Object>& all =
      *new std::vector<Object>{completeness(), requests(), steps(), ops(),    inputs(),  tensors(), bad(),
                               token_health(), scales(),   kv(),    tokens(), kernels(), events(),  notes()};
  return all;
}

}  // namespace nanscope::schema
