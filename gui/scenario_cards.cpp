#include "gui/scenario_cards.h"

#include <fmt/format.h>

#include <algorithm>

#include "gui/palette_match.h"
#include "scenarios/scenario.h"

namespace nanscope::gui {
namespace {

std::string formats_of(const scenarios::Scenario& scenario) {
  std::string formats;
  for (const scenarios::KnobSetting& knob : scenario.knobs) {
    if (!knob.name.ends_with("format")) continue;
    formats += fmt::format("{}{}={}", formats.empty() ? "" : " ", knob.name, knob.value);
  }
  return formats;
}

ScenarioCard card_of(const scenarios::Scenario& scenario) {
  ScenarioCard card;
  card.path = scenario.path;
  card.name = scenario.name;
  card.title = scenario.title;
  card.faulty = scenario.expect.verdict == Verdict::fault;
  card.fault = !card.faulty ? "clean" : scenario.expect.fault_class;
  if (card.fault.empty()) card.fault = "fault";
  card.formats = formats_of(scenario);
  card.text = scenario.text.substr(0, scenario.text.find("\n\n"));
  while (card.text.ends_with('\n')) card.text.pop_back();
  return card;
}

}  // namespace

std::vector<ScenarioCard> list_scenarios(const std::filesystem::path& folder) {
  std::vector<ScenarioCard> cards;
  const Result<std::vector<std::filesystem::path>> files = scenarios::scenario_files(folder);
  if (!files) return cards;
  for (const std::filesystem::path& file : *files) {
    const Result<scenarios::Scenario> scenario = scenarios::load_scenario(file);
    if (scenario) cards.push_back(card_of(*scenario));
  }
  std::stable_partition(cards.begin(), cards.end(), [](const ScenarioCard& card) { return card.faulty; });
  return cards;
}

std::vector<std::size_t> find_scenarios(std::span<const ScenarioCard> cards, std::string_view query) {
  std::vector<std::string> details;
  details.reserve(cards.size());
  for (const ScenarioCard& card : cards) {
    details.push_back(fmt::format("{} {} {}", card.fault, card.formats, card.title));
  }
  std::vector<Findable> all;
  for (std::size_t i = 0; i < cards.size(); ++i) all.push_back({cards[i].name, details[i]});
  std::vector<std::size_t> found;
  for (const PaletteMatch& match : find_in_palette(all, query)) found.push_back(match.index);
  return found;
}

}  // namespace nanscope::gui
