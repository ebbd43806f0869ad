#include "gui/views/cache_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "gui/cell_paint.h"
#include "gui/context_menu.h"
#include "gui/marks.h"

namespace nanscope::gui {
namespace {

constexpr float kMapTitle = 30;
constexpr float kMapLegend = 28;
constexpr float kBlockTitle = 21;
constexpr float kBlockGap = 10;
constexpr float kMostSlot = 94;
constexpr float kLeastSlot = 7;
constexpr float kSpaciousFrom = 66;  ///< slots of this width say in words whose token they hold
constexpr float kSpaciousHeight = 42;
constexpr float kNumbersFrom = 26;  ///< and of this one in numbers
constexpr float kSlotHeight = 30;
constexpr float kRoundSlot = 10;

/// How blocks are laid out in a given area.
struct Grid {
  float slot = kLeastSlot;  ///< width
  float slot_height = kLeastSlot;
  std::size_t columns = 1;
  float block_width = 0;
  float block_height = 0;
  float height = 0;
};

Grid grid_of(const KvMap& map, float width, float height, float scale) {
  const auto slots = static_cast<float>(std::max<std::size_t>(map.blocks.empty() ? 1 : map.blocks[0].slots.size(), 1));
  const float gap = kBlockGap * scale;
  Grid grid;
  for (float slot = kMostSlot; slot >= kLeastSlot; --slot) {
    grid.slot = slot * scale;
    grid.slot_height = (slot >= kSpaciousFrom ? kSpaciousHeight : std::min(slot, kSlotHeight)) * scale;
    grid.block_width = slots * grid.slot + 2 * gap;
    grid.columns = static_cast<std::size_t>(std::max(1.0F, std::floor(width / grid.block_width)));
    grid.block_height = kBlockTitle * scale + grid.slot_height + gap;
    const std::size_t rows = (map.blocks.size() + grid.columns - 1) / grid.columns;
    grid.height = static_cast<float>(rows) * grid.block_height;
    if (grid.block_width <= width && grid.height <= height) break;
  }
  return grid;
}

/// The KV cache during a step.
class CacheMap {
 public:
  CacheMap(const ViewContext& context, const ViewActions& actions, const KvMap& map)
      : context_(context), actions_(actions), map_(map) {}

  float px(float pixels) const { return pixels * context_.scale; }

  /// What it takes to be shown without scrolling.
  float wanted(float width) const {
    return px(kMapTitle + kMapLegend) + grid_of(map_, width - px(2 * kMargin), 1e6F, context_.scale).height;
  }

  void draw(Area area) {
    fill({area.x, area.y, area.width, 1}, context_.theme.line);
    title({area.x + px(kMargin), area.y + px(2), area.width - px(2 * kMargin), px(kMapTitle - 2)});
    if (map_.blocks.empty()) {
      notice(context_, area, "No KV cache", "Nothing in this run says which slots of a cache were used.");
      return;
    }
    const Area room{area.x, area.y + px(kMapTitle), area.width, area.height - px(kMapTitle + kMapLegend)};
    const Grid grid = grid_of(map_, room.width - px(2 * kMargin), room.height, context_.scale);
    legend({area.x + px(kMargin), room.y + std::min(grid.height, room.height), area.width - px(2 * kMargin),
            px(kMapLegend)});
    ImGui::SetCursorScreenPos(room.min());
    ImGui::BeginChild("blocks", {room.width, room.height}, false, ImGuiWindowFlags_NoBackground);
    const ImVec2 start = ImGui::GetCursorScreenPos();
    for (std::size_t i = 0; i < map_.blocks.size(); ++i) {
      const std::size_t row = i / grid.columns;
      const Area block{start.x + px(kMargin) + static_cast<float>(i % grid.columns) * grid.block_width,
                       start.y + static_cast<float>(row) * grid.block_height, grid.block_width - 2 * px(kBlockGap),
                       grid.block_height};
      if (ImGui::IsRectVisible(block.min(), block.max())) draw_block(map_.blocks[i], block, grid);
    }
    ImGui::SetCursorScreenPos({start.x, start.y + grid.height - 1});
    ImGui::Dummy({1, 1});
    ImGui::EndChild();
  }

