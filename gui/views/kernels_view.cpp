#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "gui/cell_paint.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/timeline.h"
#include "gui/views/registry.h"

/// Kernels: what ran when, a lane a kind of op; counts where no times were recorded.
namespace nanscope::gui {
namespace {

constexpr float kTitle = 32;  ///< heights in the head
constexpr float kWordLine = 16;
constexpr float kCommandLine = 20;
constexpr float kTickLine = 24;
constexpr int kMostWords = 4;
constexpr float kLane = 26;
constexpr float kBar = 14;
constexpr float kNames = 150;
constexpr float kNumbers = 244;
constexpr float kCounts = 154;   ///< of ops alone
constexpr float kLeastPart = 3;  ///< pixels of a part that would be too thin to see
constexpr float kTickRoom = 90;
constexpr int kMostTicks = 5;

/// The lanes while they are drawn downwards.
class TimelineChart {
 public:
  TimelineChart(const ViewContext& context, const ViewActions& actions, Area area, const Timeline& timeline)
      : context_(context), actions_(actions), timeline_(timeline), area_(area), y_(area.y) {}

  float y() const { return y_; }

  void lane(const TimelineLane& lane, std::int64_t most) {
    const Area row{area_.x + px(6), y_, area_.width - px(12), px(kLane)};
    const bool pointed = ImGui::IsWindowHovered() && row.holds(ImGui::GetIO().MousePos);
    if (pointed) fill(row, context_.theme.raised.alpha(140), px(5));
    label(context_.fonts.mono_small, {area_.x + px(kMargin), y_, px(kNames) - px(12), px(kLane)}, context_.theme.text,
          printable(lane.kind));
    std::int64_t op = lane.first_bad > 0 ? lane.first_bad : lane.first_op;
    if (timeline_.kernels > 0) {
      if (const TimelineBar* bar = bars(lane)) op = bar->op;
      numbers(counted(lane.kernels, lane.ops > 0 ? "kernel" : "record"), duration_text(lane.busy_ns), lane);
    } else {
      counts(lane, most);
      numbers("", counted(lane.ops, "op"), lane);
    }
    if (pointed) point(lane, op);
    y_ += px(kLane);
  }

 private:
  float px(float pixels) const { return pixels * context_.scale; }
  Area track() const {
    const float x = area_.x + px(kMargin + kNames);
    const float numbers = timeline_.kernels > 0 ? kNumbers : kCounts;
    return {x, y_ + px(kLane - kBar) / 2, area_.right() - px(kMargin + numbers) - x, px(kBar)};
  }

  /// How many ops there were, those with a NaN or an Inf as the part at the right.
  void counts(const TimelineLane& lane, std::int64_t most) const {
    const Area whole = track();
    const auto part = [most](std::int64_t ops) { return static_cast<float>(ops) / static_cast<float>(most); };
    const float width = std::max(whole.width * part(lane.ops), px(kLeastPart));
    fill({whole.x, whole.y, width, whole.height}, context_.theme.cell(kHealthyFirst + kHealthySteps * 2 / 3), px(2));
    if (lane.bad_ops == 0) return;
    const float bad = std::clamp(whole.width * part(lane.bad_ops), std::min(px(kLeastPart), width), width);
    fill_cell(context_.theme, context_.fonts, {whole.x + width - bad, whole.y, bad, whole.height}, kNan, px(2));
  }

  /// The bar that is pointed at.
  const TimelineBar* bars(const TimelineLane& lane) const {
    const Area whole = track();
    fill({whole.x, whole.y + whole.height / 2, whole.width, 1}, context_.theme.line);
    const float pitch = whole.width / static_cast<float>(timeline_.columns);
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    const TimelineBar* hit = nullptr;
    for (const TimelineBar& bar : lane.bars) {
      const float left = whole.x + static_cast<float>(bar.first) * pitch;
      const Area box{left, whole.y, std::max(static_cast<float>(bar.last - bar.first + 1) * pitch, 1.0F), whole.height};
      fill_cell(context_.theme, context_.fonts, box, bar.bad ? kNan : kHealthyFirst + kHealthySteps * 2 / 3, px(1));
      if (ImGui::IsWindowHovered() && box.holds(mouse)) hit = &bar;
    }
    if (hit != nullptr) {
      tooltip(context_, printable(hit->name),
              {fmt::format("{}, {} together", counted(hit->kernels, "kernel"), duration_text(hit->busy_ns))});
    }
    return hit;
  }

  void numbers(const std::string& count, const std::string& amount, const TimelineLane& lane) const {
    const float right = area_.right() - px(kMargin);
    const auto write = [&](float from, float width, Color ink, const std::string& words) {
      label(context_.fonts.mono_small, {right - px(from), y_, px(width), px(kLane)}, ink, words, 1);
    };
    write(232, 90, context_.theme.muted, count);
    write(142, 68, context_.theme.text, amount);
    if (lane.bad_ops > 0) write(66, 66, context_.theme.ink(kNan), fmt::format("{} bad", lane.bad_ops));
  }

  void point(const TimelineLane& lane, std::int64_t op) const {
    if (!context_.map) return;
    const auto& ops = context_.map->ops;
    const auto at =
        std::lower_bound(ops.begin(), ops.end(), op, [](const MapOp& one, std::int64_t id) { return one.id < id; });
    if (at == ops.end() || at->id != op) return;
    const Place place = context_.map->place_of_op(static_cast<std::size_t>(at - ops.begin()));
    ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    actions_.hint(fmt::format("{}: {}, {} with a NaN or an Inf; go to {}", lane.kind, counted(lane.ops, "op"),
                              lane.bad_ops, to_string(place)));
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) actions_.choose({place, {}});
    if (ImGui::IsMouseReleased(ImGuiMouseButton_Right)) actions_.menu({{place, {}}});
  }

