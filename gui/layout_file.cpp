#include "gui/layout_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "gui/app.h"
#include "gui/state_file.h"

namespace nanscope::gui {
namespace {

void read_share(std::string_view text, float& share) {
  constexpr float kLeast = 0.01F;
  constexpr float kMost = 0.99F;
  float value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = read.ec == std::errc{} && read.ptr == text.data() + text.size();
  if (whole && value >= kLeast && value <= kMost) share = value;
}

void read_count(std::string_view text, int least, int most, int& count) {
  int value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = read.ec == std::errc{} && read.ptr == text.data() + text.size();
  if (whole && value >= least && value <= most) count = value;
}

void read_property(std::string_view name, const std::string& value, SavedLayout& layout) {
  if (name == "left") return read_share(value, layout.shares.left);
  if (name == "right") return read_share(value, layout.shares.right);
  if (name == "upper") return read_share(value, layout.shares.upper);
  if (name == "theme" && find_theme(value)) layout.theme = value;
  if (name == "palette") layout.vision = find_vision(value).value_or(layout.vision);
  if (name == "zoom") return read_count(value, kLeastZoom, kMostZoom, layout.zoom);
  if (name == "digits") return read_count(value, kDigitChoices.front(), kDigitChoices.back(), layout.numbers.digits);
  if (name == "notation") layout.numbers.notation = find_notation(value).value_or(layout.numbers.notation);
  if (name == "size") {
    if (const Result<Extent> size = parse_size(value)) layout.size = *size;
  }
  if (name == "tab") {
    const std::vector<std::string> views = all_views();
    if (std::find(views.begin(), views.end(), value) != views.end()) layout.tab = value;
  }
}

}  // namespace

std::filesystem::path layout_path() { return state_file("layout"); }

SavedLayout read_layout(const std::filesystem::path& file) {
  SavedLayout layout;
  for (const std::string& line : read_lines(file)) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    read_property(std::string_view(line).substr(0, space), line.substr(space + 1), layout);
  }
  return layout;
}

void write_layout(const std::filesystem::path& file, const SavedLayout& layout) {
  std::vector<std::string> lines{fmt::format("left {}", layout.shares.left),
                                 fmt::format("right {}", layout.shares.right),
                                 fmt::format("upper {}", layout.shares.upper),
                                 fmt::format("theme {}", layout.theme),
                                 fmt::format("palette {}", nanscope::gui::name(layout.vision)),
                                 fmt::format("size {}x{}", layout.size.width, layout.size.height)};
  lines.push_back(fmt::format("zoom {}", layout.zoom));
  lines.push_back(fmt::format("digits {}", layout.numbers.digits));
  lines.push_back(fmt::format("notation {}", nanscope::gui::name(layout.numbers.notation)));
  if (!layout.tab.empty()) lines.push_back(fmt::format("tab {}", layout.tab));
  write_lines(file, lines);
}

}  // namespace nanscope::gui
