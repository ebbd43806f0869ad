#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/counted.h"
#include "gui/cell_paint.h"
#include "gui/context_menu.h"
#include "gui/drawn.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/tensor_list.h"
#include "gui/views/registry.h"

/// Every tensor of the run in a list that is searched, filtered and sorted.
namespace nanscope::gui {
namespace {

constexpr float kTensorRow = 21;
constexpr float kFieldHeight = 28;
constexpr float kFieldWidth = 380;
constexpr float kLeastField = 200;
constexpr float kChipLine = 26;
constexpr float kHintLine = 18;
constexpr float kTitleLine = 22;
constexpr float kLeastPlace = 150;
constexpr float kGoodPlace = 250;
constexpr float kListSwatch = 9;
constexpr float kColumnGap = 12;
constexpr float kSortMark = 9;

/// A column after the place, and when it goes: where there is no room, the largest number first.
struct ListColumn {
  TensorColumn column;
  float width;
  float align;
  int goes;
};
constexpr ListColumn kListColumns[] = {
    {TensorColumn::layer, 46, 1, 9},    {TensorColumn::role, 84, 0, 10},   {TensorColumn::format, 74, 0, 5},
    {TensorColumn::shape, 108, 1, 7},   {TensorColumn::nan, 52, 1, 1},     {TensorColumn::inf, 52, 1, 4},
    {TensorColumn::clipped, 64, 1, 3},  {TensorColumn::largest, 84, 1, 8}, {TensorColumn::absmax, 82, 1, 2},
    {TensorColumn::headroom, 82, 1, 0},
};
constexpr std::string_view kKindWords[] = {"NaN", "Inf", "clipped", "low headroom"};
constexpr std::string_view kQueryHint =
    "Words of the place, and: nan inf clipped low layer:3 role:out dtype:bf16 headroom<4 absmax>100 request:2 step:0";

/// What is drawn.
struct TensorListing final : Prepared {
  std::shared_ptr<const TensorList> list;
  std::string query;
  std::optional<ListedTensor> chosen;
};

Cell ground_of(const TensorIndex& index, std::size_t tensor, TensorColumn column) {
  const TensorCounts& counts = index.counts_of(tensor);
  const double headroom = index.headroom[tensor];
  switch (column) {
    case TensorColumn::nan:
      return counts.nan > 0 ? kNan : kAbsent;
    case TensorColumn::inf:
      return counts.inf > 0 ? kInf : kAbsent;
    case TensorColumn::clipped:
      return counts.clipped + counts.clipped_rows > 0 ? kClipped : kAbsent;
    case TensorColumn::headroom:
      if (!is_of_kind(index, tensor, TensorKind::low)) return kAbsent;
      return headroom < 1 ? kClipped : kLowHeadroom;
    default:
      return kAbsent;
  }
}

/// Where the columns stand in a list of some width.
class ListLayout {
 public:
  ListLayout(float width, float scale) {
    const float room = width - (kListSwatch + kColumnGap + kMargin) * scale;
    std::vector<const ListColumn*> by_need;
    for (const ListColumn& column : kListColumns) by_need.push_back(&column);
    std::sort(by_need.begin(), by_need.end(), [](const auto* a, const auto* b) { return a->goes < b->goes; });
    float taken = std::min(std::clamp(room * 0.5F, kLeastPlace * scale, kGoodPlace * scale), room);
    std::size_t kept = 0;
    while (kept < by_need.size() && taken + (by_need[kept]->width + kColumnGap) * scale <= room) {
      taken += (by_need[kept]->width + kColumnGap) * scale;
      ++kept;
    }
    float right = width - kMargin * scale / 2;
    for (std::size_t i = std::size(kListColumns); i-- > 0;) {
      const ListColumn& column = kListColumns[i];
      if (std::find(by_need.begin(), by_need.begin() + static_cast<std::ptrdiff_t>(kept), &column) ==
          by_need.begin() + static_cast<std::ptrdiff_t>(kept)) {
        continue;
      }
      right -= column.width * scale;
      at_.push_back({&column, right, column.width * scale});
      right -= kColumnGap * scale;
    }
    place_ = {(kListSwatch + kColumnGap) * scale, 0, right - (kListSwatch + kColumnGap) * scale, 0};
  }

  struct At {
    const ListColumn* column;
    float x;
    float width;
  };
  const std::vector<At>& columns() const { return at_; }
  Area place() const { return place_; }

