#include "scenarios/report/gguf_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;

/// The tensors of one type.
struct OfType {
  std::size_t tensors = 0;
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;
  std::int64_t scales = 0;
  std::int64_t nan = 0;
  std::int64_t inf = 0;
  std::int64_t zero = 0;
};

std::map<std::string, OfType> by_type(const GgufCensus& made) {
  std::map<std::string, OfType> types;
  for (const GgufTensorCensus& one : made.tensors) {
    OfType& type = types[one.type];
    ++type.tensors;
    type.elements += one.elements;
    type.bytes += one.bytes;
    type.scales += one.scales;
    type.nan += one.nan;
    type.inf += one.inf;
    type.zero += one.zero;
  }
  return types;
}

double bits_a_weight(std::uint64_t bytes, std::int64_t elements) {
  return elements == 0 ? 0 : 8 * static_cast<double>(bytes) / static_cast<double>(elements);
}

std::size_t undecoded(const GgufCensus& made) {
  return static_cast<std::size_t>(std::count_if(made.tensors.begin(), made.tensors.end(),
                                                [](const GgufTensorCensus& one) { return !one.decoded; }));
}

std::string gguf_verdict(const GgufCensus& made, const Terminal& terminal) {
  const std::size_t left_out = undecoded(made);
  if (made.bad() > 0)
    return paint(terminal, Ink::red, fmt::format("NaN or Inf in {} of its scales and plain weights", made.bad()));
  if (left_out > 0)
    return paint(terminal, Ink::yellow,
                 fmt::format("no scale and no plain weight that was read is NaN or Inf; {} not decoded",
                             counted(left_out, "tensor")));
  return paint(terminal, Ink::green, "no scale and no plain weight is NaN or Inf");
}

std::string type_table(const GgufCensus& made, const Terminal& terminal) {
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right,
               Align::right, Align::right});
  table.row({"type", "tensors", "weights", "bytes", "bits/weight", "scales", "NaN", "Inf", "zero"});
  for (const auto& [name, type] : by_type(made)) {
    const bool read = type.bytes > 0;
    table.row({name, std::to_string(type.tensors), std::to_string(type.elements),
               read ? bytes_text(static_cast<double>(type.bytes)) : "?",
               read ? fmt::format("{:.4g}", bits_a_weight(type.bytes, type.elements)) : "?",
               type.scales > 0 ? std::to_string(type.scales) : "", read ? std::to_string(type.nan) : "?",
               read ? std::to_string(type.inf) : "?", type.scales > 0 ? std::to_string(type.zero) : ""});
  }
  return table.text("  ", terminal.width);
}

std::string tensor_table(const GgufCensus& made, const Terminal& terminal) {
  Table table({Align::left, Align::left, Align::right, Align::right, Align::right, Align::right});
  table.row({"tensor", "type", "shape", "NaN", "Inf", "zero"});
  for (const GgufTensorCensus& one : made.tensors) {
    table.row({printable(one.name, terminal), one.type, fmt::format("{}", fmt::join(one.shape, " x ")),
               one.decoded ? std::to_string(one.nan) : "?", one.decoded ? std::to_string(one.inf) : "?",
               one.scales > 0 ? std::to_string(one.zero) : ""});
  }
  return table.text("  ", terminal.width);
}

/// The first tensors with NaN or Inf.
std::string bad_tensors(const GgufCensus& made, const Terminal& terminal) {
  constexpr int kShown = 8;
  std::string text;
  int shown = 0;
  for (const GgufTensorCensus& one : made.tensors) {
    if (one.nan + one.inf == 0 || ++shown > kShown) continue;
    text += '\n' + paragraph(paint(terminal, Ink::red, pad("error", 8)) + "  ",
                             fmt::format("scale-not-finite: {}: {} NaN and {} Inf, the first in {} {}",
                                         printable(one.name, terminal), one.nan, one.inf,
                                         one.scales > 0 ? "block" : "element", one.first_bad),
                             terminal);
  }
  if (shown > kShown)
    text += fmt::format("\n          and {} more\n", counted(static_cast<std::size_t>(shown - kShown), "tensor"));
  return text;
}

}  // namespace

std::string gguf_text(const GgufCensus& made, bool all, const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope inspect {}", printable(made.target, terminal)), terminal);
  text += paragraph("Verdict   ", gguf_verdict(made, terminal), terminal);
  text += paragraph("Holds     ",
                    fmt::format("{}: {} in {}, {}, {:.4g} bits a weight; GGUF version {}",
                                made.architecture.empty() ? "no architecture" : printable(made.architecture, terminal),
                                counted(made.tensors.size(), "tensor"), counted(made.files, "file"),
                                bytes_text(static_cast<double>(made.bytes())),
                                bits_a_weight(made.bytes(), made.elements()), made.version),
                    terminal);
  if (!made.config_error.empty())
    text += paragraph("Config    ", "nanscope cannot run it: " + printable(made.config_error, terminal), terminal);
  text += '\n' + type_table(made, terminal) + bad_tensors(made, terminal);
  if (all) text += '\n' + tensor_table(made, terminal);
  return text;
}

std::string gguf_json(const GgufCensus& made) {
  Json out;
  out["schema"] = "nanscope.gguf-inspection/1";
  out["target"] = made.target;
  out["version"] = made.version;
  out["architecture"] = made.architecture;
  out["config_error"] = made.config_error;
  out["files"] = made.files;
  out["bytes"] = made.bytes();
  out["bits_per_weight"] = bits_a_weight(made.bytes(), made.elements());
  out["not_finite"] = made.bad();
  out["not_decoded"] = undecoded(made);
  out["tensors"] = Json::array();
  for (const GgufTensorCensus& one : made.tensors) {
    Json tensor = {{"name", one.name},
                   {"original", one.original},
                   {"type", one.type},
                   {"shape", one.shape},
                   {"decoded", one.decoded}};
    if (one.decoded) {
      tensor["bytes"] = one.bytes;
      tensor["scales"] = one.scales;
      tensor["nan"] = one.nan;
      tensor["inf"] = one.inf;
      tensor["zero"] = one.zero;
      if (one.first_bad >= 0) tensor["first_bad"] = one.first_bad;
    }
    out["tensors"].push_back(std::move(tensor));
  }
  return dump_json(out);
}

}  // namespace nanscope::report
