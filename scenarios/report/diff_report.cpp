#include "scenarios/report/diff_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "core/counted.h"

namespace nanscope::report {
namespace {

std::string side(const std::optional<Tensor>& tensor) {
  if (!tensor) return "absent";
  const std::string shape = fmt::format("{} {} x {}", name(tensor->format), tensor->tokens, tensor->channels);
  return tensor->hash ? fmt::format("{} {:016x}", shape, *tensor->hash) : shape;
}

/// The place of a difference, and what a dump calls the tensor.
std::string place_line(const Difference& difference, const Terminal& terminal) {
  const std::string place = paint(terminal, Ink::bold, printable(place_text(difference.where), terminal));
  const std::optional<Tensor>& tensor = difference.a ? difference.a : difference.b;
  return tensor && !tensor->name.empty() ? fmt::format("{} ({})", place, printable(tensor->name, terminal)) : place;
}

std::string bits_text(const DiffReport& report, const Terminal& terminal) {
  std::string text = paragraph("",
                               fmt::format("{} tensors compared, {} differ, {} in one run alone", report.compared,
                                           report.differing, report.unmatched),
                               terminal);
  if (report.unknown > 0)
    text += paragraph(
        "",
        fmt::format("{} could not be compared: there are neither hashes nor elements", counted(report.unknown, "pair")),
        terminal);
  if (report.same()) {
    const char* verdict = report.unknown == 0 ? "The runs are the same, bit for bit."
                                              : "What could be compared is the same, bit for bit.";
    return text + paint(terminal, Ink::green, verdict) + '\n';
  }
  for (std::size_t i = 0; i < report.differences.size(); ++i) {
    const Difference& difference = report.differences[i];
    text += '\n' + folded(i == 0 ? "First " : "Also  ",
                          fmt::format("{}: {}", place_line(difference, terminal), name(difference.kind)), terminal);
    text += paragraph("  ", printable(difference.summary, terminal), terminal);
    text += fmt::format("  A  {}\n  B  {}\n", side(difference.a), side(difference.b));
  }
  return text;
}

std::string sequences_text(const DiffReport& report) {
  const auto by_tokens = std::count_if(report.sequences.begin(), report.sequences.end(),
                                       [](const align::SequencePair& one) { return one.tokens > 0; });
  std::string text = report.sequences.empty()
                         ? "nothing says whose rows they are, so rows met in their order"
                         : fmt::format("{} met by {}", counted(report.sequences.size(), "sequence"),
                                       by_tokens == std::ssize(report.sequences) ? "tokens"
                                       : by_tokens == 0                          ? "order"
                                                                                 : "tokens, or else by order");
  for (const align::SequencePair& one : report.sequences) {
    if (!one.first_apart) continue;
    text += fmt::format("; the tokens of sequence {} differ from position {} on, where rows are not compared", one.a,
                        *one.first_apart);
  }
  text += fmt::format("; {} of rows", counted(report.rows, "pair"));
  if (report.rows_only_in_a > 0) text += fmt::format(", {} only in A", report.rows_only_in_a);
  if (report.rows_only_in_b > 0) text += fmt::format(", {} only in B", report.rows_only_in_b);
  return text;
}

std::string noise_text(const DiffReport& report) {
  double least = 0;
  double most = 0;
  for (const NoiseLine& line : report.floor) {
    if (!(line.median > 0) || !std::isfinite(line.median)) continue;
    least = least > 0 ? std::min(least, line.median) : line.median;
    most = std::max(most, line.median);
  }
  const std::string size = least < most ? fmt::format("{:.2g} to {:.2g}", least, most) : fmt::format("{:.2g}", most);
  return fmt::format("in each tensor, half of the rows are off by at most {} of their size", size);
}

/// What is said of an op's inputs follows from its producer's.
std::string joined_text(const Joined& one) {
  std::vector<std::string> ops;
  std::copy_if(one.ops.begin(), one.ops.end(), std::back_inserter(ops),
               [](const std::string& op) { return op.find("_input.") == std::string::npos; });
  const bool all = one.join == align::Join::columns || one.join == align::Join::sum;
  return fmt::format("ranks of {}, {}: {}", one.side, name(one.join),
                     all ? fmt::format("{}", fmt::join(ops, ", ")) : counted(ops.size(), "op"));
}

std::string numbers_text(const DiffReport& report, const Terminal& terminal) {
  std::string text =
      paragraph("",
                fmt::format("{} compared: {} equal, {} within rounding, {}{} beyond it; {} without a partner",
                            counted(report.compared, "tensor"), report.equal, report.rounding,
                            report.noise > 0 ? fmt::format("{} within the noise of A, ", report.noise) : std::string(),
                            report.differing, report.unmatched),
                terminal);
  text += paragraph("Aligned   ", sequences_text(report), terminal);
  for (const Joined& one : report.joined) {
    text += paragraph("Joined    ", joined_text(one), terminal);
  }
  if (!report.floor.empty() && report.equal < report.compared)
    text += paragraph("Noise     ", noise_text(report), terminal);
  text += '\n';
  if (report.same()) return text + paint(terminal, Ink::green, "Nothing but rounding lies between the two.") + '\n';
  if (report.outstanding == 0 && report.differing > 0) {
    text += paragraph("", "No tensor stands out of the noise between the two.", terminal);
  }
  std::string label = "Diverges  ";
  for (const Difference& one : report.differences) {
    if (one.is_noise || !one.a || !one.b) label = label == "Diverges  " ? "Also      " : label;
    text += paragraph(label, printable(one.summary, terminal), terminal);
    label = label == "Diverges  " ? "Also      " : "          ";
  }
  return text;
}

}  // namespace

std::string diff_text(const DiffReport& report, std::string_view a, std::string_view b, const Terminal& terminal) {
  return heading(fmt::format("nanscope diff {} {}", printable(a, terminal), printable(b, terminal)), terminal) +
         (report.bits ? bits_text(report, terminal) : numbers_text(report, terminal));
}

}  // namespace nanscope::report