 private:
  std::vector<At> at_;
  Area place_;  ///< x and width
};

class TensorsView final : public View {
 public:
  std::string_view name() const override { return "tensors"; }
  std::string_view title() const override { return "Tensors"; }
  std::string_view caption() const override { return "every tensor of the run, the worst first"; }

  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    const auto* listing = dynamic_cast<const TensorListing*>(prepared.get());
    if (listing == nullptr) return std::nullopt;
    return [list = listing->list] { return table_of(*list); };
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area) override {
    Place place = context.selection.place;
    place.token.reset();
    place.channel.reset();
    // Of a dump, what casts clipped is known once the map is exact.
    const bool exact = known_ && known_->list->index->of_dump && context.map && context.map->exact;
    std::string key =
        fmt::format("{} {} {} {} {}", static_cast<int>(order_.by), order_.reversed, exact, to_string(place), query_);
    return ViewRequest{std::move(key),
                       [query = query_, order = order_, place = std::move(place), known = known_](RunFacts& facts)
                           -> Result<PreparedPtr> { return answer(facts, query, order, place, known.get()); }};
  }

  void filter(const std::string& query) override {
    typed_ = query;
    take_typed();
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    known_ = std::static_pointer_cast<const TensorListing>(prepared);
    const TensorList& list = *known_->list;
    if (list.index->size() == 0) {
      notice(context, area, "There are no tensors", "Nothing was recorded of this run.");
      return;
    }
    const float scale = context.scale;
    Area rest = area.inset(kMargin * scale, 0);
    const float head = draw_head(context, {rest.x, rest.y + 10 * scale, rest.width, 0}) + 10 * scale;
    rest = {rest.x, rest.y + head, rest.width, rest.height - head};
    const ListLayout layout(rest.width, scale);
    draw_titles(context, layout, {rest.x, rest.y, rest.width, kTitleLine * scale});
    const float top = rest.y + kTitleLine * scale;
    fill({rest.x, top, rest.width, 1}, context.theme.line);
    const Area rows{rest.x, top + 1, rest.width, area.bottom() - top - 1};
    if (list.shown.empty()) {
      notice(context, rows, "No tensor is like that", "Of all tensors of the run none has what the field asks for.");
      return;
    }
    ImGui::SetCursorScreenPos(rows.min());
    ImGui::BeginChild("tensors", {rows.width, rows.height}, false, ImGuiWindowFlags_NoBackground);
    draw_rows(context, actions, layout, rows);
    ImGui::EndChild();
  }

 private:
  /// The list is made again where something else is asked for; the selection is but looked up in it.
  static Result<PreparedPtr> answer(RunFacts& facts, const std::string& text, TensorOrder order, const Place& place,
                                    const TensorListing* known) {
    const Result<std::shared_ptr<const TensorIndex>> index = facts.tensor_index();
    if (!index) return tl::unexpected(index.error());
    auto listing = std::make_shared<TensorListing>();
    listing->query = text;
    if (known != nullptr && known->query == text && known->list->order == order && known->list->index == *index) {
      listing->list = known->list;
    } else {
      const Result<TensorQuery> query = parse_tensor_query(text);
      if (!query) return tl::unexpected(query.error());
      listing->list = std::make_shared<const TensorList>(make_tensor_list(*index, *query, order));
    }
    listing->chosen = find_in(*listing->list, facts.view(), place);
    return listing;
  }

  /// What was typed, once it is understood.
  void take_typed() {
    const Result<TensorQuery> query = parse_tensor_query(typed_);
    error_ = query ? std::string() : query.error().message;
    if (query) query_ = typed_;
  }

  /// Answers its height.
  float draw_head(const ViewContext& context, Area area) {
    const TensorList& list = *known_->list;
    const float scale = context.scale;
    const std::string count = fmt::format("{} of {}", list.shown.size(), counted(list.index->size(), "tensor"));
    const float counted_width = text_size(context.fonts.text, count).x + 1;
    const float field = std::clamp(area.width - counted_width - 16 * scale, kLeastField * scale, kFieldWidth * scale);
    draw_field(context, {area.x, area.y, field, kFieldHeight * scale});
    label(context.fonts.text,
          {area.x + field + 12 * scale, area.y, area.width - field - 12 * scale, kFieldHeight * scale},
          context.theme.text, count, 1);
    float y = area.y + (kFieldHeight + 2) * scale;
    const Color said = error_.empty() ? context.theme.muted : context.theme.ink(context.theme.dark ? kClipped : kNan);
    label(context.fonts.small, {area.x, y, area.width, kHintLine * scale}, said,
          error_.empty() ? std::string(kQueryHint) : printable(error_) + ". The list is as before.");
    y += (kHintLine + 4) * scale;
    y += draw_chips(context, {area.x, y, area.width, kChipLine * scale});
    return y - area.y;
  }

