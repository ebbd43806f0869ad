#include "scenarios/report/replay_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "core/numbers/format.h"
#include "scenarios/report/diagnosis_report.h"
#include "scenarios/report/run_report.h"
#include "scenarios/report/why_report.h"

namespace nanscope::report {

namespace {

constexpr std::int64_t kRowsAround = 2;
constexpr std::int64_t kChannelsAround = 2;

struct Window {
  std::int64_t first = 0;
  std::int64_t last = 0;  ///< one past
};

/// 2 n + 1 indices around `at`, moved inside [0, count).
Window window(std::int64_t at, std::int64_t around, std::int64_t count) {
  const std::int64_t size = std::min(count, 2 * around + 1);
  const std::int64_t first = std::clamp<std::int64_t>(at - around, 0, count - size);
  return {first, first + size};
}

Ink ink_of(const TensorData& data, std::int64_t row, std::int64_t channel) {
  const float value = data.value(row, channel);
  if (std::isnan(value)) return Ink::red;
  if (std::isinf(value)) return Ink::magenta;
  if (std::abs(value) == info(data.format).max_finite) return Ink::yellow;
  return Ink::plain;
}

std::string health_text(const Health& health) {
  std::string text =
      fmt::format("{} elements: {} NaN, {} +Inf, {} -Inf, {} at the largest finite value, {} zero", health.count,
                  health.nan, health.pos_inf, health.neg_inf, health.saturated, health.zero);
  if (health.clipped > 0) text += fmt::format(", {} clipped", health.clipped);
  if (health.flushed > 0) text += fmt::format(", {} flushed to zero", health.flushed);
  if (health.finite() > 0) {
    text += fmt::format("; finite from {} to {}", number_text(static_cast<double>(health.min)),
                        number_text(static_cast<double>(health.max)));
  }
  return text;
}

}  // namespace

std::string replay_text(const scenarios::ReplayReport& report, const std::string& recording, const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope replay {}", printable(recording, terminal)), terminal);
  if (report.same() && report.within > 0) {
    text += paragraph(
        "",
        fmt::format("{}: {} of {} tensors and {} weights have the recorded hashes; {} of tensor cores have other bits "
                    "than those that {} made and recorded, and differ by at most {:.2g} of the bound ({:.2f} s)",
                    paint(terminal, Ink::green, "Within the bound, not identical"), report.verified, report.tensors,
                    report.weights, counted(report.within, "product"), report.recorded_on, report.share,
                    report.seconds),
        terminal);
  } else if (report.same()) {
    text += paragraph("",
                      fmt::format("{}: {} of {} tensors and {} weights have the recorded hashes ({:.2f} s)",
                                  paint(terminal, Ink::green, "Same, bit for bit"), report.verified, report.tensors,
                                  report.weights, report.seconds),
                      terminal);
  } else {
    const scenarios::Divergence& divergence = *report.divergence;
    text += paragraph("",
                      fmt::format("{} after {} of {} tensors, at {}", paint(terminal, Ink::red, "Diverges"),
                                  report.verified + report.within, report.tensors,
                                  paint(terminal, Ink::bold, printable(divergence.place, terminal))),
                      terminal);
    text += paragraph("  recorded  ", printable(divergence.expected, terminal), terminal);
    text += paragraph("  replayed  ", printable(divergence.found, terminal), terminal);
  }
  if (!report.whole) text += "The recording was interrupted: only what it holds was compared.\n";
  return text;
}

nlohmann::ordered_json to_json(const scenarios::ReplayReport& report) {
  nlohmann::ordered_json json;
  json["schema"] = "nanscope.replay/1";
  json["same"] = report.same() && report.within == 0;
  json["tensors"] = report.tensors;
  json["verified"] = report.verified;
  json["weights"] = report.weights;
  json["within_bound"] = report.within;
  json["share_of_bound"] = report.share;
  json["complete"] = report.whole;
  json["divergence"] = nullptr;
  if (report.divergence) {
    json["divergence"] = {{"place", report.divergence->place},
                          {"expected", report.divergence->expected},
                          {"found", report.divergence->found}};
  }
  return json;
}

std::string neighbourhood_text(const TensorRow& tensor, const TensorData& data, std::int64_t row, std::int64_t channel,
                               const std::string& place, const Terminal& terminal) {
  std::string text = heading(printable(place, terminal), terminal);
  text += paragraph("",
                    fmt::format("{}, {} tokens from {} x {} channels, hash {:016x}", name(tensor.format), tensor.tokens,
                                tensor.first_token, tensor.channels, tensor.hash),
                    terminal);
  text += paragraph("", health_text(tensor.health), terminal) + '\n';
  const Window rows = window(row, kRowsAround, data.tokens);
  const Window channels = window(channel, kChannelsAround, data.channels);
  Table table(std::vector<Align>(static_cast<std::size_t>(channels.last - channels.first) + 1, Align::right));
  std::vector<std::string> titles = {"token"};
  for (std::int64_t c = channels.first; c < channels.last; ++c) titles.push_back(fmt::format("[{}]", c));
  table.row(std::move(titles));
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    std::vector<std::string> cells = {std::to_string(tensor.first_token + r)};
    for (std::int64_t c = channels.first; c < channels.last; ++c) {
      const std::string value = value_and_bits(data.format, data.value(r, c), data.code(r, c));
      const bool here = r == row && c == channel;
      cells.push_back(paint(terminal, ink_of(data, r, c), here ? fmt::format(">{}<", value) : value + ' '));
    }
    table.row(std::move(cells));
  }
  return text + table.text("  ", terminal.width);
}

