#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/counted.h"
#include "gui/context_menu.h"
#include "gui/controls.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/what_if.h"
#include "gui/views/registry.h"
#include "scenarios/replay.h"

/// What if: the run again with one knob changed at a time, and what each change does to the chain.
namespace nanscope::gui {
namespace {

constexpr float kRoomyLinks = 14;       ///< so many boxes have their full size; more share that room
constexpr std::size_t kMostLinks = 40;  ///< of the chain
constexpr float kKnobLine = 22;
constexpr float kWhatIfWideFrom = 720;  ///< from this width on there is room for the error
constexpr float kTable = 860;           ///< width of the table when answers stand beside it
constexpr float kLeastAnswer = 170;
constexpr float kKnobWidth = 330;      ///< least width of a card
constexpr std::size_t kMostBoxes = 8;  ///< more requests are told as a number

using ReplayJob = Background<scenarios::Counterfactuals>;

Result<scenarios::Counterfactuals> investigate(const std::filesystem::path& path, const std::stop_token& stop,
                                               const ReplayJob::Report& report) {
  const Result<Recording> recording = Recording::open_checked(path);
  if (!recording) return tl::unexpected(recording.error());
  const Result<scenarios::RunSpec> spec = scenarios::run_spec_of(*recording);
  if (!spec) return tl::unexpected(spec.error());
  const auto bench = scenarios::Workbench::open(spec->config, kReplayLimits);
  if (!bench) return tl::unexpected(bench.error());
  scenarios::CounterfactualOptions options;
  options.stop = stop;
  options.progress = [&report](std::int64_t done, std::int64_t total, const std::string& change) {
    report({done, total, change.empty() ? "as recorded" : change});
  };
  auto found = scenarios::counterfactuals(**bench, *recording, options);
  if (found && found->stopped) return fail("stopped");
  return found;
}

Color tone_of_effect(const Theme& theme, scenarios::Effect effect) {
  switch (effect) {
    case scenarios::Effect::removes_cause:
      return theme.accent;
    case scenarios::Effect::removes_nan:
      return mix(theme.accent, theme.panel, 0.45F);
    case scenarios::Effect::limits_spread:
      return theme.cell(kLowHeadroom);
    case scenarios::Effect::changes_symptom:
      return theme.cell(kClipped);
    case scenarios::Effect::worse:
      return theme.cell(kNan);
    case scenarios::Effect::no_effect:
      break;
  }
  return theme.raised;
}

/// Where the columns are, by the width there is.
struct Columns {
  Area change;
  Area chain;
  Area requests;
  Area kv;
  Area top1;
  Area error;   ///< of no width where there is no room
  Area answer;  ///< likewise
  float box = 0;
  float pitch = 0;
};

Columns columns_of(const ViewContext& context, Area area, std::size_t requests, std::size_t links) {
  const auto px = [&](float pixels) { return pixels * context.scale; };
  const bool wide = area.width >= px(kWhatIfWideFrom);
  Columns columns;
  const auto boxes_of_chain = static_cast<float>(std::min(links, kMostLinks));
  columns.pitch = px(wide ? 13 : 10) * std::min(1.0F, kRoomyLinks / std::max(boxes_of_chain, 1.0F));
  columns.box = columns.pitch - px(2);
  float right = area.right() - px(kMargin);
  if (const float room = area.width - px(kTable); room >= px(kLeastAnswer)) {
    right -= room;
    columns.answer = {right + px(36), 0, room - px(36), 0};
  }
  const auto take = [&](float width, float gap) {
    right -= width;
    const Area column{right, 0, width, 0};
    right -= gap;
    return column;
  };
  columns.error = wide ? take(px(72), px(12)) : Area{right, 0, 0, 0};
  columns.top1 = take(px(wide ? 48 : 42), px(wide ? 14 : 8));
  columns.kv = take(px(wide ? 96 : 78), px(wide ? 22 : 12));
  const float boxes = requests > kMostBoxes ? px(70) : static_cast<float>(requests) * px(19);
  columns.requests = take(std::max(boxes, px(58)), px(wide ? 22 : 12));
  columns.chain = take(std::max(columns.pitch * boxes_of_chain, px(40)), px(wide ? 18 : 10));
  columns.change = {area.x + px(kMargin), 0, right - area.x - px(kMargin), 0};
  return columns;
}

/// The table while it is drawn downwards.
class Sheet {
 public:
  Sheet(const ViewContext& context, const ViewActions& actions, Area area, const WhatIfTable& table)
      : context_(context),
        actions_(actions),
        table_(table),
        area_(area),
        columns_(columns_of(context, area, table.recorded.answers.size(), table.chain.size())),
        y_(area.y) {}