  void draw_field(const ViewContext& context, Area area) {
    const float scale = context.scale;
    ImGui::SetCursorScreenPos(area.min());
    ImGui::PushFont(context.fonts.text);
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding,
                        ImVec2(10 * scale, (area.height - context.fonts.text->FontSize) / 2));
    ImGui::SetNextItemWidth(area.width);
    if (ImGui::InputTextWithHint("##find", "find tensors", &typed_)) take_typed();
    tell_item(area, "find tensors");
    ImGui::PopStyleVar();
    ImGui::PopFont();
  }

  /// Answers their height: what does not fit on a line goes on in another.
  float draw_chips(const ViewContext& context, Area area) {
    const float scale = context.scale;
    float x = area.x;
    float y = area.y;
    const auto chip_at = [&](const std::string& words, bool on) {
      const float width = chip_width(context, words);
      if (x > area.x && x + width > area.right()) {
        x = area.x;
        y += kChipLine * scale;
      }
      const Area box{x, y, width, 21 * scale};
      x += width + 6 * scale;
      return chip_button(context, box, words, on);
    };
    if (chip_at("worst first", order_ == TensorOrder{})) order_ = {};
    if (chip_at("in the order of the run", order_ == TensorOrder{TensorColumn::place, false})) {
      order_ = {TensorColumn::place, false};
    }
    x += 12 * scale;
    const Result<TensorQuery> query = parse_tensor_query(query_);
    for (std::size_t i = 0; i < kTensorKinds.size(); ++i) {
      const std::string words = fmt::format("{} {}", kKindWords[i], known_->list->of_kind[i]);
      if (!chip_at(words, query && query->kinds[i])) continue;
      typed_ = toggled(query_, static_cast<TensorKind>(i));
      take_typed();
    }
    return y + kChipLine * scale - area.y;
  }

  void draw_titles(const ViewContext& context, const ListLayout& layout, Area area) {
    const Area place = layout.place();
    title(context, TensorColumn::place, {area.x + place.x, area.y, place.width, area.height}, 0);
    for (const ListLayout::At& at : layout.columns()) {
      title(context, at.column->column, {area.x + at.x, area.y, at.width, area.height}, at.column->align);
    }
  }

  void title(const ViewContext& context, TensorColumn column, Area area, float align) {
    const float scale = context.scale;
    ImGui::SetCursorScreenPos(area.min());
    ImGui::PushID(static_cast<int>(column));
    const bool clicked = ImGui::InvisibleButton("title", {area.width, area.height});
    ImGui::PopID();
    const bool pointed = ImGui::IsItemHovered();
    if (pointed) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    const bool sorted = order_.by == column;
    const std::string_view words = column_title(column);
    const float width = std::min(text_size(context.fonts.small, words).x + 1, area.width);
    const float mark = sorted ? kSortMark * scale : 0;
    const float x = align > 0 ? area.right() - width : area.x;
    label(context.fonts.small, {x, area.y, width, area.height},
          sorted || pointed ? context.theme.text : context.theme.muted, words);
    if (sorted) draw_sort_mark(context, align > 0 ? x - mark : x + width + 3 * scale, area);
    explain(context, area, std::string(column_title(column)), number_meaning(column_title(column)));
    if (clicked) order_ = {column, sorted && !order_.reversed};
  }

  void draw_sort_mark(const ViewContext& context, float x, Area area) const {
    const float size = 5 * context.scale;
    const float y = std::floor(area.y + area.height / 2);
    const float up = order_.reversed ? 1.0F : -1.0F;
    ImGui::GetWindowDrawList()->AddTriangleFilled({x, y + up * size / 2}, {x + size, y + up * size / 2},
                                                  {x + size / 2, y - up * size / 2}, context.theme.accent.packed());
  }

  void draw_rows(const ViewContext& context, const ViewActions& actions, const ListLayout& layout, Area area) {
    const TensorList& list = *known_->list;
    const auto height = static_cast<double>(std::floor(kTensorRow * context.scale));
    follow(height);
    // In double: a float cannot tell the rows of a long list apart.
    const auto scrolled = static_cast<double>(ImGui::GetScrollY());
    const auto first = static_cast<std::size_t>(std::max(0.0, scrolled / height));
    const auto seen = static_cast<std::size_t>(static_cast<double>(area.height) / height) + 2;
    const std::size_t last = std::min(list.shown.size(), first + seen);
    for (std::size_t row = first; row < last; ++row) {
      const auto y = static_cast<float>(static_cast<double>(row) * height - scrolled);
      draw_row(context, actions, layout, list.shown[row], {area.x, area.y + y, area.width, static_cast<float>(height)});
    }
    const double end = static_cast<double>(list.shown.size()) * height;
    ImGui::SetCursorPosY(static_cast<float>(end));
    ImGui::Dummy({1, 1});
  }

