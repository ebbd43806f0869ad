#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nanscope::gui {

/// What can be looked for: by its title, less well by its detail.
struct Findable {
  std::string_view title;
  std::string_view detail;
};

struct PaletteMatch {
  std::size_t index = 0;           ///< of the findable
  int score = 0;                   ///< the higher the better
  std::vector<std::size_t> bytes;  ///< of the title that were typed, ascending
};

/// Those in which every word of the query occurs, letter by letter in this order, whatever lies between;
/// the better ones first: letters together, at the start of words, in the title. Those far behind the best
/// one are left out. All of them in their order for a blank query.
std::vector<PaletteMatch> find_in_palette(std::span<const Findable> all, std::string_view query);

}  // namespace nanscope::gui