nlohmann::ordered_json neighbourhood_json(const TensorRow& tensor, const TensorData& data, std::int64_t row,
                                          std::int64_t channel, const std::string& place) {
  nlohmann::ordered_json json;
  json["schema"] = "nanscope.element/1";
  json["place"] = place;
  json["format"] = name(tensor.format);
  json["value"] = fmt::format("{}", data.value(row, channel));
  json["code"] = data.code(row, channel);
  json["hash"] = fmt::format("{:016x}", tensor.hash);
  json["elements"] = nlohmann::ordered_json::array();
  const Window rows = window(row, kRowsAround, data.tokens);
  const Window channels = window(channel, kChannelsAround, data.channels);
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    for (std::int64_t c = channels.first; c < channels.last; ++c) {
      json["elements"].push_back({{"token", tensor.first_token + r},
                                  {"channel", c},
                                  {"value", fmt::format("{}", data.value(r, c))},
                                  {"code", data.code(r, c)}});
    }
  }
  return json;
}

std::string change_text(const scenarios::Analysis& before, const scenarios::Analysis& after,
                        std::span<const std::string> settings, const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope replay {} with {}", printable(before.target, terminal),
                                         printable(fmt::format("{}", fmt::join(settings, " ")), terminal)),
                             terminal);
  text += paint(terminal, Ink::bold, "Before") + '\n' + requests_text(before.requests, terminal);
  text += paint(terminal, Ink::bold, "After") + '\n' + requests_text(after.requests, terminal);
  const std::vector<Event>& was = before.diagnosis.chain;
  const std::vector<Event>& is = after.diagnosis.chain;
  text += fmt::format("\n{}: {} before, {} after\n", paint(terminal, Ink::bold, "Chain"), counted(was.size(), "event"),
                      is.size());
  const auto gone = std::find_if(was.begin(), was.end(), [&](const Event& event) {
    return std::none_of(is.begin(), is.end(), [&](const Event& other) { return other.kind == event.kind; });
  });
  if (gone != was.end()) {
    text += paragraph(
        "  ",
        printable(fmt::format("breaks at {}, {}, where it was: {}", gone->kind, place_of(*gone), gone->text), terminal),
        terminal);
  }
  return text + '\n' + diagnosis_text(after.diagnosis, terminal);
}

}  // namespace nanscope::report