  const ViewContext& context_;
  const ViewActions& actions_;
  const Timeline& timeline_;
  Area area_;
  float y_;
};

class KernelsView final : public View {
 public:
  std::string_view name() const override { return "kernels"; }
  std::string_view title() const override { return "Kernels"; }
  std::string_view caption() const override { return "what ran when, by kind of op"; }
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    return table_maker<Timeline>(prepared);
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area area) override {
    const float track = area.width - (2 * kMargin + kNames + kNumbers) * context.scale;
    const auto columns = static_cast<std::int64_t>(std::max(track, 64.0F));
    return ViewRequest{std::to_string(columns), [columns](RunFacts& facts) -> Result<PreparedPtr> {
                         Result<Timeline> timeline = make_timeline(facts, columns);
                         if (!timeline) return tl::unexpected(timeline.error());
                         return std::make_shared<const Timeline>(std::move(*timeline));
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    const auto& timeline = static_cast<const Timeline&>(*prepared);
    if (timeline.lanes.empty()) {
      notice(context, area, "Nothing was run", "There are no ops");
      return;
    }
    const TimelineWords words = words_of(timeline);
    const float head = head_height(context, words, area);
    std::int64_t most = 1;
    for (const TimelineLane& lane : timeline.lanes) most = std::max(most, lane.ops);
    draw_head(context, timeline, words, {area.x, area.y, area.width, head});
    draw_ticks(context, timeline, most, {area.x, area.y, area.width, head});
    ImGui::SetCursorScreenPos({area.x, area.y + head});
    ImGui::BeginChild("lanes", {area.width, area.height - head}, false, ImGuiWindowFlags_NoBackground);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    TimelineChart chart(context, actions, {at.x, at.y + 6 * context.scale, area.width, 0}, timeline);
    for (const TimelineLane& lane : timeline.lanes) chart.lane(lane, most);
    ImGui::SetCursorScreenPos({at.x, chart.y() + 8 * context.scale});
    ImGui::Dummy({1, 1});
    ImGui::EndChild();
  }

 private:
  static Area head_line(const ViewContext& context, Area area) {
    return area.inset(kMargin * context.scale, 10 * context.scale);
  }

  static std::vector<std::string> head_words(const ViewContext& context, const TimelineWords& words, Area area) {
    return wrap(context.fonts.small, words.words, head_line(context, area).width, kMostWords);
  }

  static float head_height(const ViewContext& context, const TimelineWords& words, Area area) {
    const auto lines = static_cast<float>(head_words(context, words, area).size());
    return (kTitle + kWordLine * lines + (words.command.empty() ? 0 : kCommandLine) + kTickLine) * context.scale;
  }

  static void draw_head(const ViewContext& context, const Timeline& timeline, const TimelineWords& words, Area area) {
    const float scale = context.scale;
    Area line = head_line(context, area);
    line.height = 22 * scale;
    const std::string device =
        printable(timeline.isa.empty() ? timeline.device : fmt::format("{} \u00B7 {}", timeline.device, timeline.isa));
    const float named = std::min(text_size(context.fonts.small, device).x, line.width / 3);
    label(context.fonts.small, {line.right() - named - 1, line.y, named + 1, line.height}, context.theme.muted, device,
          1);
    label(context.fonts.title, {line.x, line.y, line.width - named - 12 * scale, line.height}, context.theme.text,
          words.title);
    float y = line.bottom();
    for (const std::string& part : head_words(context, words, area)) {
      label(context.fonts.small, {line.x, y, line.width + 2 * scale, 18 * scale}, context.theme.muted, part);
      y += kWordLine * scale;
    }
    if (!words.command.empty()) {
      label(context.fonts.mono_small, {line.x, y, line.width, kCommandLine * scale}, context.theme.text, words.command);
    }
    fill({area.x, area.bottom() - 1, area.width, 1}, context.theme.line);
  }

  /// What the bars' lengths are: time, or numbers of ops.
  static void draw_ticks(const ViewContext& context, const Timeline& timeline, std::int64_t most, Area area) {
    const float scale = context.scale;
    const bool times = timeline.kernels > 0;
    const float x = area.x + (kMargin + kNames) * scale;
    const float width = area.right() - (kMargin + (times ? kNumbers : kCounts)) * scale - x;
    const std::int64_t whole = times ? timeline.span_ns : most;
    const int room = std::clamp(static_cast<int>(width / (kTickRoom * scale)), 1, kMostTicks);
    const int ticks = static_cast<int>(std::min<std::int64_t>(room, std::max<std::int64_t>(whole, 1)));
    for (int tick = 0; tick <= ticks; ++tick) {
      const float share = static_cast<float>(tick) / static_cast<float>(ticks);
      const auto at = static_cast<std::int64_t>(std::llround(static_cast<double>(whole) * share));
      const float left = x + width * static_cast<float>(at) / static_cast<float>(std::max<std::int64_t>(whole, 1));
      fill({left, area.bottom() - 5 * scale, 1, 4 * scale}, context.theme.muted);
      const std::string words = tick == 0 ? "0" : times ? duration_text(at) : counted(at, "op");
      label(context.fonts.mono_small, {left - 40 * scale, area.bottom() - 18 * scale, 80 * scale, 12 * scale},
            context.theme.muted, words, 0.5F);
    }
  }
};

}  // namespace

std::unique_ptr<View> make_kernels_view() { return std::make_unique<KernelsView>(); }

}  // namespace nanscope::gui
