#include "scenarios/transients.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

namespace nanscope::scenarios {
namespace {

constexpr std::int64_t kLastStep = 1048576;
constexpr std::int64_t kMostSeed = std::int64_t{1} << 62;

/// A number above zero, whole or not.
std::optional<double> number(TomlReader& reader, std::string_view key) {
  const toml::node* node = reader.node(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->value<double>();
  if (value && std::isfinite(*value) && *value > 0) return value;
  reader.reject(*node, fmt::format("{} must be a number above 0, found {}", key, toml_kind(*node)));
  return std::nullopt;
}

/// One name, or a list.
std::vector<std::string> names(TomlReader& reader) {
  const toml::node* node = reader.node("weights");
  if (node == nullptr) return {};
  if (node->is_string()) return {node->value<std::string>().value_or("")};
  return reader.texts("weights");
}

/// What happens: one of four keys.
void read_kind(TomlReader& reader, Transient& into) {
  int kinds = 0;
  if (const auto factor = number(reader, "multiply")) {
    into.kind = TransientKind::multiply;
    into.size = *factor;
    ++kinds;
  }
  if (const auto part = number(reader, "shift")) {
    into.kind = TransientKind::shift;
    into.size = *part;
    ++kinds;
  }
  if (const auto from = reader.text("load")) {
    into.kind = TransientKind::load;
    into.load = *from;
    if (from->empty()) reader.reject("load names no weights");
    ++kinds;
  }
  if (const auto what = reader.text("forget")) {
    into.kind = TransientKind::forget_scores;
    if (*what != "scores") reader.reject(fmt::format("forget = '{}': only \"scores\" can be forgotten", *what));
    ++kinds;
  }
  if (kinds != 1) reader.reject("a transient needs one of multiply, shift, load, forget");
}

/// Keys of some kinds alone.
void read_details(TomlReader& reader, Transient& into) {
  const bool shifts = into.kind == TransientKind::shift;
  const bool draws = shifts || into.kind == TransientKind::load;
  into.until = into.step;
  if (const auto until = reader.integer("until", into.step, kLastStep)) {
    into.until = *until;
    if (!shifts) reader.reject("until goes with shift");
  }
  if (const auto seed = reader.integer("seed", 0, kMostSeed)) {
    into.seed = static_cast<std::uint64_t>(*seed);
    if (!draws) reader.reject("seed goes with shift and load");
  }
  if (const auto scale = number(reader, "init_scale")) {
    into.init_scale = *scale;
    if (into.kind != TransientKind::load) reader.reject("init_scale goes with load");
  }
  if (const auto start = number(reader, "start")) {
    into.start = *start;
    if (into.of_weights()) reader.reject("start goes with forget");
  }
  into.weights = names(reader);
  if (!into.weights.empty() && !into.of_weights()) reader.reject("weights goes with multiply, shift and load");
}

Result<Transient> read_transient(const toml::table& table, const std::string& file) {
  TomlReader reader(table, file, "[[transient]]");
  Transient transient;
  const auto step = reader.integer("step", 1, kLastStep);
  if (!step) reader.reject("a transient needs the step that it comes before, from 1");
  transient.step = step.value_or(1);
  read_kind(reader, transient);
  read_details(reader, transient);
  if (Status finished = reader.finish(); !finished) return tl::unexpected(finished.error());
  return transient;
}

}  // namespace

Result<std::vector<Transient>> read_transients(const toml::node& node, const std::string& file) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return fail(toml_location(file, node.source()) + ": transients are written [[transient]]");
  std::vector<Transient> all;
  for (const toml::node& item : *list) {
    if (!item.is_table()) return fail(toml_location(file, item.source()) + ": a transient must be a table");
    auto one = read_transient(*item.as_table(), file);
    if (!one) return tl::unexpected(one.error());
    all.push_back(std::move(*one));
  }
  return all;
}

}  // namespace nanscope::scenarios
