#include "gui/prepare/story.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace nanscope::gui {
namespace {

StoryLink told(const Link& link) {
  StoryLink out;
  out.number = link.number;
  out.title = link.title;
  out.summary = link.summary;
  out.state = link.state;
  out.place = place_text(link.where);
  if (!out.place.empty()) out.target = selection_of(link.where);
  for (const Evidence& item : link.evidence) out.evidence.emplace_back(words(item.name), to_string(item.value));
  return out;
}

std::vector<StoryEvent> events_of(const Diagnosis& diagnosis, const Cascade& cascade) {
  std::map<std::int64_t, StoryEvent> by_op;
  const auto add = [&](const Where& where, const std::string& title) {
    if (where.op_id > 0) by_op.try_emplace(where.op_id, StoryEvent{where.op_id, title, selection_of(where)});
  };
  for (const Link& link : cascade.links) {
    if (link.state == LinkState::found) add(link.where, link.title);
  }
  for (const Fault& fault : diagnosis.faults) add(fault.where, words(fault.fault_class));
  std::vector<StoryEvent> events;
  events.reserve(by_op.size());
  for (auto& [op, event] : by_op) events.push_back(std::move(event));
  return events;
}

}  // namespace

Selection selection_of(const Where& where) {
  Selection selection;
  Place& place = selection.place;
  place.request = where.request;
  place.step = where.step;
  place.layer = where.layer.value_or(-1);
  place.op = where.op;
  place.role = where.role;
  if (where.tokens) place.token = where.tokens->first;
  if (where.tokens && where.channels) place.channel = where.channels->first;
  return selection;
}

std::string words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

Story make_story(const Diagnosis& diagnosis, const Cascade& cascade) {
  Story story;
  story.clean = diagnosis.clean();
  for (const Link& link : cascade.links) story.links.push_back(told(link));
  story.events = events_of(diagnosis, cascade);
  story.headline = story.clean ? "No fault found" : "Faults found, the cause is unknown";
  if (diagnosis.root_cause) {
    const Fault& root = diagnosis.faults[*diagnosis.root_cause];
    story.headline = root.fault_class;
    story.cause = root.summary;
    story.fix = root.fix;
    story.origin = selection_of(root.where);
  }
  const auto birth = std::find_if(diagnosis.faults.begin(), diagnosis.faults.end(), [](const Fault& fault) {
    return fault.breaks && fault.where.request.value_or(0) >= 0;  // what nobody asked for breaks nothing
  });
  if (birth != diagnosis.faults.end()) story.origin = selection_of(birth->where);
  story.spread = fmt::format("{} of {} tokens bad", diagnosis.spread.bad_tokens, diagnosis.spread.tokens);
  return story;
}

}  // namespace nanscope::gui