  float y() const { return y_; }
  const std::string& clicked() const { return clicked_; }

  void titles() {
    const auto title = [&](Area column, std::string_view words, float align) {
      const Area box{column.x, y_, column.width, px(kKnobLine)};
      label(context_.fonts.small, box, context_.theme.muted, words, align);
      explain(context_, box, std::string(words), number_meaning(words));
    };
    title(columns_.change, "change", 0);
    title(columns_.chain, "links", 0);
    title(columns_.requests, "still NaN", 0);
    title(columns_.kv, "KV B/token", 1);
    title(columns_.top1, "top-1", 1);
    if (columns_.error.width > 0) title(columns_.error, "max error", 1);
    if (answer_of()) title(columns_.answer, fmt::format("request {} answers", *answer_of()), 0);
    y_ += px(kKnobLine);
  }

  void group(const WhatIfGroup& group) {
    y_ += px(12);
    const Color ground = tone_of_effect(context_.theme, group.effect);
    fill({area_.x + px(kMargin), y_ + px(5), px(4), px(14)}, ground, px(2));
    const Area line{area_.x + px(kMargin + 12), y_, area_.width - px(2 * kMargin + 12), px(24)};
    label(context_.fonts.title, line, context_.theme.text, group.title);
    const float taken = text_size(context_.fonts.title, group.title).x + px(12);
    label(context_.fonts.small, {line.x + taken, y_, line.width - taken, px(24)}, context_.theme.muted, group.meaning);
    y_ += px(26);
    for (const WhatIfRow& change : group.rows) row(change, true);
  }

  /// `opens`: a click shows what the requests answer.
  void row(const WhatIfRow& row, bool opens) {
    const std::string id = fmt::format("{}", fmt::join(row.settings, " "));
    const float lines = static_cast<float>(std::max<std::size_t>(row.settings.size(), 1));
    const float top = y_;
    const float height = px(kKnobLine) + (lines - 1) * px(16);
    const Area whole{area_.x + px(6), top, area_.width - px(12), height};
    const Area beside = beside_box(id, whole);
    const bool offered = opens && (interact(row, id, whole, beside) || is_beside(id));
    write_change(row, top);
    draw_chain(row, top);
    draw_requests(row, top);
    write_numbers(row, top, offered);
    write_answer(row, top, offered ? area_.right() - beside.x : 0);
    if (offered) {
      const Theme& theme = context_.theme;
      chip(context_, beside, is_beside(id) ? "stands beside" : "Open beside", theme.accent, theme.panel);
    }
    y_ = top + height;
    if (opens && id == opened_) answers(row);
  }

  void without_effect() {
    if (!table_.without_effect.empty()) {
      paragraph("no effect", fmt::format("{}", fmt::join(table_.without_effect, ", ")));
    }
    if (!table_.not_run.empty()) paragraph("could not be run", fmt::format("{}", fmt::join(table_.not_run, "; ")));
    y_ += px(14);
  }

  void open(std::string id) { opened_ = std::move(id); }

 private:
  float px(float pixels) const { return pixels * context_.scale; }

  bool is_beside(const std::string& id) const { return context_.beside && context_.beside->label == id; }

