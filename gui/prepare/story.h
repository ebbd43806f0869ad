#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "instrument/diagnosis/cascade.h"
#include "instrument/diagnosis/diagnosis.h"
#include "gui/prepare/prepared.h"
#include "gui/selection.h"

namespace nanscope::gui {

struct StoryLink {
  int number = 0;
  std::string title;
  std::string summary;
  LinkState state = LinkState::not_reached;
  std::string place;  ///< as people read it; empty when the link is nowhere
  std::optional<Selection> target;
  std::vector<std::pair<std::string, std::string>> evidence;  ///< name and number
};

/// Something worth a stop of the scrubber.
struct StoryEvent {
  std::int64_t op = 0;  ///< OpRow::id
  std::string title;
  Selection target;
};

/// The diagnosis as it is told: what happened, where, and by which numbers.
struct Story final : Prepared {
  bool clean = true;
  std::string headline;  ///< "kv-scale-locked, 14 of 14 links"
  std::string cause;     ///< one sentence; empty when clean
  std::string fix;
  std::string spread;
  std::vector<StoryLink> links;
  std::vector<StoryEvent> events;   ///< by op, each op once
  std::optional<Selection> origin;  ///< where NaN or Inf is born
};

/// The place of a finding with its first token and channel.
Selection selection_of(const Where& where);
/// "calibrated_tokens" as "calibrated tokens".
std::string words(std::string name);

Story make_story(const Diagnosis& diagnosis, const Cascade& cascade);

}  // namespace nanscope::gui