  /// Scrolls to a tensor that was chosen elsewhere.
  void follow(double height) {
    const TensorOrder& order = known_->list->order;
    if (order != drawn_order_ || known_->query != drawn_query_) {
      // Another list begins at its top; in the order of the run, what is around the selected one is of interest.
      if (!std::exchange(drawn_any_, true) || order.by == TensorColumn::place) {
        followed_.reset();
      } else {
        ImGui::SetScrollY(0);
      }
      drawn_order_ = order;
      drawn_query_ = known_->query;
    }
    const std::optional<ListedTensor>& chosen = known_->chosen;
    const std::optional<std::size_t> tensor = chosen ? std::optional(chosen->tensor) : std::nullopt;
    if (tensor == followed_) return;
    followed_ = tensor;
    if (!chosen || !chosen->at) return;
    const double at = static_cast<double>(*chosen->at) * height;
    const auto top = static_cast<double>(ImGui::GetScrollY());
    const auto room = static_cast<double>(ImGui::GetWindowHeight());
    if (at >= top && at + height <= top + room) return;
    ImGui::SetScrollY(static_cast<float>(std::max(0.0, at - room / 2)));
  }

  void draw_row(const ViewContext& context, const ViewActions& actions, const ListLayout& layout, std::size_t tensor,
                Area area) {
    const TensorList& list = *known_->list;
    const TensorIndex& index = *list.index;
    const Theme& theme = context.theme;
    const float scale = context.scale;
    ImGui::SetCursorScreenPos(area.min());
    ImGui::PushID(static_cast<int>(tensor));
    const bool clicked = ImGui::InvisibleButton("tensor", {area.width, area.height});
    ImGui::PopID();
    const bool pointed = ImGui::IsItemHovered();
    const bool asked = asked_for_menu();
    const bool chosen = known_->chosen && known_->chosen->tensor == tensor;
    if (chosen || pointed) fill(area, chosen ? theme.raised : theme.raised.alpha(140), 4 * scale);
    if (chosen) fill({area.x, area.y, 3 * scale, area.height}, theme.accent, 1.5F * scale);
    const float swatch = kListSwatch * scale;
    const Area square{area.x + 6 * scale, area.y + (area.height - swatch) / 2, swatch, swatch};
    fill_cell(theme, context.fonts, square, index.cell[tensor], 2 * scale);
    const Area place = layout.place();
    label(context.fonts.mono_small, {area.x + place.x + 4 * scale, area.y, place.width - 4 * scale, area.height},
          theme.text, printable(list.text(tensor, TensorColumn::place)));
    for (const ListLayout::At& at : layout.columns()) {
      draw_cell(context, list, tensor, *at.column, {area.x + at.x, area.y, at.width, area.height});
    }
    if (pointed) {
      ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
      actions.hint(fmt::format("{}; go to {}", cell_name(index.cell[tensor]), to_string(index.place(tensor))));
    }
    if (asked) actions.menu(menu_of(list, tensor));
    if (!clicked) return;
    followed_ = tensor;  // it is in sight
    actions.choose({index.place(tensor), {}});
  }

  static MenuTarget menu_of(const TensorList& list, std::size_t tensor) {
    const TensorIndex& index = *list.index;
    MenuTarget target{{index.place(tensor), {}}, fmt::format("{:.9g}", double{index.magnitude[tensor]})};
    target.row = list.text(tensor, TensorColumn::place);
    for (const ListColumn& column : kListColumns) target.row += "," + list.text(tensor, column.column);
    return target;
  }

  static void draw_cell(const ViewContext& context, const TensorList& list, std::size_t tensor,
                        const ListColumn& column, Area box) {
    const std::string words = printable(list.text(tensor, column.column));
    if (words.empty()) return;
    const float scale = context.scale;
    const Cell ground = ground_of(*list.index, tensor, column.column);
    if (ground != kAbsent) {
      const float wide = std::min(text_size(context.fonts.mono_small, words).x, box.width) + 10 * scale;
      fill({box.right() - wide + 5 * scale, box.y + 2 * scale, wide, box.height - 4 * scale},
           context.theme.cell(ground), 3 * scale);
    }
    label(context.fonts.mono_small, box, ground != kAbsent ? ink_on(context.theme, ground) : context.theme.text, words,
          column.align);
  }

  std::shared_ptr<const TensorListing> known_;  ///< that is drawn
  std::string typed_;
  std::string query_;  ///< that was understood last
  std::string error_;  ///< of what is typed
  TensorOrder order_;
  std::optional<std::size_t> followed_;
  bool drawn_any_ = false;
  TensorOrder drawn_order_;  ///< of the list that was drawn last
  std::string drawn_query_;
};

}  // namespace

std::unique_ptr<View> make_tensors_view() { return std::make_unique<TensorsView>(); }

}  // namespace nanscope::gui
