#include "scenarios/report/inspect_report.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;

struct SeverityWords {
  std::string_view text;
  Ink ink;
};

SeverityWords inspect_words(Severity severity) {
  switch (severity) {
    case Severity::error:
      return {"error", Ink::red};
    case Severity::warning:
      return {"warning", Ink::yellow};
    case Severity::note:
      break;
  }
  return {"note", Ink::plain};
}

std::string_view fate_word(Fate fate) {
  switch (fate) {
    case Fate::quantized:
      return "quantized";
    case Fate::ignored:
      return "ignored";
    case Fate::unclassified:
      break;
  }
  return "unclassified";
}

std::string storages(const Inspection& made) {
  std::map<std::string, std::size_t> kinds;
  for (const InspectedModule& one : made.modules) {
    if (one.fate != Fate::unclassified) ++kinds[one.storage];
  }
  std::string text;
  for (const auto& [storage, count] : kinds) {
    text += fmt::format("{}{} of {}", text.empty() ? "" : "; ", counted(count, "weight"), storage);
  }
  return text.empty() ? "no weights" : text;
}

std::string inspect_verdict(const Inspection& made, const Terminal& terminal) {
  const std::size_t errors = made.count(Severity::error);
  const std::size_t warnings = made.count(Severity::warning);
  if (errors > 0) {
    return paint(terminal, Ink::red,
                 fmt::format("{} will not run it as it was made: {}, {}", made.loader->name, counted(errors, "error"),
                             counted(warnings, "warning")));
  }
  if (warnings > 0) {
    return paint(
        terminal, Ink::yellow,
        fmt::format("{} runs other numbers than the file's: {}", made.loader->name, counted(warnings, "warning")));
  }
  return paint(terminal, Ink::green, fmt::format("nothing is wrong with it that {} would meet", made.loader->name));
}

std::string module_table(const Inspection& made, const Terminal& terminal) {
  Table table({Align::left, Align::left, Align::right, Align::right, Align::right, Align::left});
  table.row({"module", "is", "shape", "rms", "changes", "stored as"});
  for (const InspectedModule& one : made.modules) {
    table.row({printable(one.path, terminal), std::string(fate_word(one.fate)),
               fmt::format("{} x {}", one.rows, one.columns), number_text(one.rms),
               one.change > 0 ? fmt::format("{:.2g} %", 100 * one.change) : "", printable(one.storage, terminal)});
  }
  return table.text("  ", terminal.width);
}

}  // namespace

std::string inspect_text(const Inspection& made, bool all, const Terminal& terminal) {
  const Loader& loader = *made.loader;
  std::string text = heading(fmt::format("nanscope inspect {}", printable(made.target, terminal)), terminal);
  text += paragraph("Verdict   ", inspect_verdict(made, terminal), terminal);
  text += paragraph(
      "Holds     ",
      fmt::format("{}: {} in {}, {}; {}", made.model_type.empty() ? "a model" : printable(made.model_type, terminal),
                  counted(made.tensors, "tensor"), counted(made.files, "file"),
                  bytes_text(static_cast<double>(made.bytes)), storages(made)),
      terminal);
  text += paragraph("Config    ", printable(made.quantization, terminal), terminal);
  text += paragraph("Loader    ",
                    fmt::format("{} {}: {} quantized, {} ignored, {} unclassified", loader.name, loader.version,
                                made.count(Fate::quantized), made.count(Fate::ignored), made.count(Fate::unclassified)),
                    terminal);
  for (const InspectFinding& finding : made.findings) {
    const SeverityWords words = inspect_words(finding.severity);
    std::string sentence = printable(finding.text, terminal);
    if (!finding.known_as.empty()) sentence += fmt::format(" ({})", finding.known_as);
    text += '\n' + paragraph(paint(terminal, words.ink, pad(words.text, 8)) + "  ",
                             fmt::format("{}: {}", finding.id, sentence), terminal);
  }
  if (all) text += '\n' + module_table(made, terminal);
  return text;
}

std::string inspect_json(const Inspection& made) {
  Json out;
  out["schema"] = "nanscope.inspection/1";
  out["target"] = made.target;
  out["model_type"] = made.model_type;
  out["quantization"] = made.quantization;
  out["loader"] = {{"name", made.loader->name}, {"version", made.loader->version}};
  out["files"] = made.files;
  out["tensors"] = made.tensors;
  out["bytes"] = made.bytes;
  out["counts"] = {{"quantized", made.count(Fate::quantized)},
                   {"ignored", made.count(Fate::ignored)},
                   {"unclassified", made.count(Fate::unclassified)},
                   {"errors", made.count(Severity::error)},
                   {"warnings", made.count(Severity::warning)}};
  out["findings"] = Json::array();
  for (const InspectFinding& one : made.findings) {
    out["findings"].push_back({{"id", one.id},
                               {"severity", inspect_words(one.severity).text},
                               {"text", one.text},
                               {"known_as", one.known_as},
                               {"modules", one.modules}});
    if (!one.changes.empty()) out["findings"].back()["changes"] = one.changes;
  }
  out["modules"] = Json::array();
  for (const InspectedModule& one : made.modules) {
    out["modules"].push_back({{"path", one.path},
                              {"fate", fate_word(one.fate)},
                              {"stored", one.storage},
                              {"rows", one.rows},
                              {"columns", one.columns},
                              {"bytes", one.bytes},
                              {"rms", number_text(one.rms)},
                              {"change", one.change}});
  }
  return dump_json(out);
}

}  // namespace nanscope::report
