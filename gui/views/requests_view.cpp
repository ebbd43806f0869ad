#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/counted.h"
#include "gui/cell_paint.h"
#include "gui/context_menu.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/requests_sheet.h"
#include "gui/texture.h"
#include "gui/views/registry.h"

/// Who asked what and what came back; below, whose bytes lie in the KV cache.
namespace nanscope::gui {
namespace {

constexpr float kTitles = 24;
constexpr float kRequestLine = 15;
constexpr float kLeastRow = 60;
constexpr float kLeastWords = 40;  ///< width of a prompt's piece that is broken into lines
constexpr float kMostRow = 132;
constexpr float kRequestsWideFrom = 1000;
constexpr float kChipColumn = 66;
constexpr float kTokenHeight = 36;
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

using Thumbnails = std::map<const Image*, std::unique_ptr<Texture>>;

Texture& thumbnail(Thumbnails& held, const Image& image) {
  std::unique_ptr<Texture>& texture = held[&image];
  if (!texture) {
    texture = std::make_unique<Texture>();
    std::vector<std::uint32_t> pixels(image.rgb.size() / 3);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = Color{image.rgb[3 * i], image.rgb[3 * i + 1], image.rgb[3 * i + 2]}.packed();
    }
    if (image.width <= kTextureLimit && image.height <= kTextureLimit) {
      texture->upload(pixels, image.width, image.height);
    }
  }
  return *texture;
}

std::string_view trimmed_text(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

/// The rows of requests.
class RequestList {
 public:
  RequestList(const ViewContext& context, const ViewActions& actions, Thumbnails& thumbnails, Area area)
      : context_(context), actions_(actions), thumbnails_(thumbnails), area_(area) {
    const float room = area.width - px(2 * kMargin);
    const float name = px(area.width >= px(kRequestsWideFrom) ? 220 : 150);
    const float rest = room - name - px(kChipColumn);
    prompt_ = {area.x + px(kMargin) + name, 0, rest * 0.42F, 0};
    answer_ = {prompt_.right() + px(16), 0, rest * 0.58F - px(16), 0};
  }

  /// `bring`: the request that is scrolled to.
  void draw(const RequestRows& rows, std::optional<std::int64_t> bring) {
    titles();
    ImGui::SetCursorScreenPos({area_.x, area_.y + px(kTitles)});
    ImGui::BeginChild("requests", {area_.width, area_.height - px(kTitles)}, false, ImGuiWindowFlags_NoBackground);
    const ImVec2 start = ImGui::GetCursorScreenPos();
    const auto count = static_cast<float>(std::max<std::size_t>(rows.size(), 1));
    const float height = std::clamp((area_.height - px(kTitles)) / count, px(kLeastRow), px(kMostRow));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Area row{start.x, start.y + static_cast<float>(i) * height, area_.width, height};
      if (bring && rows[i].id == *bring) scroll_to(static_cast<float>(i) * height, height);
      if (ImGui::IsRectVisible(row.min(), row.max())) draw_row(rows[i], row);
    }
    ImGui::SetCursorScreenPos({start.x, start.y + static_cast<float>(rows.size()) * height - 1});
    ImGui::Dummy({1, 1});
    ImGui::EndChild();
  }

 private:
  float px(float pixels) const { return pixels * context_.scale; }

  static void scroll_to(float at, float height) {
    const float seen = ImGui::GetWindowHeight();
    if (at < ImGui::GetScrollY() || at + height > ImGui::GetScrollY() + seen) {
      ImGui::SetScrollY(std::max(0.0F, at + height / 2 - seen / 2));
    }
  }

  void titles() const {
    const auto title = [&](float x, float width, std::string_view words) {
      label(context_.fonts.small, {x, area_.y, width, px(kTitles)}, context_.theme.muted, words);
    };
    title(area_.x + px(kMargin), px(140), "request");
    title(prompt_.x, prompt_.width, "prompt");
    const std::string_view answer = "answer, each token with its id";
    title(answer_.x, answer_.width, text_size(context_.fonts.small, answer).x <= answer_.width ? answer : "answer");
    fill({area_.x + px(kMargin), area_.y + px(kTitles) - 1, area_.width - px(2 * kMargin), 1}, context_.theme.line);
  }

  void draw_row(const RequestSheetRow& request, Area row) {
    const bool chosen = context_.selection.place.request == request.id;
    const Area card = row.inset(px(6), px(2));
    ImGui::SetCursorScreenPos(card.min());
    ImGui::PushID(static_cast<int>(request.id));
    ImGui::SetItemAllowOverlap();
    const bool clicked = ImGui::InvisibleButton("request", {card.width, card.height});
    ImGui::SetItemAllowOverlap();
    const bool pointed = ImGui::IsItemHovered();
    if (asked_for_menu()) menu(request.id, 0, request.name);
    if (chosen || pointed) fill(card, chosen ? context_.theme.raised : context_.theme.raised.alpha(140), px(6));
    if (chosen) fill({card.x, card.y + px(8), px(3), card.height - px(16)}, context_.theme.accent, px(1.5F));
    name(request, row);
    prompt(request, row);
    const bool token_clicked = answer(request, row);
    health(request, row);
    ImGui::PopID();
    if (clicked && !token_clicked) choose(request.id, 0);
  }

  void choose(std::int64_t request, std::int64_t step) {
    if (std::optional<Selection> target = step_of(request, step)) actions_.choose(std::move(*target));
  }

  void menu(std::int64_t request, std::int64_t step, const std::string& words) {
    if (std::optional<Selection> target = step_of(request, step)) actions_.menu({std::move(*target), words});
  }

  /// The selected op in that step, else the first one.
  std::optional<Selection> step_of(std::int64_t request, std::int64_t step) const {
    const MapStep* at = context_.map ? context_.map->find_step(request, step) : nullptr;
    if (at == nullptr) return std::nullopt;
    Selection target;
    target.place = context_.selection.place;
    target.place.request = request;
    target.place.step = step;
    target.place.token.reset();
    target.place.channel.reset();
    if (!context_.map->find_op(target.place)) target.place = context_.map->place_of_op(at->first_op, *at);
    return target;
  }

  void name(const RequestSheetRow& request, Area row) const {
    std::vector<std::string> facts{counted(request.text_tokens + request.image_tokens, "token")};
    if (request.image_tokens > 0) facts[0] += fmt::format(", {} of images", request.image_tokens);
    if (request.cached_tokens > 0) facts.push_back(fmt::format("{} from the prefix cache", request.cached_tokens));
    const float height = px(18) + static_cast<float>(facts.size()) * px(kRequestLine);
    const float x = row.x + px(kMargin);
    const float width = prompt_.x - x - px(14);
    float y = row.y + (row.height - height) / 2;
    label(context_.fonts.text, {x, y, width, px(18)}, context_.theme.text, printable(request.name));
    y += px(18);
    for (const std::string& fact : facts) {
      label(context_.fonts.small, {x, y, width, px(kRequestLine)}, context_.theme.muted, fact);
      y += px(kRequestLine);
    }
  }

  /// Pictures keep their shape; what is left of the width is shared by the texts, by their length.
  void prompt(const RequestSheetRow& request, Area row) {
    if (request.prompt.empty() && request.dumped) {
      label(context_.fonts.small, {prompt_.x, row.y, prompt_.width, row.height}, context_.theme.muted, "not dumped");
    }
    const float high = row.height - px(16);
    float pictures = 0;
    std::size_t letters = 0;
    for (const PromptPiece& piece : request.prompt) {
      if (piece.image) {
        pictures += picture_width(piece, high) + px(10);
      } else {
        letters += piece.text.size();
      }
    }
    const float room = std::max(0.0F, prompt_.width - pictures);
    float x = prompt_.x;
    for (const PromptPiece& piece : request.prompt) {
      if (piece.image) {
        picture(piece, {x, row.y + px(8), picture_width(piece, high), high});
        x += picture_width(piece, high) + px(10);
        continue;
      }
      const float share = letters == 0 ? 0 : static_cast<float>(piece.text.size()) / static_cast<float>(letters);
      const float width = std::min(std::max(room * share, std::min(room, px(56))), prompt_.right() - x);
      x += words(printable(trimmed_text(piece.text)), {x, row.y, width - px(10), row.height}) + px(10);
    }
  }

  /// Answers the width that was needed.
  float words(std::string_view said, Area box) const {
    const int most = std::max(1, static_cast<int>((box.height - px(10)) / px(kRequestLine)));
    std::vector<std::string> lines{std::string(said)};  // cut: words broken after two letters would say less
    if (box.width >= px(kLeastWords)) lines = wrap(context_.fonts.small, said, box.width, most);
    float y = box.y + (box.height - static_cast<float>(lines.size()) * px(kRequestLine)) / 2;
    float used = 0;
    for (const std::string& line : lines) {
      label(context_.fonts.small, {box.x, y, box.width + 1, px(kRequestLine)}, context_.theme.text, line);
      used = std::max(used, std::min(text_size(context_.fonts.small, line).x, box.width));
      y += px(kRequestLine);
    }
    return used;
  }

  static float picture_width(const PromptPiece& piece, float height) {
    if (!piece.picture || piece.picture->height <= 0) return height;
    const float shape = static_cast<float>(piece.picture->width) / static_cast<float>(piece.picture->height);
    return height * std::clamp(shape, 0.25F, 3.0F);
  }

  void picture(const PromptPiece& piece, Area box) {
    if (piece.picture) {
      const Texture& texture = thumbnail(thumbnails_, *piece.picture);
      if (!texture.empty()) ImGui::GetWindowDrawList()->AddImage(texture.id(), box.min(), box.max());
    } else {
      fill(box, context_.theme.raised, px(4));
      label(context_.fonts.small, box, context_.theme.muted, "no image", 0.5F);
    }
    outline(box, context_.theme.line);
    if (ImGui::IsWindowHovered() && box.holds(ImGui::GetIO().MousePos)) {
      std::vector<std::string> lines{"cannot be decoded"};
      if (piece.picture) lines[0] = fmt::format("{} \u00D7 {} pixels", piece.picture->width, piece.picture->height);
      tooltip(context_, printable(piece.text), lines);
    }
  }

  /// Boxes of tokens, in as many lines as fit. Answers whether one was clicked.
  bool answer(const RequestSheetRow& request, Area row) {
    if (request.output.empty()) {
      label(context_.fonts.small, {answer_.x, row.y, answer_.width, row.height}, context_.theme.muted,
            request.dumped ? "not dumped" : "no answer");
      return false;
    }
    const float pitch = px(kTokenHeight + 4);
    const auto most = static_cast<std::size_t>(std::max(1.0F, row.height / pitch));
    std::vector<float> widths;
    for (const OutputToken& token : request.output) widths.push_back(token_width(token));
    std::size_t lines = 1;
    float across = 0;
    for (const float width : widths) {
      if (across > 0 && across + width > answer_.width) {
        ++lines;
        across = 0;
      }
      across += width + px(4);
    }
    const auto shown = static_cast<float>(std::min(lines, most));
    float x = answer_.x;
    float y = row.y + (row.height - shown * pitch + px(4)) / 2;
    std::size_t line_number = 1;
    for (std::size_t i = 0; i < request.output.size(); ++i) {
      const bool last_line = line_number == most;
      const float reserve = last_line && i + 1 < request.output.size() ? px(30) : 0;
      if (x > answer_.x && x + widths[i] + reserve > answer_.right()) {
        if (last_line) {
          label(context_.fonts.small, {x, y, answer_.right() - x, px(kTokenHeight)}, context_.theme.muted,
                fmt::format("+{}", request.output.size() - i));
          return false;
        }
        ++line_number;
        x = answer_.x;
        y += pitch;
      }
      if (token(request, i, {x, y, widths[i], px(kTokenHeight)})) return true;
      x += widths[i] + px(4);
    }
    return false;
  }

  /// Without the space that most begin with; the tooltip has it. Of a dump only the id is known.
  static std::string shown_text(const OutputToken& token) {
    if (token.text.empty()) return {};
    const std::string text = printable(trimmed_text(token.text));
    return text.empty() ? std::string("\u00B7") : text;
  }

  float token_width(const OutputToken& token) const {
    const float said = text_size(context_.fonts.mono, shown_text(token)).x;
    const float id = text_size(context_.fonts.mono_small, std::to_string(token.id)).x;
    return std::min(std::max({said, id, px(14)}) + px(10), answer_.width);
  }

  bool token(const RequestSheetRow& request, std::size_t index, Area box) {
    const OutputToken& token = request.output[index];
    const Theme& theme = context_.theme;
    const Place& place = context_.selection.place;
    const bool here = place.request == request.id && place.step == static_cast<std::int64_t>(index);
    fill(box, token.artefact ? theme.cell(kNan) : here ? theme.panel : theme.raised, px(4));
    if (token.artefact) fill_cell(theme, context_.fonts, {box.x, box.bottom() - px(4), box.width, px(4)}, kNan);
    if (!token.artefact) outline(box, theme.line, 1, px(4));
    if (here) outline(box.inset(-px(1)), theme.text, px(1.5F), px(4));
    const Color ink = token.artefact ? theme.on_bad : theme.text;
    label(context_.fonts.mono, {box.x, box.y + px(1), box.width, px(20)}, ink, shown_text(token), 0.5F);
    const Area id = token.text.empty() ? box : Area{box.x, box.y + px(19), box.width, px(14)};
    label(context_.fonts.mono_small, id, token.artefact ? theme.on_bad : theme.muted, std::to_string(token.id), 0.5F);
    ImGui::SetCursorScreenPos(box.min());
    ImGui::PushID(static_cast<int>(index));
    const bool clicked = ImGui::InvisibleButton("token", {box.width, box.height});
    ImGui::PopID();
    if (asked_for_menu()) menu(request.id, static_cast<std::int64_t>(index), token.text);
    if (ImGui::IsItemHovered()) {
      ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
      std::vector<std::string> lines{fmt::format("id {}, chosen in step {}", token.id, index)};
      if (token.artefact) lines.emplace_back("the logits are NaN: 0 is what argmax answers when nothing compares");
      tooltip(context_, token.text.empty() ? std::string("token") : in_quotes(token.text), lines);
    }
    if (clicked) choose(request.id, static_cast<std::int64_t>(index));
    return clicked;
  }

  void health(const RequestSheetRow& request, Area row) const {
    const MapRequest* known = context_.map ? context_.map->request(request.id) : nullptr;
    if (known == nullptr) return;
    const bool bad = known->worst >= kClipped;
    const float height = px(18);
    chip_left_of(context_, row.right() - px(kMargin), row.y + (row.height - height) / 2, height,
                 bad ? cell_name(known->worst) : "ok", bad ? context_.theme.cell(known->worst) : context_.theme.raised,
                 bad ? ink_on(context_.theme, known->worst) : context_.theme.muted);
  }

  const ViewContext& context_;
  const ViewActions& actions_;
  Thumbnails& thumbnails_;
  Area area_;
  Area prompt_;  ///< the columns: x and width
  Area answer_;
};

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

class RequestsView final : public View {
 public:
  std::string_view name() const override { return "requests"; }
  std::string_view title() const override { return "Requests"; }
  std::string_view caption() const override { return "what was asked and answered, and who wrote the KV cache"; }
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    return table_maker<RequestsSheet>(prepared);
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area) override {
    Place place;
    place.request = context.selection.place.request;
    place.step = context.selection.place.step;
    return ViewRequest{to_string(place),
                       [place, rows = rows_](RunFacts& facts) { return prepare_requests(facts, place, rows); }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    const auto& sheet = static_cast<const RequestsSheet&>(*prepared);
    rows_ = sheet.requests;
    if (rows_->empty()) {
      notice(context, area, "No requests", "This recording holds no request yet.");
      return;
    }
    CacheMap map(context, actions, sheet.kv);
    const float least = (kTitles + kLeastRow * 2) * context.scale;
    const float most = (kTitles + kMostRow * static_cast<float>(rows_->size()) + 8) * context.scale;
    const float below =
        std::clamp(map.wanted(area.width), area.height - most, std::max(area.height * 0.55F, area.height - most));
    const float split = std::max(least, area.height - below);
    const std::optional<std::int64_t> chosen = context.selection.place.request;
    const bool moved = std::exchange(brought_, chosen) != chosen;
    RequestList(context, actions, thumbnails_, {area.x, area.y, area.width, split})
        .draw(*rows_, moved ? chosen : std::nullopt);
    map.draw({area.x, area.y + split, area.width, area.height - split});
  }

 private:
  std::shared_ptr<const RequestRows> rows_;
  Thumbnails thumbnails_;
  std::optional<std::int64_t> brought_;  ///< the request that was last brought into view
};

}  // namespace

std::unique_ptr<View> make_requests_view() { return std::make_unique<RequestsView>(); }

}  // namespace nanscope::gui
