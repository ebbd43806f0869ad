#include "scenarios/report/why_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/numbers/format.h"

namespace nanscope::report {

namespace {

std::string numbers_text(const std::vector<Evidence>& numbers, const Terminal& terminal) {
  std::vector<std::string> parts;
  for (const Evidence& item : numbers) {
    parts.push_back(fmt::format("{} {}", item.name, printable(to_string(item.value), terminal)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string hop_title(const Hop& hop, const Terminal& terminal) {
  const std::string place = printable(place_text(hop.where), terminal);
  if (!hop.code || !hop.value) return paint(terminal, Ink::bold, place);
  const std::string value = value_and_bits(hop.format, *hop.value, *hop.code);
  return fmt::format("{}  {} {}", paint(terminal, Ink::bold, place), name(hop.format),
                     paint(terminal, hop.bad ? Ink::red : Ink::green, value));
}

std::string side(const std::optional<TensorRow>& row) {
  if (!row) return "absent";
  return fmt::format("{} {} x {} {:016x}", name(row->format), row->tokens, row->channels, row->hash);
}

}  // namespace

std::string value_and_bits(Format format, float value, std::uint32_t code) {
  const auto digits = static_cast<int>(2 * info(format).storage_bytes());
  return fmt::format("{} 0x{:0{}X}", fmt::format("{}", value), code, digits);
}

std::string why_text(const WhyPath& path, const Terminal& terminal) {
  std::string text;
  for (std::size_t i = 0; i < path.hops.size(); ++i) {
    const Hop& hop = path.hops[i];
    const bool origin = path.origin == i;
    std::string title = hop_title(hop, terminal);
    if (title.empty()) title = paint(terminal, Ink::bold, name(hop.kind));
    if (origin) title += "  " + paint(terminal, Ink::yellow, terminal.utf8 ? "◀ born here" : "<- born here");
    text += fmt::format("{:>3}  {}\n", i, title);
    if (!hop.text.empty()) text += paragraph("     ", printable(hop.text, terminal), terminal);
    if (!hop.numbers.empty()) {
      text += paragraph("     ", numbers_text(hop.numbers, terminal), terminal);
    }
  }
  if (!path.conclusion.empty()) text += '\n' + paragraph("Cause     ", printable(path.conclusion, terminal), terminal);
  if (!path.stopped.empty()) text += paragraph("Stopped   ", printable(path.stopped, terminal), terminal);
  return text;
}

std::string diff_text(const DiffReport& report, std::string_view a, std::string_view b, const Terminal& terminal) {
  std::string text =
      heading(fmt::format("nanscope diff {} {}", printable(a, terminal), printable(b, terminal)), terminal);
  text += fmt::format("{} tensors compared, {} differ, {} in one run alone\n", report.compared, report.differing,
                      report.unmatched);
  if (report.same()) return text + paint(terminal, Ink::green, "The runs are the same, bit for bit.") + '\n';
  for (std::size_t i = 0; i < report.differences.size(); ++i) {
    const Difference& difference = report.differences[i];
    const std::string place = paint(terminal, Ink::bold, printable(place_text(difference.where), terminal));
    text += fmt::format("\n{} {}: {}\n", i == 0 ? "First" : "Also ", place, name(difference.kind));
    text += paragraph("  ", printable(difference.summary, terminal), terminal);
    text += fmt::format("  A  {}\n  B  {}\n", side(difference.a), side(difference.b));
  }
  return text;
}

}  // namespace nanscope::report