  /// At the right end of a row: what puts its run beside this one.
  Area beside_box(const std::string& id, Area row) const {
    const float width = chip_width(context_, is_beside(id) ? "stands beside" : "Open beside");
    return {row.right() - width - px(6), row.y + px(2), width, px(kKnobLine - 4)};
  }

  /// Answers whether the row is pointed at or open.
  bool interact(const WhatIfRow& row, const std::string& id, Area box, Area beside) {
    ImGui::SetCursorScreenPos(beside.min());  // first, as it lies within the row
    if (ImGui::InvisibleButton(("beside " + id).c_str(), {beside.width, beside.height})) {
      actions_.try_beside(row.settings);
    }
    const bool over = ImGui::IsItemHovered();
    if (over) {
      ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
      actions_.hint(fmt::format("run it again with {} and show both side by side", id));
    }
    ImGui::SetCursorScreenPos(box.min());
    if (ImGui::InvisibleButton(id.c_str(), {box.width, box.height})) clicked_ = id;
    if (asked_for_menu()) actions_.menu({{}, id, {}, {}, row.settings});
    const bool hovered = ImGui::IsItemHovered();
    if (hovered) {
      ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
      actions_.hint(id == opened_ ? "hide the answers" : "show what the requests answer with " + id);
    }
    const bool told = hovered || over || id == opened_;
    if (told) fill(box, hovered || over ? context_.theme.raised : context_.theme.raised.alpha(150), px(5));
    return told;
  }

  void write_change(const WhatIfRow& row, float top) const {
    const Area& column = columns_.change;
    if (row.settings.empty()) {
      label(context_.fonts.small, {column.x, top, column.width, px(kKnobLine)}, context_.theme.text, "as recorded");
      return;
    }
    float y = top;
    for (const std::string& setting : row.settings) {
      label(context_.fonts.mono_small, {column.x + px(12), y, column.width - px(12), px(kKnobLine)},
            context_.theme.text, (&setting == &row.settings.front() ? "" : "+ ") + setting);
      y += px(16);
    }
  }

  /// A box a link: full while the chain holds, outlined where it is gone.
  void draw_chain(const WhatIfRow& row, float top) const {
    const Theme& theme = context_.theme;
    for (std::size_t i = 0; i < std::min(row.links.size(), kMostLinks); ++i) {
      const Area box{columns_.chain.x + static_cast<float>(i) * columns_.pitch,
                     top + (px(kKnobLine) - columns_.box) / 2, columns_.box, columns_.box};
      const int number = static_cast<int>(i) + 1;
      if (row.links[i]) {
        fill(box, tone_of(i), px(2));
      } else {
        outline(box, theme.muted.alpha(number == row.breaks_at ? 255 : 80), px(number == row.breaks_at ? 1.6F : 1),
                px(2));
      }
      if (!ImGui::IsWindowHovered() || !box.holds(ImGui::GetIO().MousePos)) continue;
      actions_.hint(link_hint(row, number));
    }
  }

  /// As the cascade has it.
  Color tone_of(std::size_t link) const {
    const Theme& theme = context_.theme;
    if (link == 0) return theme.accent;
    if (!context_.story) return theme.cell(kNan);
    const auto& links = context_.story->links;
    const auto told =
        std::find_if(links.begin(), links.end(), [&](const StoryLink& one) { return one.title == table_.chain[link]; });
    if (told != links.end() && told->tone == LinkTone::cause) return theme.accent;
    return theme.cell(told != links.end() && told->tone == LinkTone::damage ? kClipped : kNan);
  }

  std::string link_hint(const WhatIfRow& row, int number) const {
    const auto index = static_cast<std::size_t>(number - 1);
    return fmt::format("{}: {}{}", table_.chain[index], row.links[index] ? "found" : "not there",
                       number == row.breaks_at ? ", here the chain breaks" : "");
  }

