#include "core/recording/schema.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

namespace nanscope::schema {
namespace {

// ANY, not REAL: a REAL column would store -0.0 as the integer 0 and lose the sign.
constexpr std::string_view kCountsSql =
    "elements INTEGER NOT NULL, bad INTEGER NOT NULL, nan INTEGER NOT NULL, pos_inf INTEGER NOT NULL, "
    "neg_inf INTEGER NOT NULL, saturated INTEGER NOT NULL, subnormal INTEGER NOT NULL, zero INTEGER NOT NULL, "
    "flushed INTEGER NOT NULL, clipped INTEGER NOT NULL, first_bad INTEGER NOT NULL, ";
// In schema 1 all were known; of a dump the sums may not be, nor, where its producer measured, the extremes.
constexpr std::string_view kFirstNumbersSql =
    "sum ANY NOT NULL, sum_sq ANY NOT NULL, min ANY NOT NULL, max ANY NOT NULL, absmax ANY NOT NULL";
constexpr std::string_view kNumbersSql = "sum ANY, sum_sq ANY, min ANY, max ANY, absmax ANY";

/// What schema 1 could say of a run: a step works on one sequence, and shapes alone say what rows are.
struct Columns {
  std::string_view progress, steps, ops, tensors;  ///< but for steps, what comes behind the columns of both
};
constexpr Columns kFirst = {
    "",
    "id INTEGER PRIMARY KEY, request INTEGER NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, "
    "first_token INTEGER NOT NULL, tokens INTEGER NOT NULL, context INTEGER NOT NULL, first_op INTEGER NOT NULL",
    "", ""};
constexpr Columns kSecond = {
    ", unknown_tensors INTEGER NOT NULL, expected_tensors INTEGER NOT NULL",
    "id INTEGER PRIMARY KEY, kind TEXT NOT NULL, rank INTEGER NOT NULL, run TEXT NOT NULL, pass TEXT NOT NULL, "
    "tokens INTEGER NOT NULL, batch INTEGER NOT NULL, placed INTEGER NOT NULL, first_op INTEGER NOT NULL",
    ", by_name INTEGER NOT NULL",
    ", axis TEXT NOT NULL, sequence INTEGER NOT NULL, name TEXT NOT NULL, known INTEGER NOT NULL, "
    "guessed INTEGER NOT NULL, stated INTEGER NOT NULL"};

std::vector<Object> make_objects(std::uint32_t version) {
  const Columns& columns_of = version == 1 ? kFirst : kSecond;
  const std::string health = fmt::format("{}{}", kCountsSql, version == 1 ? kFirstNumbersSql : kNumbersSql);
  std::vector<Object> all;
  const auto table = [&](std::string_view name, std::string_view columns, std::string_view options = "STRICT") {
    all.push_back({name, fmt::format("CREATE TABLE {} ({}) {}", name, columns, options)});
  };
  const auto index = [&](std::string_view name, std::string_view on) {
    all.push_back({name, fmt::format("CREATE INDEX {} ON {}", name, on)});
  };
  table("run", "key TEXT PRIMARY KEY, value TEXT NOT NULL", "STRICT, WITHOUT ROWID");
  table("progress", fmt::format("id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT NOT NULL, "
                                "expected_ops INTEGER NOT NULL, requests INTEGER NOT NULL, steps INTEGER NOT NULL, "
                                "ops INTEGER NOT NULL, tensors INTEGER NOT NULL, stored_tensors INTEGER NOT NULL{}",
                                columns_of.progress));
  table("requests",
        "id INTEGER PRIMARY KEY, name TEXT NOT NULL, prompt TEXT NOT NULL, prompt_tokens TEXT NOT NULL, "
        "cached_tokens INTEGER NOT NULL, output_tokens TEXT NOT NULL, output_text TEXT NOT NULL");
  table("steps", columns_of.steps);
  if (version == 1) {
    index("steps_request", "steps (request, number)");
  } else {
    table("spans",
          "step INTEGER NOT NULL, span INTEGER NOT NULL, request INTEGER NOT NULL, number INTEGER NOT NULL, "
          "first_row INTEGER NOT NULL, row_count INTEGER NOT NULL, first_token INTEGER NOT NULL, "
          "context INTEGER NOT NULL, PRIMARY KEY (step, span)",
          "STRICT, WITHOUT ROWID");
    index("spans_request", "spans (request, number)");
  }
  table("ops", fmt::format("id INTEGER PRIMARY KEY, step INTEGER NOT NULL, layer INTEGER NOT NULL, name TEXT NOT NULL, "
                           "kind TEXT NOT NULL, attributes TEXT NOT NULL, inputs TEXT NOT NULL, "
                           "first_tensor INTEGER NOT NULL{}",
                           columns_of.ops));
  table("tensors", fmt::format("id INTEGER PRIMARY KEY, op INTEGER NOT NULL, role TEXT NOT NULL, format TEXT NOT NULL, "
                               "tokens INTEGER NOT NULL, channels INTEGER NOT NULL, heads INTEGER NOT NULL, "
                               "first_token INTEGER NOT NULL, hash INTEGER NOT NULL, detail INTEGER NOT NULL, {}{}",
                               health, columns_of.tensors));
  index("tensors_bad", "tensors (op) WHERE bad > 0");
  table("detail", "tensor INTEGER PRIMARY KEY, token_rows BLOB NOT NULL, levels INTEGER NOT NULL, tiles BLOB NOT NULL");
  table("chunks", "id INTEGER PRIMARY KEY, data BLOB NOT NULL");
  table("weights", fmt::format("name TEXT PRIMARY KEY, format TEXT NOT NULL, rows INTEGER NOT NULL, "
                               "columns INTEGER NOT NULL, hash INTEGER NOT NULL, {}",
                               health));
  table("scales",
        "id INTEGER PRIMARY KEY, step INTEGER NOT NULL, op INTEGER NOT NULL, layer INTEGER NOT NULL, "
        "target TEXT NOT NULL, policy TEXT NOT NULL, format TEXT NOT NULL, scale ANY, source TEXT NOT NULL, "
        "calibrated_request INTEGER NOT NULL, calibrated_step INTEGER NOT NULL, calibrated_tokens INTEGER NOT NULL, "
        "calibrated_absmax ANY, locked INTEGER NOT NULL, absmax ANY, headroom ANY");
  index("scales_op", "scales (op)");
  table("kv",
        "id INTEGER PRIMARY KEY, step INTEGER NOT NULL, request INTEGER NOT NULL, layer INTEGER NOT NULL, "
        "block INTEGER NOT NULL, slot_begin INTEGER NOT NULL, slot_end INTEGER NOT NULL, "
        "first_token INTEGER NOT NULL, action TEXT NOT NULL, writer TEXT NOT NULL, format TEXT NOT NULL");
  index("kv_block", "kv (block)");
  table("tokens",
        "request INTEGER NOT NULL, position INTEGER NOT NULL, token INTEGER NOT NULL, text TEXT NOT NULL, "
        "source TEXT NOT NULL, PRIMARY KEY (request, position)",
        "STRICT, WITHOUT ROWID");
  table("kernels",
        "id INTEGER PRIMARY KEY, op INTEGER NOT NULL, name TEXT NOT NULL, start_ns INTEGER NOT NULL, "
        "duration_ns INTEGER NOT NULL, details TEXT NOT NULL");
  index("kernels_op", "kernels (op)");
  table("events",
        "id INTEGER PRIMARY KEY, fault TEXT NOT NULL, tensor INTEGER NOT NULL, because INTEGER NOT NULL, "
        "summary TEXT NOT NULL, evidence TEXT NOT NULL");
  if (version > 1) table("notes", "id INTEGER PRIMARY KEY, tensor TEXT NOT NULL, text TEXT NOT NULL");
  return all;
}

}  // namespace

std::span<const Object> objects(std::uint32_t version) {
  // Never destroyed: a writer may still work while the process runs its exit handlers.
  static const std::vector<Object>& first = *new std::vector<Object>(make_objects(1));
  static const std::vector<Object>& second = *new std::vector<Object>(make_objects(2));
  return version == 1 ? first : second;
}

}  // namespace nanscope::schema
