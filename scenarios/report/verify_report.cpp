#include "scenarios/report/verify_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "core/text/safe_text.h"
#include "scenarios/report/junit.h"
#include "scenarios/report/run_json.h"
#include "scenarios/report/verify_words.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostLines = 24;
constexpr std::size_t kMostRows = 64;

std::size_t count_shared(const Verification& made) {
  return static_cast<std::size_t>(std::count_if(made.checked.begin(), made.checked.end(),
                                                [](const VerifiedOutput& one) { return one.off && one.shared; }));
}

Json json_of(const VerifiedOutput& one) {
  Json out;
  out["tensor"] = one.name;
  out["op"] = one.op;
  out["kind"] = one.kind;
  out["layer"] = one.layer ? Json(*one.layer) : Json();
  out["step"] = one.step;
  out["elements"] = one.elements;
  out["explained"] = one.explained;
  out["distance"] = json_number(one.distance);
  out["off"] = one.off;
  if (!one.off) return out;
  out["worst"] = {{"row", one.worst.row},
                  {"channel", one.worst.channel},
                  {"value", json_number(one.worst.actual)},
                  {"expected", json_number(one.worst.expected)},
                  {"bound", json_number(one.worst.bound)}};
  out["rows_off"] = one.bad_rows.size();
  out["rows"] = one.rows;
  out["bad_rows"] =
      std::vector(one.bad_rows.begin(),
                  one.bad_rows.begin() + static_cast<std::ptrdiff_t>(std::min(kMostRows, one.bad_rows.size())));
  out["rows_not_finite"] = one.not_finite.size();
  out["certainty"] = certainty_word(certainty(one));
  out["explanations"] = Json::array();
  for (const ExplainedBy& each : one.explanations) {
    out["explanations"].push_back({{"alternative", each.alternative},
                                   {"text", each.text},
                                   {"op", each.op},
                                   {"share", each.share},
                                   {"distance", json_number(each.distance)}});
  }
  return out;
}

std::string free_text(const FreeRun& free, const Terminal& terminal) {
  if (free.layers.empty()) {
    return free.why.empty() ? std::string() : paragraph("Free run  ", "not made: " + free.why, terminal);
  }
  std::string text = paragraph("Free run  ", free_run_summary(free), terminal);
  Table table({Align::left, Align::right, Align::right, Align::right});
  table.row({"layer", "error", "of rounding", "worst token"});
  for (const FreeLayer& one : free.layers) {
    const bool measured = std::isfinite(one.error) && one.worst_row >= 0;
    table.row({one.name, measured ? fmt::format("{:.2e}", one.error) : "NaN or Inf",
               measured ? fmt::format("{:.3g}", one.error / free.rounding) : std::string(),
               measured ? fmt::format("{}", one.worst_row) : std::string()});
  }
  return text + table.text("  ", terminal.width);
}

/// The outputs among which the difference is, with the first one's reason.
std::string open_places(const Verification& made) {
  constexpr std::size_t kMostNames = 4;
  const std::size_t shown = std::min(kMostNames, made.open_at.size());
  const auto first = std::find_if(made.not_checked.begin(), made.not_checked.end(),
                                  [&](const NotChecked& one) { return one.name == made.open_at.front(); });
  return fmt::format("not checked there: {}{} ({})",
                     fmt::join(made.open_at.begin(), made.open_at.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     shown < made.open_at.size() ? fmt::format(" and {} more", made.open_at.size() - shown) : "",
                     first->reason);
}

}  // namespace

std::string verify_answer(const Verification& made, const Terminal& terminal) {
  const std::size_t off = made.off();
  const VerifiedOutput* first = made.first();
  std::string text;
  const std::string checked = counted(made.checked.size(), "output");
  if (first == nullptr) {
    text += paragraph(
        "Verdict   ",
        paint(terminal, made.complete && made.open.empty() ? Ink::green : Ink::yellow,
              !made.complete      ? fmt::format("stopped: none of the {} so far is off", checked)
              : made.open.empty() ? fmt::format("the model's: none of {} is further off than rounding", checked)
                                  : fmt::format("no difference found in {}; {}", checked, made.open)),
        terminal);
    if (!made.open_at.empty()) text += paragraph("Place     ", printable(open_places(made), terminal), terminal);
  } else {
    text += paragraph(
        "Verdict   ",
        paint(terminal, Ink::red,
              bad_weight(*first) ? fmt::format("the checkpoint itself holds NaN or Inf; in all {} of {} {} off", off,
                                               checked, off == 1 ? "is" : "are")
                                 : fmt::format("not the model's: {} of {} {} further off than rounding", off, checked,
                                               off == 1 ? "is" : "are")),
        terminal);
    text += paragraph("First     ",
                      fmt::format("{} ({}): {}", printable(first->name, terminal),
                                  printable(verified_place(*first), terminal), verified_off(*first)),
                      terminal);
    text += paragraph("Because   ", printable(verified_because(*first), terminal), terminal);
    const std::size_t shared = count_shared(made);
    text += paragraph("Also      ",
                      off == 1 ? std::string("nothing else is off")
                               : fmt::format("{} more {} off, {} of them by a change that was named before", off - 1,
                                             off == 2 ? "is" : "are", shared),
                      terminal);
  }
  for (const std::string& note : made.notes) text += paragraph("Note      ", printable(note, terminal), terminal);
  return text + paragraph("Rests on  ",
                          fmt::format("{} recomputed from the dump and the weights of {}; {} could not be", checked,
                                      printable(made.model, terminal), made.not_checked.size()),
                          terminal);
}