  void draw_requests(const WhatIfRow& row, float top) const {
    const Theme& theme = context_.theme;
    const Area& column = columns_.requests;
    if (row.answers.size() > kMostBoxes) {
      label(context_.fonts.small, {column.x, top, column.width, px(kKnobLine)},
            row.faulty > 0 ? theme.ink(kNan) : theme.muted, fmt::format("{} of {}", row.faulty, row.answers.size()));
      return;
    }
    for (std::size_t i = 0; i < row.answers.size(); ++i) {
      const Area box{column.x + static_cast<float>(i) * px(19), top + px(3), px(16), px(16)};
      const bool bad = row.answers[i].faulty;
      if (bad) fill(box, theme.cell(kNan), px(3));
      label(context_.fonts.mono_small, box, bad ? theme.on_bad : theme.muted.alpha(150), std::to_string(i), 0.5F);
    }
  }

  /// `offered`: a button takes the place of the last of them.
  void write_numbers(const WhatIfRow& row, float top, bool offered) const {
    const Theme& theme = context_.theme;
    const auto write = [&](Area column, const std::string& words, Color ink) {
      label(context_.fonts.mono_small, {column.x, top, column.width, px(kKnobLine)}, ink, words, 1);
    };
    const bool dearer = row.kv_ratio > 1.2;
    write(columns_.kv, fmt::format("{:.0f}  {:.2f}\u00D7", row.kv_bytes, row.kv_ratio),
          dearer ? theme.text : theme.muted);
    const bool wide = columns_.error.width > 0;
    const bool room = !offered || columns_.answer.width > 0;
    if (wide || room)
      write(columns_.top1, row.top1.empty() ? "\u2013" : row.top1, row.top1 == "100 %" ? theme.muted : theme.text);
    if (wide && room) write(columns_.error, row.error.empty() ? "\u2013" : row.error, theme.muted);
  }

  /// The request whose answer stands beside the changes: the first that is faulty as recorded.
  std::optional<std::size_t> answer_of() const {
    if (columns_.answer.width <= 0) return std::nullopt;
    const auto& answers = table_.recorded.answers;
    const auto faulty = std::find_if(answers.begin(), answers.end(), [](const WhatIfAnswer& a) { return a.faulty; });
    if (faulty == answers.end()) return std::nullopt;
    return static_cast<std::size_t>(faulty - answers.begin());
  }

  void write_answer(const WhatIfRow& row, float top, float taken) const {
    const std::optional<std::size_t> request = answer_of();
    if (!request || *request >= row.answers.size()) return;
    const WhatIfAnswer& answer = row.answers[*request];
    label(context_.fonts.small, {columns_.answer.x, top, columns_.answer.width - taken, px(kKnobLine)},
          answer.faulty ? context_.theme.ink(kNan) : context_.theme.text, in_quotes(answer.text));
  }

  /// What the requests answer now; muted where it is what they answered.
  void answers(const WhatIfRow& row) {
    const Theme& theme = context_.theme;
    const float left = columns_.change.x + px(12);
    const float width = area_.right() - px(kMargin) - left;
    y_ += px(4);
    for (std::size_t i = 0; i < row.answers.size(); ++i) {
      const auto& before = table_.recorded.answers;
      const bool same = i < before.size() && before[i].text == row.answers[i].text;
      label(context_.fonts.mono_small, {left, y_, px(24), px(17)}, theme.muted, std::to_string(i));
      label(context_.fonts.small, {left + px(24), y_, width - px(24), px(17)},
            row.answers[i].faulty ? theme.ink(kNan) : (same ? theme.muted : theme.text),
            fmt::format("{}{}", in_quotes(row.answers[i].text), same ? "   as before" : ""));
      y_ += px(17);
    }
    const std::string faults = row.faults.empty() ? "no fault is left" : "still found: " + row.faults;
    label(context_.fonts.small, {left, y_, width, px(20)}, theme.muted, faults);
    y_ += px(26);
  }

