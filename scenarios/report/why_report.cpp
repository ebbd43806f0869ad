#include "scenarios/report/why_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <vector>

#include "core/counted.h"
#include "core/numbers/format.h"
#include "instrument/diagnosis/why_brief.h"

namespace nanscope::report {

namespace {

std::string numbers_text(const std::vector<Evidence>& numbers, const Terminal& terminal) {
  std::vector<std::string> parts;
  for (const Evidence& item : numbers) {
    parts.push_back(fmt::format("{} {}", item.name, printable(to_string(item.value), terminal)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// The element by the name that the producer gave its tensor, what it holds, and its place where that is another.
std::vector<std::string> hop_title(const WhyPath& path, std::size_t number, const Terminal& terminal) {
  const Hop& hop = path.hops[number];
  const std::string place = place_text(hop.where);
  const std::string tensor = tensor_text(hop.where);
  const bool named = !hop.tensor.empty() && hop.tensor != tensor;
  const std::string element = printable(named ? hop.tensor + place.substr(tensor.size()) : place, terminal);
  std::vector<std::string> parts = {paint(terminal, Ink::bold, element.empty() ? name(hop.kind) : element)};
  if (hop.code && hop.value) {
    const std::string value = value_and_bits(hop.format, *hop.value, *hop.code);
    parts.push_back(fmt::format("{} {}", name(hop.format), paint(terminal, hop.bad ? Ink::red : Ink::green, value)));
  }
  if (named && hop.where.op_id != 0) parts.push_back(paint(terminal, Ink::dim, printable(place, terminal)));
  if (path.origin == number)
    parts.push_back(paint(terminal, Ink::yellow, terminal.utf8 ? "◀ born here" : "<- born here"));
  return parts;
}

/// Two spaces apart; what no longer fits goes on below.
std::string parts_text(std::string_view lead, const std::vector<std::string>& parts, const Terminal& terminal) {
  std::string block(lead);
  int used = display_width(lead);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int width = display_width(parts[i]);
    if (i > 0 && used + 2 + width > terminal.width) {
      block += '\n' + std::string(lead.size(), ' ') + parts[i];
      used = static_cast<int>(lead.size()) + width;
      continue;
    }
    block += (i > 0 ? "  " : "") + parts[i];
    used += width + (i > 0 ? 2 : 0);
  }
  return block + '\n';
}

std::string hop_text(const WhyPath& path, std::size_t number, const Terminal& terminal) {
  const Hop& hop = path.hops[number];
  std::string text = parts_text(fmt::format("{:>3}  ", number), hop_title(path, number, terminal), terminal);
  if (!hop.text.empty()) text += paragraph("     ", printable(hop.text, terminal), terminal);
  if (!hop.numbers.empty()) text += paragraph("     ", numbers_text(hop.numbers, terminal), terminal);
  return text;
}

/// What stands for hops that are not shown.
std::string left_out(std::size_t count, const Terminal& terminal) {
  if (count == 0) return {};
  const std::string dots = terminal.utf8 ? "…" : "...";
  return fmt::format("     {}\n", paint(terminal, Ink::dim, fmt::format("{} {}", dots, counted(count, "hop"))));
}

}  // namespace

std::string value_and_bits(Format format, float value, std::uint32_t code) {
  const auto digits = static_cast<int>(2 * info(format).storage_bytes());
  return fmt::format("{} 0x{:0{}X}", fmt::format("{}", value), code, digits);
}

std::string why_text(const WhyPath& path, const Terminal& terminal, Hops hops) {
  std::vector<std::size_t> shown = hops_that_matter(path);
  if (hops == Hops::all) {
    shown.resize(path.hops.size());
    std::iota(shown.begin(), shown.end(), std::size_t{0});
  }
  std::string text;
  std::size_t next = 0;
  for (const std::size_t number : shown) {
    text += left_out(number - next, terminal) + hop_text(path, number, terminal);
    next = number + 1;
  }
  if (!path.conclusion.empty()) text += '\n' + paragraph("Cause     ", printable(path.conclusion, terminal), terminal);
  if (!path.stopped.empty()) text += paragraph("Stopped   ", printable(path.stopped, terminal), terminal);
  return text;
}

}  // namespace nanscope::report
