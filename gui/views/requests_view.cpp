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
#include "gui/views/cache_map.h"
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
    const float least = (kTitles + kLeastRow * 2) * context.scale;
    const float most = (kTitles + kMostRow * static_cast<float>(rows_->size()) + 8) * context.scale;
    const float below = std::clamp(cache_map_height(context, actions, sheet.kv, area.width), area.height - most,
                                   std::max(area.height * 0.55F, area.height - most));
    const float split = std::max(least, area.height - below);
    const std::optional<std::int64_t> chosen = context.selection.place.request;
    const bool moved = std::exchange(brought_, chosen) != chosen;
    RequestList(context, actions, thumbnails_, {area.x, area.y, area.width, split})
        .draw(*rows_, moved ? chosen : std::nullopt);
    draw_cache_map(context, actions, sheet.kv, {area.x, area.y + split, area.width, area.height - split});
  }

 private:
  std::shared_ptr<const RequestRows> rows_;
  Thumbnails thumbnails_;
  std::optional<std::int64_t> brought_;  ///< the request that was last brought into view
};

}  // namespace

std::unique_ptr<View> make_requests_view() { return std::make_unique<RequestsView>(); }

}  // namespace nanscope::gui