  void paragraph(std::string_view title, const std::string& words) {
    y_ += px(14);
    const float left = area_.x + px(kMargin + 12);
    label(context_.fonts.title, {left, y_, px(200), px(24)}, context_.theme.text, title);
    y_ += px(26);
    const float width = area_.right() - px(kMargin) - left;
    for (const std::string& words_line : wrap(context_.fonts.small, printable(words), width)) {
      label(context_.fonts.small, {left, y_, width + px(2), px(17)}, context_.theme.muted, words_line);
      y_ += px(17);
    }
  }

  const ViewContext& context_;
  const ViewActions& actions_;
  const WhatIfTable& table_;
  Area area_;
  Columns columns_;
  float y_;
  std::string opened_;
  std::string clicked_;
};

class WhatIfView final : public View {
 public:
  std::string_view name() const override { return "what-if"; }
  std::string_view title() const override { return "What if"; }
  std::string_view caption() const override { return "the run again with one setting changed"; }
  bool busy() const override { return job_.running(); }
  std::optional<TableMaker> table(const PreparedPtr&) const override {
    if (!table_) return std::nullopt;
    return [table = table_] { return table_of(*table); };
  }

  std::optional<ViewRequest> prepare(const ViewContext&, Area) override {
    return ViewRequest{"plan", [](RunFacts& facts) -> Result<PreparedPtr> {
                         return std::make_shared<const WhatIfPlan>(plan_what_if(facts.recording()));
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    const auto& plan = static_cast<const WhatIfPlan&>(*prepared);
    if (!plan.notice.empty()) {
      notice(context, area, "This run cannot be tried again", printable(plan.notice));
      return;
    }
    take();
    if (context.unattended && !table_ && !job_.running() && error_.empty()) start(plan);
    if (table_) {
      draw_table(context, actions, area);
    } else {
      draw_plan(context, plan, area);
    }
  }

 private:
  void start(const WhatIfPlan& plan) {
    error_.clear();
    job_.start([path = plan.recording](const std::stop_token& stop, const ReplayJob::Report& report) {
      return investigate(path, stop, report);
    });
  }

  void take() {
    const std::optional<Result<scenarios::Counterfactuals>> result = job_.take();
    if (!result) return;
    if (*result) {
      table_ = std::make_shared<const WhatIfTable>(tabulate(**result));
    } else if (!job_.cancelled()) {
      error_ = result->error().message;
    }
  }

  void draw_plan(const ViewContext& context, const WhatIfPlan& plan, Area area) {
    const Look look{context.theme, context.fonts, context.scale};
    const Area inner = area.inset(look.px(kMargin), look.px(14));
    label(context.fonts.title, {inner.x, inner.y, inner.width, look.px(22)}, context.theme.text,
          "But for which setting?");
    const std::string words = fmt::format(
        "Runs the recorded prompts again in memory, {} over {}, one at a time, and reads off each run where the chain "
        "breaks and what the change costs.",
        counted(plan.changes, "change"), counted(plan.knobs.size(), "knob"));
    float y = inner.y + look.px(26);
    for (const std::string& words_line : wrap(context.fonts.small, words, inner.width)) {
      label(context.fonts.small, {inner.x, y, inner.width + look.px(2), look.px(17)}, context.theme.muted, words_line);
      y += look.px(17);
    }
    y += look.px(10);
    if (job_.running()) {
      const Area bar{inner.x, y, inner.width, look.px(44)};
      if (draw_progress(look, job_.progress(), "runs", job_.cancelled(), bar)) job_.cancel();
    } else {
      const std::string run = fmt::format("Try {}", counted(plan.changes, "change"));
      const Area box{inner.x, y + look.px(6), button_width(look, run), look.px(30)};
      if (button(look, "run", run, box, true)) start(plan);
      label(context.fonts.small,
            {box.right() + look.px(16), box.y, inner.right() - box.right() - look.px(16), box.height},
            context.theme.ink(kNan), printable(error_));
    }
    y += look.px(56);
    fill({area.x, y, area.width, look.px(1)}, context.theme.line);
    draw_knobs(look, plan, {area.x, y + 1, area.width, area.bottom() - y - 1});
  }

  /// A card a knob: its name, its value as recorded, and what will be tried.
  static void draw_knobs(const Look& look, const WhatIfPlan& plan, Area area) {
    ImGui::SetCursorScreenPos(area.min());
    ImGui::BeginChild("knobs", {area.width, area.height}, false, ImGuiWindowFlags_NoBackground);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = area.width - look.px(2 * kMargin);
    const auto across = std::max<std::size_t>(1, static_cast<std::size_t>(width / look.px(kKnobWidth)));
    const float pitch = width / static_cast<float>(across);
    const float height = look.px(62);
    for (std::size_t i = 0; i < plan.knobs.size(); ++i) {
      const WhatIfKnob& knob = plan.knobs[i];
      const std::size_t row = i / across;
      const Area card{at.x + look.px(kMargin) + static_cast<float>(i % across) * pitch,
                      at.y + look.px(10) + static_cast<float>(row) * height, pitch - look.px(24), height};
      const std::string value = knob.value.empty() ? "as norm" : knob.value;
      label(look.fonts.mono_small, {card.x, card.y, card.width, look.px(18)}, look.theme.text, knob.name);
      label(look.fonts.mono_small, {card.x, card.y, card.width, look.px(18)}, look.theme.accent, value, 1);
      label(look.fonts.small, {card.x, card.y + look.px(18), card.width, look.px(16)}, look.theme.muted, knob.doc);
      label(look.fonts.mono_small, {card.x, card.y + look.px(34), card.width, look.px(16)}, look.theme.muted,
            fmt::format("\u2192 {}", fmt::join(knob.tried, "  ")));
    }
    const std::size_t rows = (plan.knobs.size() + across - 1) / across;
    ImGui::SetCursorScreenPos({at.x, at.y + look.px(10) + static_cast<float>(rows) * height});
    ImGui::Dummy({1, 1});
    ImGui::EndChild();
  }

  void draw_table(const ViewContext& context, const ViewActions& actions, Area area) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    const WhatIfTable& table = *table_;
    const Area line{area.x + px(kMargin), area.y + px(10), area.width - px(2 * kMargin), px(22)};
    label(context.fonts.title, line, context.theme.text, table.conclusion);
    const float taken = text_size(context.fonts.title, table.conclusion).x + px(24);
    const bool narrow = area.width < px(kWhatIfWideFrom);
    label(context.fonts.small, {line.x + taken, line.y, line.width - taken, line.height}, context.theme.muted,
          narrow ? counted(table.runs, "run")
                 : fmt::format("{} \u00B7 error in logits, top-1 and error against a cache in f32, healthy requests",
                               counted(table.runs, "run")),
          1);
    Sheet head(context, actions, {area.x, area.y + px(38), area.width, 0}, table);
    head.titles();
    head.row(table.recorded, false);
    const float top = head.y() + px(4);
    fill({area.x, top, area.width, px(1)}, context.theme.line);
    ImGui::SetCursorScreenPos({area.x, top + 1});
    ImGui::BeginChild("changes", {area.width, area.bottom() - top - 1}, false, ImGuiWindowFlags_NoBackground);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    Sheet sheet(context, actions, {at.x, at.y, area.width, 0}, table);
    sheet.open(opened_);
    for (const WhatIfGroup& group : table.groups) sheet.group(group);
    sheet.without_effect();
    if (!sheet.clicked().empty()) opened_ = sheet.clicked() == opened_ ? "" : sheet.clicked();
    ImGui::SetCursorScreenPos({at.x, sheet.y()});
    ImGui::Dummy({1, 1});
    ImGui::EndChild();
  }

  std::shared_ptr<const WhatIfTable> table_;
  std::string opened_;  ///< the change whose answers are shown
  std::string error_;
  ReplayJob job_;  ///< last: it is stopped first
};

}  // namespace

std::unique_ptr<View> make_what_if_view() { return std::make_unique<WhatIfView>(); }

}  // namespace nanscope::gui
