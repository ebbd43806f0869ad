#include "scenarios/report/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "core/parse_json.h"
#include "core/recording/names.h"
#include "scenarios/report/answer.h"
#include "scenarios/report/diagnosis_lines.h"
#include "scenarios/report/diagnosis_report.h"

namespace nanscope::report {

namespace {

constexpr int kLongestName = 40;
constexpr int kAnswerLines = 3;

std::string knob(const nlohmann::json& knobs, const char* name) {
  const auto value = knobs.find(name);
  if (value == knobs.end()) return "?";
  if (value->is_string()) return value->get<std::string>();
  return value->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// "412 of 900 ops", "412 ops".
std::string ops_text(const RecordingCounts& counts) {
  return counts.expected_ops > 0 ? fmt::format("{} of {} ops", counts.ops, counts.expected_ops)
                                 : counted(counts.ops, "op");
}

/// What a dump holds, and who wrote it.
std::string dump_line(const scenarios::Analysis& analysis, const Terminal& terminal) {
  const RecordingCounts& counts = analysis.counts;
  const std::string dot = terminal.utf8 ? " · " : " | ";
  const std::string tensors = counts.expected_tensors > 0
                                  ? fmt::format("{} of {} tensors", counts.tensors, counts.expected_tensors)
                                  : counted(counts.tensors, "tensor");
  std::string line = analysis.info.isa.empty() ? std::string() : printable(analysis.info.isa, terminal) + dot;
  line += fmt::format("{}, {}, {}", tensors, counts.steps == 1 ? "1 pass" : fmt::format("{} passes", counts.steps),
                      counted(counts.requests, "sequence"));
  if (const std::int64_t stated = counts.tensors - counts.stored_tensors; stated > 0)
    line += fmt::format("{}of {} statistics alone", dot, stated);
  return line;
}

/// One line about the model, the cache and the machine.
std::string setting_line(const scenarios::Analysis& analysis, const Terminal& terminal) {
  if (analysis.dumped()) return dump_line(analysis, terminal);
  const std::string dot = terminal.utf8 ? " · " : " | ";
  const auto config = parse_json_or_none(analysis.info.config);
  std::string line;
  if (config.is_object() && config.contains("knobs") && config["knobs"].is_object()) {
    const nlohmann::json& knobs = config["knobs"];
    const auto shown = [&](const char* name) { return printable(knob(knobs, name), terminal); };
    std::string scheme;
    for (const auto& [name, before] : {std::pair("kv.scheme", ""), {"kv.scheme_k", "K "}, {"kv.scheme_v", "V "}}) {
      const std::string own = knobs.contains(name) ? shown(name) : "";
      if (!own.empty()) scheme += fmt::format("{}{}{}", scheme.empty() ? "" : ", ", before, own);
    }
    line = fmt::format("{} layers of {}, {}{}KV {}{}{}", shown("model.layers"), shown("model.width"),
                       shown("model.norm"), dot, scheme.empty() ? shown("kv.format") + ' ' : scheme,
                       scheme.empty() ? shown("kv.policy") : "", dot);
  }
  const RecordingCounts& counts = analysis.counts;
  return line + fmt::format("{} {}{}{}{}, {}, {}", printable(analysis.info.device, terminal),
                            printable(analysis.info.isa, terminal), kernel_form_text(analysis.info), dot,
                            counted(counts.requests, "request"), counted(counts.steps, "step"), ops_text(counts));
}

/// "20 tokens (12 image), 16 cached".
std::string tokens_text(const scenarios::RequestOutcome& request) {
  std::string text = counted(request.prompt_tokens, "token");
  if (request.image_tokens > 0) text += fmt::format(" ({} image)", request.image_tokens);
  if (request.row.cached_tokens > 0) text += fmt::format(", {} cached", request.row.cached_tokens);
  return text;
}

/// The setting worth trying first for a fault of this class in this tensor; empty when there is none to name.
std::string_view remedy(std::string_view fault_class, std::string_view tensor) {
  if (tensor.find("/scores_quantise") != std::string_view::npos) return "scores.policy=geometry";
  const bool of_qk =
      tensor.find("/q_quantise") != std::string_view::npos || tensor.find("/k_quantise") != std::string_view::npos;
  if (of_qk) return "scores.qk_policy=geometry";
  constexpr std::array<std::pair<std::string_view, std::string_view>, 12> remedies = {{
      {"kv-scale-locked", "kv.format=bf16"},
      {"scale-invalid", "kv.policy=per_request"},
      {"saturation", "kv.policy=per_request"},
      {"delayed-scale-stale", "kv.policy=per_request"},
      {"outlier-squash", "kv.format=bf16"},
      {"scale-misapplied", "kv.read_scale=once"},
      {"fp8-format-mismatch", "kv.read_format="},
      {"variance-collapse", "norm.variance=two_pass"},
      {"softmax-fully-masked", "engine.pad=none"},
      {"f16-overflow", "activation.format=bf16"},
      {"fp8-nonsaturating-overflow", "kv.overflow=saturate"},
      {"masked-tail-poison", "attention.mask=select"},
  }};
  for (const auto& [fault, setting] : remedies) {
    if (fault == fault_class) return setting;
  }
  return {};
}

}  // namespace

std::string kernel_form_text(const RunInfo& info) {
  const auto config = parse_json_or_none(info.config);
  const bool has_knobs = config.is_object() && config.contains("knobs") && config["knobs"].is_object();
  const std::string form = has_knobs ? knob(config["knobs"], "engine.kernel_form") : "";
  return form == "tensor_core" ? ", products by tensor cores" : "";
}

std::string header_text(const scenarios::Analysis& analysis, const RunContext& context, const Terminal& terminal) {
  const std::string& name = analysis.info.scenario;
  std::string block = heading(
      fmt::format("nanscope {} {}", context.command, printable(name.empty() ? analysis.target : name, terminal)),
      terminal);
  if (!context.title.empty()) block += paragraph("", printable(context.title, terminal), terminal);
  return block + paragraph("", paint(terminal, Ink::dim, setting_line(analysis, terminal)), terminal);
}

std::string requests_text(std::span<const scenarios::RequestOutcome> requests, const Terminal& terminal) {
  Table table({Align::right, Align::left, Align::left, Align::left, Align::left});
  for (const auto& request : requests) {
    const std::string output =
        elide(printable(request.row.output_text, terminal), kAnswerLines * terminal.width, terminal);
    table.row({std::to_string(request.row.id),
               request.nan_logits ? paint(terminal, Ink::red, "NaN") : paint(terminal, Ink::green, "ok"),
               elide(printable(request.row.name, terminal), kLongestName, terminal), tokens_text(request),
               '"' + (request.nan_logits ? paint(terminal, Ink::red, output) : output) + '"'});
  }
  return table.text("  ", terminal.width);
}

std::string judgement_text(std::span<const scenarios::Missed> missed, const Terminal& terminal) {
  if (missed.empty()) return paint(terminal, Ink::green, "As expected.") + '\n';
  std::string block =
      paint(terminal, Ink::red, fmt::format("Not as expected: {}.", counted(missed.size(), "difference"))) + '\n';
  for (const scenarios::Missed& item : missed) {
    block += paragraph("  ", printable(item.what, terminal), terminal);
    block += paragraph("    expected  ", printable(item.expected, terminal), terminal);
    block += paragraph("    found     ", printable(item.found, terminal), terminal);
  }
  return block;
}

std::vector<std::string> next_commands(const scenarios::Analysis& analysis, const std::string& recording,
                                       const std::string& program) {
  if (recording.empty()) return {};
  std::vector<std::string> commands;
  for (auto request = analysis.requests.rbegin(); request != analysis.requests.rend(); ++request) {
    if (!request->nan_logits) continue;
    commands.push_back(fmt::format("{} why {} '{}/0/-/lm_head.logits'", program, recording, request->row.id));
    break;
  }
  const bool fault = analysis.diagnosis.verdict() == Verdict::fault;
  if (commands.empty() && fault) commands.push_back(fmt::format("{} why {}", program, recording));
  // What was dumped cannot be run again.
  if (analysis.dumped()) {
    commands.push_back(fmt::format("{} gui {}", program, recording));
  } else if (!fault) {
    commands.push_back(fmt::format("{} replay {}", program, recording));
  } else {
    commands.push_back(fmt::format("{} diagnose {} --counterfactuals", program, recording));
    const Diagnosis& diagnosis = analysis.diagnosis;
    std::string_view setting;
    if (diagnosis.root_cause) {
      const auto& root = diagnosis.faults.at(*diagnosis.root_cause);
      setting = remedy(root.fault_class, root.tensor);
    }
    if (!setting.empty()) commands.push_back(fmt::format("{} replay {} --set {}", program, recording, setting));
  }
  return commands;
}

namespace {

std::string next_text(const scenarios::Analysis& analysis, const RunContext& context, const Terminal& terminal) {
  const std::vector<std::string> commands = next_commands(analysis, context.recording, terminal.program);
  // A command that is to be copied stays in one line.
  const auto too_wide = [&](const std::string& one) { return 10 + display_width(one) > terminal.width; };
  const bool below = std::any_of(commands.begin(), commands.end(), too_wide);
  std::string text = commands.empty() ? "" : below ? "\nNext\n" : "\n";
  for (std::size_t i = 0; i < commands.size(); ++i) {
    text += fmt::format("{}{}\n",
                        below    ? "  "
                        : i == 0 ? "Next      "
                                 : "          ",
                        paint(terminal, Ink::cyan, one_line(commands[i], terminal.charset())));
  }
  return text;
}

/// What was asked and answered; in a dump there is none of it.
std::string requests_block(const scenarios::Analysis& analysis, const Terminal& terminal) {
  const auto answered = [](const scenarios::RequestOutcome& request) {
    return !request.row.name.empty() || request.prompt_tokens > 0 || !request.row.output_tokens.empty();
  };
  if (analysis.dumped() || std::none_of(analysis.requests.begin(), analysis.requests.end(), answered)) return {};
  return fmt::format("\n{}\n{}", paint(terminal, Ink::bold, "Requests"), requests_text(analysis.requests, terminal));
}

std::string front_block(const Front& front, const Terminal& terminal) {
  const std::string kind =
      front.kind == StepKind::decode ? std::string() : fmt::format(" ({})", words::word(words::kStepKinds, front.kind));
  return fmt::format("\n{}: request {}, step {}{}{}, {}\n", paint(terminal, Ink::bold, "Front"), front.request,
                     front.step, kind, front.rank > 0 ? fmt::format(", rank {}", front.rank) : "",
                     counted(front.tokens, "token")) +
         front_text(front, terminal);
}

/// Whether the answer was about another fault than the root, which is accepted.
bool told_another(const Diagnosis& diagnosis, const RunContext& context) {
  return diagnosis.root_cause && told_fault(diagnosis, context.accepted) != *diagnosis.root_cause;
}

}  // namespace

std::string run_text(const scenarios::Analysis& analysis, const RunContext& context, const Terminal& terminal) {
  const Diagnosis& diagnosis = analysis.diagnosis;
  const Answer first = answer(analysis, context, terminal);
  std::string text = first.text + '\n' + header_text(analysis, context, terminal) + requests_block(analysis, terminal);
  if (analysis.front) text += front_block(*analysis.front, terminal);
  if (const std::string chain = chain_text(diagnosis, terminal); !chain.empty()) {
    text += fmt::format("\n{}: {}\n{}", paint(terminal, Ink::bold, "Chain"), counted(diagnosis.chain.size(), "event"),
                        chain);
  }
  text += '\n' + details_text(diagnosis, !first.whole || told_another(diagnosis, context), terminal);
  text += warnings_text(diagnosis, terminal) + checks_text(diagnosis, terminal) + notes_text(diagnosis, terminal);
  if (analysis.digest)
    text += fmt::format("Hash      {:016x} over {} tensors\n", *analysis.digest, analysis.counts.tensors);
  if (context.judged) text += '\n' + judgement_text(context.missed, terminal);
  return text + next_text(analysis, context, terminal);
}

}  // namespace nanscope::report
