#include "gui/pane.h"

#include <fmt/format.h>

namespace nanscope::gui {
namespace {

constexpr float kTitleHeight = 34;
constexpr int kDimAfterFrames = 12;  ///< answers that come within 0.2 s do not flicker
constexpr float kStaleOpacity = 0.6F;

}  // namespace

void Pane::ask(Store& store, const ViewContext& context, Area area) {
  std::optional<ViewRequest> request = view_->prepare(context, area);
  if (!request || (ticket_ != 0 && request->key == asked_)) return;
  asked_ = std::move(request->key);
  ticket_ = store.ask(std::string(view_->name()), std::move(request->work), request->urgency);
  waiting_ = true;
}

void Pane::take(const Answer& answer) {
  if (answer.ticket != ticket_ || answer.kind != view_->name()) return;
  waiting_ = false;
  error_.reset();
  if (answer.result) {
    prepared_ = *answer.result;
  } else {
    error_ = answer.result.error();
  }
}

void Pane::draw(Store& store, const ViewContext& context, const ViewActions& actions, Area area, bool titled) {
  if (titled) {
    const float height = kTitleHeight * context.scale;
    const Area line = Area{area.x, area.y, area.width, height}.inset(18 * context.scale, 0);
    label(context.fonts.title, line, context.theme.text, view_->title());
    const float title = text_size(context.fonts.title, view_->title()).x + 14 * context.scale;
    label(context.fonts.small, {line.x + title, line.y + context.scale, line.width - title, height},
          context.theme.muted, view_->caption());
    fill({area.x, area.y + height - 1, area.width, 1}, context.theme.line);
    area = {area.x, area.y + height, area.width, area.height - height};
  }
  ask(store, context, area);
  if (!prepared_ || error_) {
    draw_notice(context, area);
    return;
  }
  stale_frames_ = waiting_ ? stale_frames_ + 1 : 0;
  view_->draw(context, actions, area, prepared_);
  if (stale_frames_ > kDimAfterFrames) {
    fill(area, context.theme.panel.alpha(static_cast<std::uint8_t>(255 * (1 - kStaleOpacity))));
  }
}

void Pane::draw_notice(const ViewContext& context, Area area) const {
  const float height = 20 * context.scale;
  const Area middle = Area{area.x, area.y + area.height / 2 - height, area.width, height}.inset(24 * context.scale, 0);
  if (!error_) {
    label(context.fonts.text, middle, context.theme.muted, fmt::format("Preparing {}\u2026", view_->name()), 0.5F);
    return;
  }
  label(context.fonts.text, middle, context.theme.text, fmt::format("{} cannot be shown", view_->title()), 0.5F);
  label(context.fonts.small, {middle.x, middle.bottom() + 4, middle.width, height}, context.theme.muted,
        printable(error_->message), 0.5F);
}

}  // namespace nanscope::gui
