#include "gui/navigator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace nanscope::gui {

void Navigator::set_map(std::shared_ptr<const RunMap> map) {
  map_ = std::move(map);
  begin();
}

void Navigator::set_story(std::shared_ptr<const Story> story) {
  story_ = std::move(story);
  begin();
}

void Navigator::begin() {
  if (!story_ || selection() != Selection{}) return;
  if (story_->origin) {
    choose(*story_->origin);
  } else if (!story_->events.empty()) {
    choose(story_->events.front().target);
  } else if (ops() > 0) {
    choose({map_->place_of_op(0), {}});
  }
  by_itself_ = selection() != Selection{};
}

void Navigator::prefer(const Selection& selection) {
  if (by_itself_ || history_.current() == Selection{}) choose(selection);
}

void Navigator::stop() {
  by_itself_ = false;
  playing_ = false;
  playhead_.reset();
}

void Navigator::choose(Selection selection) {
  stop();
  history_.choose(std::move(selection));
}

void Navigator::choose_step(const MapStep& step) {
  if (!map_) return;
  Selection next;
  next.place = selection().place;
  next.place.request = step.row.request;
  next.place.step = step.row.index;
  next.place.rank = step.rank;
  next.place.token.reset();
  next.place.channel.reset();
  if (!map_->find_op(next.place) && step.first_op < map_->ops.size())
    next.place = map_->place_of_op(step.first_op, step);
  choose(std::move(next));
}

void Navigator::back() {
  stop();
  history_.back();
}

void Navigator::forward() {
  stop();
  history_.forward();
}

std::size_t Navigator::position() const {
  if (playhead_) return *playhead_;
  return map_ ? map_->find_op(selection().place).value_or(0) : 0;
}

void Navigator::seek(std::size_t op) {
  if (ops() == 0) return;
  by_itself_ = false;
  playhead_ = std::min(op, ops() - 1);
  history_.move({map_->place_of_op(*playhead_), {}});
}

void Navigator::step(int by) {
  if (ops() == 0) return;
  playing_ = false;
  const auto target = static_cast<std::int64_t>(position()) + by;
  seek(static_cast<std::size_t>(std::clamp<std::int64_t>(target, 0, static_cast<std::int64_t>(ops()) - 1)));
}

std::optional<std::size_t> Navigator::event() const {
  const std::vector<StoryEvent>& events = story_->events;
  const auto at = std::find_if(events.begin(), events.end(),
                               [this](const StoryEvent& event) { return event.target == selection(); });
  if (at == events.end()) return std::nullopt;
  return static_cast<std::size_t>(at - events.begin());
}

void Navigator::next_event() {
  if (!story_ || story_->events.empty() || ops() == 0) return;
  const std::vector<StoryEvent>& events = story_->events;
  if (const auto at = event()) return choose(events[(*at + 1) % events.size()].target);
  const std::int64_t now = map_->ops[position()].id;
  const auto after =
      std::find_if(events.begin(), events.end(), [now](const StoryEvent& each) { return each.op > now; });
  choose(after == events.end() ? events.front().target : after->target);
}

void Navigator::last_event() {
  if (!story_ || story_->events.empty() || ops() == 0) return;
  const std::vector<StoryEvent>& events = story_->events;
  if (const auto at = event()) return choose(events[(*at + events.size() - 1) % events.size()].target);
  const std::int64_t now = map_->ops[position()].id;
  const auto before = std::find_if(events.rbegin(), events.rend(),
                                   [now](const StoryEvent& each) { return each.op > 0 && each.op < now; });
  choose(before == events.rend() ? events.back().target : before->target);
}

void Navigator::go_to_origin() {
  if (story_ && story_->origin) choose(*story_->origin);
}

void Navigator::play(bool on) {
  playing_ = on && ops() > 0;
  if (!playing_) return;
  fraction_ = 0;
  const std::size_t from = position() + 1 < ops() ? position() : 0;
  history_.choose({selection().place, {}});
  seek(from);
}

void Navigator::change_speed(int doublings) {
  doublings_ = std::clamp(doublings_ + doublings, -kMostDoublings, kMostDoublings);
}

double Navigator::speed() const { return std::ldexp(1.0, doublings_); }

void Navigator::advance(double seconds) {
  if (!playing_ || !playhead_) return;
  fraction_ += seconds * speed() * static_cast<double>(ops()) / kPlaySeconds;
  const double whole = std::floor(fraction_);
  fraction_ -= whole;
  if (whole > 0) seek(*playhead_ + static_cast<std::size_t>(whole));
  if (*playhead_ + 1 >= ops()) stop();
}

std::string speed_text(double speed) {
  return speed < 1 ? fmt::format("\u00D7 1/{:g}", 1 / speed) : fmt::format("\u00D7 {:g}", speed);
}

}  // namespace nanscope::gui