std::string verify_text(const Verification& made, const FreeRun& free, const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope verify {}", printable(made.target, terminal)), terminal);
  text += verify_answer(made, terminal);
  std::size_t lines = 0;
  for (const VerifiedOutput& one : made.checked) {
    if (!one.off) continue;
    if (lines++ == 0) text += '\n';
    if (lines > kMostLines) break;
    text += paragraph(
        "  ",
        fmt::format("{} ({}): {}; {}", printable(one.name, terminal), printable(verified_place(one), terminal),
                    verified_off(one), printable(verified_because(one), terminal)),
        terminal);
  }
  if (lines > kMostLines) text += fmt::format("  and {} more: --json has all\n", made.off() - kMostLines);
  const std::string run = free_text(free, terminal);
  if (!run.empty()) text += '\n' + run;
  std::map<std::string, std::size_t> reasons;
  for (const NotChecked& one : made.not_checked) ++reasons[one.reason];
  if (!reasons.empty()) text += '\n';
  for (const auto& [reason, count] : reasons)
    text += paragraph("  ", fmt::format("not checked: {}, {}", counted(count, "output"), printable(reason, terminal)),
                      terminal);
  return text;
}

std::string verify_json(const Verification& made, const FreeRun& free) {
  Json out;
  out["schema"] = "nanscope.verification/1";
  out["target"] = made.target;
  out["model"] = made.model;
  out["family"] = made.family;
  const VerifiedOutput* first = made.first();
  out["verdict"] = first != nullptr ? "fault" : made.complete && made.open.empty() ? "clean" : "incomplete";
  out["open"] = made.open;
  out["open_at"] = made.open_at;
  out["coverage"] = made.coverage();
  out["first"] = first != nullptr ? json_of(*first) : Json();
  std::int64_t elements = 0;
  std::int64_t explained = 0;
  for (const VerifiedOutput& one : made.checked) elements += one.elements, explained += one.explained;
  out["checked"] = made.checked.size();
  out["off"] = made.off();
  out["elements"] = elements;
  out["explained"] = explained;
  out["outputs"] = Json::array();
  for (const VerifiedOutput& one : made.checked) out["outputs"].push_back(json_of(one));
  out["not_checked"] = Json::array();
  for (const NotChecked& one : made.not_checked)
    out["not_checked"].push_back({{"tensor", one.name}, {"reason", one.reason}});
  out["notes"] = Json::array();
  for (const std::string& note : made.notes) out["notes"].push_back(note);
  Json layers = Json::array();
  for (const FreeLayer& one : free.layers)
    layers.push_back(
        {{"layer", one.layer}, {"name", one.name}, {"error", json_number(one.error)}, {"worst_token", one.worst_row}});
  out["free_run"] = {{"made", !free.layers.empty()}, {"why_not", free.why},
                     {"rounding", free.rounding},    {"leaves_at", free.leaves_at ? Json(*free.leaves_at) : Json()},
                     {"prompt", free.prompt},        {"layers", std::move(layers)}};
  return dump_json(out);
}

std::string verify_junit(const Verification& made) {
  std::vector<JUnitCase> cases;
  for (const VerifiedOutput& one : made.checked) {
    JUnitCase test;
    test.name = one.name;
    test.class_name = one.layer ? fmt::format("layer.{}", *one.layer) : "model";
    if (one.off) test.failures = {verified_off(one), verified_because(one)};
    cases.push_back(std::move(test));
  }
  return junit_xml("nanscope verify " + made.target, cases);
}

}  // namespace nanscope::report
