#include "gui/views/policy_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "gui/marks.h"

namespace nanscope::gui {
namespace {

constexpr float kPolicyTitle = 24;
constexpr float kPolicyHead = 18;
constexpr float kPolicyRow = 21;
constexpr float kCaveat = 22;

struct Column {
  const char* title;
  float width;
  float align;
};

constexpr float kDash = 26;  ///< before the names: how the policy's limit is drawn
constexpr Column kPolicyColumns[] = {{"policy", 116, 0}, {"scale", 120, 1},          {"least headroom", 96, 1},
                                     {"at", 44, 1},      {"steps that clip", 88, 1}, {"tokens that clip", 128, 1}};
constexpr std::size_t kHeadroom = 2;
constexpr double kClipsBelow = 0.999;  ///< a scale of each token itself is 1 up to rounding

template <class Visit>
void for_columns(const ViewContext& context, Area row, const Visit& visit) {
  float x = row.x + (6 + kDash) * context.scale;
  for (std::size_t i = 0; i < std::size(kPolicyColumns); ++i) {
    const float width = kPolicyColumns[i].width * context.scale;
    if (x + width > row.right() + 1) return;
    visit(i, Area{x, row.y, width, row.height});
    x += width + 2 * context.scale;
  }
}

std::string scale_words(const PolicyLine& policy) {
  const std::string nan = policy.nan_steps > 0 ? "NaN" : "";
  if (!(policy.largest_scale > 0)) return nan.empty() ? "0" : nan;
  const std::string least = short_number(policy.least_scale);
  const std::string largest = short_number(policy.largest_scale);
  const std::string both = least == largest ? least : fmt::format("{} to {}", least, largest);
  return nan.empty() ? both : both + ", NaN";
}

}  // namespace

float PolicyTable::height(const ViewContext& context, const PolicyComparison& compared) {
  return (kPolicyTitle + kPolicyHead + kCaveat + kPolicyRow * static_cast<float>(compared.policies.size())) *
         context.scale;
}

std::vector<std::size_t> PolicyTable::shown(const PolicyComparison& compared) const {
  std::vector<std::size_t> lines;
  for (std::size_t i = 0; i < compared.policies.size(); ++i) {
    const PolicyLine& policy = compared.policies[i];
    if (shown_.contains(policy.name) && !policy.recorded) lines.push_back(i);
  }
  return lines;
}

void PolicyTable::draw(const ViewContext& context, const ViewActions& actions, const Ledger& ledger,
                       const PolicyComparison& compared, Area area) {
  const auto px = [&](float pixels) { return pixels * context.scale; };
  const LedgerLine& line = ledger.lines[compared.line];
  label(context.fonts.text, {area.x, area.y, area.width, px(kPolicyTitle)}, context.theme.text,
        fmt::format("{} under every policy", line.name));
  Area row{area.x, area.y + px(kPolicyTitle), area.width, px(kPolicyHead)};
  for_columns(context, row, [&](std::size_t i, Area cell) {
    label(context.fonts.small, cell, context.theme.muted, kPolicyColumns[i].title, kPolicyColumns[i].align);
  });
  row = {area.x, row.bottom(), area.width, px(kPolicyRow)};
  for (const PolicyLine& policy : compared.policies) {
    draw_row(context, actions, ledger, compared, policy, row);
    row.y += row.height;
  }
  label(context.fonts.small, {area.x + px(6), row.y, area.width - px(6), px(kCaveat - 4)}, context.theme.muted,
        compared.caveat);
}

void PolicyTable::draw_row(const ViewContext& context, const ViewActions& actions, const Ledger& ledger,
                           const PolicyComparison& compared, const PolicyLine& policy, Area row) {
  const auto px = [&](float pixels) { return pixels * context.scale; };
  const Theme& theme = context.theme;
  ImGui::SetCursorScreenPos(row.min());
  const bool drawable = !policy.recorded && policy.problem.empty();
  const bool pressed = ImGui::InvisibleButton(policy.name.c_str(), {row.width, row.height});
  if (pressed && drawable && shown_.erase(policy.name) == 0) shown_.insert(policy.name);
  const bool on = drawable && shown_.contains(policy.name);
  if (ImGui::IsItemHovered()) {
    fill(row, theme.raised, px(4));
    if (drawable) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    const char* does = !drawable ? "" : on ? "; click to hide its limit" : "; click to draw its limit into the chart";
    actions.hint(fmt::format("{}: {}{}", policy.name, policy.doc, does));
  }
  const float middle = std::floor(row.y + row.height / 2);
  if (policy.recorded) fill({row.x + px(6), middle - px(1), px(kDash - 10), px(2)}, theme.accent);
  for (float x = 0; drawable && x < kDash - 10; x += 6) {
    fill({row.x + px(6 + x), middle - px(0.75F), px(4), px(1.5F)}, on ? theme.text : theme.muted.alpha(90));
  }
  if (!policy.problem.empty()) {
    const Area name{row.x + px(6 + kDash), row.y, px(kPolicyColumns[0].width), row.height};
    label(context.fonts.small, name, theme.text, policy.name);
    label(context.fonts.small, {name.right(), row.y, row.right() - name.right(), row.height}, theme.muted,
          policy.problem);
    return;
  }
  const PolicyEntry* lowest = policy.lowest ? &policy.entries[*policy.lowest] : nullptr;
  const Place* at = lowest != nullptr ? &ledger.entries[lowest->entry].target.place : nullptr;
  const std::string cells[] = {
      policy.recorded ? policy.name + " (this run)" : policy.name,
      scale_words(policy),
      lowest != nullptr ? headroom_text(lowest->headroom) : "\u2013",
      at != nullptr ? fmt::format("{}/{}", at->request.value_or(0), at->step.value_or(0)) : "",
      policy.clipped_steps > 0 ? fmt::format("{} of {}", policy.clipped_steps, policy.entries.size()) : "none",
      policy.clipped_tokens > 0 ? clipped_words(policy, compared.tokens) : "none"};
  for_columns(context, row, [&](std::size_t i, Area cell) {
    const bool clips = i == kHeadroom && lowest != nullptr && lowest->headroom < kClipsBelow;
    if (clips) {
      const float wide = text_size(context.fonts.mono_small, cells[i]).x + px(10);
      fill({cell.right() - wide + px(5), cell.y + px(2), wide, cell.height - px(4)}, theme.cell(kClipped), px(3));
    }
    const bool quiet = cells[i] == "none" || i == 3;
    label(i == 0 ? context.fonts.small : context.fonts.mono_small, cell,
          clips   ? ink_on(theme, kClipped)
          : quiet ? theme.muted
                  : theme.text,
          cells[i], kPolicyColumns[i].align);
  });
}

std::vector<std::string> words_of_policies(const PolicyComparison& compared, std::size_t entry) {
  std::vector<std::string> lines;
  for (const PolicyLine& policy : compared.policies) {
    const auto found = std::lower_bound(policy.entries.begin(), policy.entries.end(), entry,
                                        [](const PolicyEntry& each, std::size_t at) { return each.entry < at; });
    if (found == policy.entries.end() || found->entry != entry || policy.recorded) continue;
    lines.push_back(fmt::format("under {}: scale {}, at most {}, headroom {}", policy.name, short_number(found->scale),
                                short_number(found->limit), headroom_text(found->headroom)));
  }
  return lines;
}

}  // namespace nanscope::gui
