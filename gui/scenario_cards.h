#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nanscope::gui {

/// A scenario of the library as the start screen lists it.
struct ScenarioCard {
  std::filesystem::path path;
  std::string name;
  std::string title;
  std::string fault;    ///< that it shows, "kv-scale-locked"; "clean" when there is none
  std::string formats;  ///< that it sets, "kv.format=e4m3"; empty: none
  std::string text;     ///< the first paragraph of what it says of itself
  bool faulty = true;   ///< it shows a fault; else it shows that something is none
};

/// Those of a folder by name, the faulty ones first; files that are no scenarios are left out.
std::vector<ScenarioCard> list_scenarios(const std::filesystem::path& folder);

/// Those that a query is about, by name, title, fault or format, the best first; all of them for a blank one.
std::vector<std::size_t> find_scenarios(std::span<const ScenarioCard> cards, std::string_view query);

}  // namespace nanscope::gui