 private:
  void title(Area line) const {
    label(context_.fonts.title, line, context_.theme.text, "KV cache");
    const float used = text_size(context_.fonts.title, "KV cache").x + px(14);
    std::string words = fmt::format("during {}: {} of {} slots written", map_.when, map_.written, map_.slots);
    if (map_.stale > 0) words += fmt::format(", {} left behind by earlier requests", map_.stale);
    const std::string bad = map_.bad > 0 ? counted(map_.bad, "slot") + " with NaN or Inf" : "";
    const float bad_width = bad.empty() ? 0 : chip_width(context_, bad) + px(12);
    label(context_.fonts.small, {line.x + used, line.y + 1, line.width - used - bad_width, line.height},
          context_.theme.muted, words);
    if (bad.empty()) return;
    chip_left_of(context_, line.right(), line.y + px(6), px(18), bad, context_.theme.cell(kNan), context_.theme.on_bad);
  }

  void draw_block(const KvBlock& block, Area area, const Grid& grid) {
    const float title = px(kBlockTitle);
    const std::string name = fmt::format("block {}", block.id);
    label(context_.fonts.small, {area.x, area.y, area.width, title}, context_.theme.text, name);
    const float used = text_size(context_.fonts.small, name).x + px(10);
    label(context_.fonts.small, {area.x + used, area.y, area.width - used, title}, context_.theme.muted, block.words);
    for (std::size_t i = 0; i < block.slots.size(); ++i) {
      const Area slot{area.x + static_cast<float>(i) * grid.slot, area.y + title, grid.slot, grid.slot_height};
      draw_slot(block, i, slot);
    }
  }

  void draw_slot(const KvBlock& block, std::size_t index, Area cell) {
    const KvSlot& slot = block.slots[index];
    const float gap = cell.width > px(12) ? px(1.5F) : px(0.5F);
    const Area box = cell.inset(gap, 0);
    ground(slot, box);
    const Place& place = context_.selection.place;
    const bool chosen = slot.target && slot.target->place.request == place.request &&
                        slot.target->place.step == place.step && place.token == slot.target->place.token;
    if (chosen) outline(box.inset(-px(1)), context_.theme.text, px(2), px(3));
    const bool nobodys = slot.unknown && slot.state == SlotState::stale;
    if (slot.state != SlotState::never_written && !nobodys) whose(slot, box);
    ImGui::SetCursorScreenPos(cell.min());
    ImGui::PushID(static_cast<int>(block.id));
    ImGui::PushID(static_cast<int>(index));
    const bool clicked = ImGui::InvisibleButton("slot", {cell.width, cell.height});
    ImGui::PopID();
    ImGui::PopID();
    if (ImGui::IsItemHovered()) hover(block, index, slot);
    if (slot.target && asked_for_menu()) actions_.menu({*slot.target});
    if (clicked && slot.target) actions_.choose(*slot.target);
  }

  /// As much as fits.
  void whose(const KvSlot& slot, Area box) const {
    if (box.width < px(kNumbersFrom - 4)) return;
    const bool on_color = slot.health >= kClipped && slot.state != SlotState::stale;
    const Color ink = on_color ? ink_on(context_.theme, slot.health) : context_.theme.text;
    const std::string token = slot.foreign ? "state" : fmt::format("token {}", slot.token);
    if (box.width >= px(kSpaciousFrom - 4)) {
      const float half = box.height / 2;
      label(context_.fonts.small, {box.x, box.y + px(2), box.width, half}, ink, token, 0.5F);
      label(context_.fonts.small, {box.x, box.y + half - px(2), box.width, half}, ink,
            slot.request == kDummyRequest ? std::string("dummy batch")
            : slot.request < 0            ? std::string("warm-up")
                                          : fmt::format("request {}", slot.request),
            0.5F);
      return;
    }
    const std::string who = slot.request == kDummyRequest ? std::string("d")
                            : slot.request < 0            ? std::string("w")
                                                          : std::to_string(slot.request);
    label(context_.fonts.mono_small, box, ink, slot.foreign ? who + " state" : fmt::format("{}:{}", who, slot.token),
          0.5F);
  }

