#include "instrument/server_probe/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace nanscope::server_probe {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShown = 3;  // mechanisms in a text

std::string_view word(State state) {
  return state == State::held ? "held" : state == State::broken ? "broken" : "not asked";
}

std::string names(const Finding& finding, State state) {
  std::string all;
  for (const Observation& one : finding.observations) {
    if (one.state == state) all += (all.empty() ? "" : ", ") + one.invariant;
  }
  return all;
}

std::string answer_line(const Finding& finding) {
  const std::string broken = names(finding, State::broken);
  const std::string held = names(finding, State::held);
  if (!broken.empty()) return fmt::format("broken: {}{}", broken, held.empty() ? "" : "; held: " + held);
  if (held.empty()) return "not judged: no invariant could be compared";
  return fmt::format("healthy as far as asked: {} held", held);
}

std::string reasons(const std::vector<Weight>& weights, const Finding& finding) {
  std::string all;
  for (const Weight& one : weights) {
    const auto seen = finding.signs.find(one.sign);
    all +=
        fmt::format("{}{}{}", all.empty() ? "" : "; ", text(one.sign),
                    seen == finding.signs.end() || seen->second.size() > 60 ? "" : fmt::format(" ({})", seen->second));
  }
  return all;
}

Json weights_json(const std::vector<Weight>& weights) {
  Json list = Json::array();
  for (const Weight& one : weights) {
    list.push_back(
        {{"sign", name(one.sign)}, {"text", text(one.sign)}, {"weight", one.weight}, {"source", one.source}});
  }
  return list;
}

}  // namespace

bool Finding::broken() const {
  return std::any_of(observations.begin(), observations.end(),
                     [](const auto& one) { return one.state == State::broken; });
}

bool Finding::judged() const {
  return std::any_of(observations.begin(), observations.end(),
                     [](const auto& one) { return one.state != State::not_asked; });
}

Finding investigate(Conversation& talk, Conversation* reference, std::string target) {
  const auto start = std::chrono::steady_clock::now();
  Study study(talk);
  study.reference = reference;
  for (const Experiment experiment : experiments()) experiment(study);
  Finding finding;
  finding.target = std::move(target);
  finding.model = talk.abilities().model;
  finding.ranked = rank(study);
  finding.observations = std::move(study.observations);
  finding.signs = std::move(study.signs);
  finding.requests = static_cast<int>(talk.exchanges().size());
  finding.unfinished = talk.why_over();
  finding.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return finding;
}

std::string verdict(const Finding& finding) {
  return finding.broken() ? "broken" : finding.judged() ? "healthy-as-far-as-asked" : "not-judged";
}

Json finding_json(const Finding& finding) {
  Json json{{"schema", "nanscope.probe/1"}, {"target", finding.target},     {"model", finding.model},
            {"verdict", verdict(finding)},  {"requests", finding.requests}, {"seconds", finding.seconds}};
  if (!finding.unfinished.empty()) json["unfinished"] = finding.unfinished;
  json["invariants"] = Json::array();
  for (const Observation& one : finding.observations) {
    Json item{{"name", one.invariant}, {"state", word(one.state)}, {"text", one.summary}};
    if (one.state != State::not_asked) {
      item["largest"] = one.largest;
      item["noise"] = one.limit;
      item["compared"] = one.compared;
    }
    json["invariants"].push_back(std::move(item));
  }
  json["signs"] = Json::object();
  for (const auto& [sign, where] : finding.signs) json["signs"][std::string(name(sign))] = where;
  json["mechanisms"] = Json::array();
  for (const Ranked& one : finding.ranked) {
    json["mechanisms"].push_back({{"name", one.mechanism->name},
                                  {"title", one.mechanism->title},
                                  {"score", one.score},
                                  {"for", weights_json(one.for_it)},
                                  {"against", weights_json(one.against)},
                                  {"next", one.mechanism->next}});
  }
  return json;
}

std::string finding_text(const Finding& finding) {
  std::string out = fmt::format("{} ({}): {}\n", finding.target, finding.model, answer_line(finding));
  if (!finding.unfinished.empty()) out += fmt::format("Unfinished: {}\n", finding.unfinished);
  out += "\n";
  for (const Observation& one : finding.observations) {
    out += fmt::format("  {:<12}  {:<9}  {}\n", one.invariant, word(one.state), one.summary);
  }
  if (finding.broken() && finding.ranked.empty()) {
    out += "\nNo known mechanism fits. Next: dump the tensors of such a request, and run nanscope diagnose\n";
  }
  if (!finding.ranked.empty()) out += "\nWhat may be behind it, the likeliest first; a rank is no proof:\n";
  for (std::size_t i = 0; i < std::min(kShown, finding.ranked.size()); ++i) {
    const Ranked& one = finding.ranked[i];
    out += fmt::format("  {}. {}: {}\n     for: {}\n", i + 1, one.mechanism->name, one.mechanism->title,
                       reasons(one.for_it, finding));
    if (!one.against.empty()) out += fmt::format("     against: {}\n", reasons(one.against, finding));
  }
  if (!finding.ranked.empty()) out += fmt::format("\nNext: {}\n", finding.ranked.front().mechanism->next);
  out += fmt::format("\n{} requests in {:.1f} s\n", finding.requests, finding.seconds);
  return out;
}

std::string finding_markdown(const Finding& finding) {
  const auto cell = [](std::string text) {
    for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, "\\");
    return text;
  };
  std::string out =
      fmt::format("**{}**: {}\n\n| invariant | state | |\n|---|---|---|\n", finding.target, answer_line(finding));
  for (const Observation& one : finding.observations) {
    out += fmt::format("| {} | {} | {} |\n", one.invariant, word(one.state), cell(one.summary));
  }
  for (std::size_t i = 0; i < std::min(kShown, finding.ranked.size()); ++i) {
    const Ranked& one = finding.ranked[i];
    out += fmt::format("\n{}. `{}`: {}. For: {}.", i + 1, one.mechanism->name, one.mechanism->title,
                       reasons(one.for_it, finding));
  }
  if (!finding.ranked.empty()) out += fmt::format("\n\nNext: {}\n", finding.ranked.front().mechanism->next);
  return out;
}

}  // namespace nanscope::server_probe
