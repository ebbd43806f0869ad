#include "gui/palette_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nanscope::gui {
namespace {

constexpr std::size_t kMostRequests = 2000;  ///< more cannot be told apart by their names
constexpr std::string_view kSuffix = ".nanscope";

void add_events(std::vector<PaletteItem>& items, const Story& story) {
  for (const StoryLink& link : story.links) {
    if (!link.target) continue;
    items.push_back({fmt::format("{} {}", link.number, link.title), link.place, "", *link.target});
  }
}

void add_requests(std::vector<PaletteItem>& items, const RunMap& map) {
  for (std::size_t i = 0; i < std::min(map.requests.size(), kMostRequests); ++i) {
    const MapRequest& request = map.requests[i];
    if (request.steps.empty()) continue;
    const MapStep& step = map.steps[request.steps.front()];
    if (step.first_op >= map.ops.size()) continue;
    items.push_back({request.row.name.empty() ? fmt::format("Request {}", request.row.id)
                                              : fmt::format("Request {} {}", request.row.id, request.row.name),
                     "", "", Selection{map.place_of_op(step.first_op, step), {}}});
  }
}

/// One step's, of which all have the same: those of all steps would be thousands.
void add_ops(std::vector<PaletteItem>& items, const RunMap& map, const Place& selected) {
  const MapStep* step = map.find_step(selected);
  if (step == nullptr && !map.steps.empty()) step = &map.steps.front();
  if (step == nullptr) return;
  const auto number = static_cast<std::uint32_t>(step - map.steps.data());
  for (std::size_t op = step->first_op; op < map.ops.size() && map.ops[op].step == number; ++op) {
    const MapRow& row = map.rows[map.ops[op].row];
    Place place = map.place_of_op(op);
    place.token.reset();
    place.channel.reset();
    items.push_back({row.layer < 0 ? row.op : fmt::format("{} of layer {}", row.op, row.layer), to_string(place), "",
                     Selection{std::move(place), {}}});
  }
}

/// Without what is around it, as a path in a shell or a place in a report has it.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace

std::vector<PaletteItem> palette_items(std::span<const Command> commands, const RunMap* map, const Story* story,
                                       const Place& selected, std::span<const std::filesystem::path> recent) {
  std::vector<PaletteItem> items;
  for (const Command& command : commands) {
    if (command.action == Action::none || command.words.empty()) continue;
    items.push_back({command.words, std::string(command.group), keys_of(command), command});
  }
  for (const std::filesystem::path& file : recent) {
    items.push_back({fmt::format("Open {}", file.filename().string()), file.parent_path().string(), "", file});
  }
  for (const std::filesystem::path& file : recent) {
    items.push_back(
        {fmt::format("Show {} beside", file.filename().string()), file.parent_path().string(), "", BesideFile{file}});
  }
  if (story != nullptr) add_events(items, *story);
  if (map != nullptr) {
    add_requests(items, *map);
    add_ops(items, *map, selected);
  }
  return items;
}

std::vector<PaletteLine> palette_lines(std::span<const PaletteItem> items, std::string_view query, std::size_t most) {
  std::vector<PaletteLine> lines;
  const std::string_view typed = trimmed(query);
  if (typed.size() > kSuffix.size() && typed.substr(typed.size() - kSuffix.size()) == kSuffix) {
    constexpr std::string_view kOpen = "open ";
    constexpr std::string_view kBeside = "beside ";
    if (typed.substr(0, kBeside.size()) == kBeside) {
      const std::string_view path = trimmed(typed.substr(kBeside.size()));
      lines.push_back({{fmt::format("Show {} beside", path), "", "", BesideFile{path}}, {}});
    } else {
      const std::string_view path =
          trimmed(typed.substr(0, kOpen.size()) == kOpen ? typed.substr(kOpen.size()) : typed);
      lines.push_back({{fmt::format("Open {}", path), "", "", std::filesystem::path(path)}, {}});
    }
  } else if (typed.find('/') != std::string_view::npos && parse_place(typed)) {
    lines.push_back({{fmt::format("Go to {}", typed), "", "", TypedPlace{std::string(typed)}}, {}});
  }
  std::vector<Findable> all;
  all.reserve(items.size());
  for (const PaletteItem& item : items) all.push_back({item.title, item.detail});
  for (PaletteMatch& match : find_in_palette(all, typed)) {
    if (lines.size() >= most) break;
    lines.push_back({items[match.index], std::move(match.bytes)});
  }
  return lines;
}

}  // namespace nanscope::gui