  /// Filled where it is somebody's; only framed and striped where it was left behind.
  void ground(const KvSlot& slot, Area box) const {
    const Theme& theme = context_.theme;
    const float corner = corner_of(box);
    if (slot.state == SlotState::never_written || slot.state == SlotState::scrubbed) {
      fill(box, theme.cell(kAbsent), corner);
      outline(box, theme.line, 1, corner);
    } else {
      const Color color = color_of(theme, slot);
      if (slot.state == SlotState::stale) {
        stripes(box, color);
        outline(box, color, px(1.5F), corner);
      } else {
        fill(box, color, corner);
        pattern(slot, box);
      }
      if (slot.state == SlotState::shared) {
        fill({box.x, box.y, box.width, px(3)}, theme.accent, px(1.5F));
      }
    }
    if (slot.read) fill({box.x + px(2), box.bottom() + px(2), box.width - px(4), px(2)}, theme.text.alpha(190), px(1));
  }

  /// Below the words.
  void pattern(const KvSlot& slot, Area box) const {
    if (slot.health < kLowHeadroom) return;
    const float high = box.width < px(kNumbersFrom - 4) ? box.height : std::min(px(5), box.height);
    fill_cell(context_.theme, context_.fonts, {box.x, box.bottom() - high, box.width, high}, slot.health);
  }

  static Color color_of(const Theme& theme, const KvSlot& slot) {
    if (slot.health >= kLowHeadroom) return theme.cell(slot.health);
    constexpr Cell kMiddle = (kHealthyFirst + kHealthyLast) / 2;
    return theme.cell(kMiddle);
  }

  /// Thousands of small slots are drawn in a frame, and a round corner takes as long as the rest of one.
  float corner_of(Area box) const { return box.width >= px(kRoundSlot) ? px(3) : 0; }

  /// Cut by hand: each rectangle to clip by would be a call of its own to OpenGL.
  void stripes(Area box, Color color) const {
    fill(box, color.alpha(60), corner_of(box));
    for (float x = box.x - box.height; x < box.right(); x += px(7)) {
      const float left = std::max(x, box.x);
      const float right = std::min(x + box.height, box.right());
      line({left, box.bottom() - (left - x)}, {right, box.bottom() - (right - x)}, color.alpha(120), px(1.5F));
    }
  }

  void hover(const KvBlock& block, std::size_t index, const KvSlot& slot) const {
    const std::string title = fmt::format("block {} slot {}", block.id, index);
    tooltip(context_, title, slot.words);
    std::string said = title;
    for (const std::string& words : slot.words) said += " \u00B7 " + words;
    actions_.hint(said);
    if (slot.target) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  }

  void legend(Area area) const {
    const Theme& theme = context_.theme;
    float x = area.x;
    const float size = px(11);
    const auto entry = [&](const auto& draw, std::string_view words) {
      const float width = text_size(context_.fonts.small, words).x;
      if (x + size + px(6) + width > area.right()) return;
      draw(Area{x, area.y + (area.height - size) / 2, size, size});
      label(context_.fonts.small, {x + size + px(6), area.y, width + 1, area.height}, theme.muted, words);
      x += size + px(6) + width + px(18);
    };
    const auto as = [&](SlotState state, Cell health, bool read) {
      return [this, state, health, read](Area box) {
        KvSlot slot;
        slot.state = state;
        slot.health = health;
        slot.read = read;
        ground(slot, box);
      };
    };
    entry(as(SlotState::live, kHealthyFirst, false), "healthy");
    entry(as(SlotState::live, kNan, false), "NaN");
    entry(as(SlotState::stale, kHealthyFirst, false), "left behind");
    entry(as(SlotState::shared, kHealthyFirst, false), "shared prefix");
    entry(as(SlotState::live, kHealthyFirst, true), "read by this step");
    entry(as(SlotState::never_written, kAbsent, false), "never written");
    entry(as(SlotState::live, kClipped, false), "clipped");
  }

  const ViewContext& context_;
  const ViewActions& actions_;
  const KvMap& map_;
};

}  // namespace

float cache_map_height(const ViewContext& context, const ViewActions& actions, const KvMap& map, float width) {
  return CacheMap(context, actions, map).wanted(width);
}

void draw_cache_map(const ViewContext& context, const ViewActions& actions, const KvMap& map, Area area) {
  CacheMap(context, actions, map).draw(area);
}

}  // namespace nanscope::gui
