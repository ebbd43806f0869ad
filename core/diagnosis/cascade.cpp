#include "core/diagnosis/cascade.h"

#include <algorithm>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {

std::string_view name(LinkState state) {
  switch (state) {
    case LinkState::found:
      return "found";
    case LinkState::not_reached:
      return "not-reached";
    case LinkState::not_available:
      return "not-available";
  }
  return {};
}

int Cascade::found() const {
  return static_cast<int>(
      std::count_if(links.begin(), links.end(), [](const Link& link) { return link.state == LinkState::found; }));
}

int Cascade::breaks_at() const {
  bool reached = false;
  for (const Link& link : links) {
    if (link.state == LinkState::found) {
      reached = true;
    } else if (reached && link.state == LinkState::not_reached) {
      return link.number;
    }
  }
  return 0;
}

Result<Cascade> cascade(RunData& run, TensorSource& tensors) {
  Facts facts(run, tensors);
  Cascade found;
  for (const LinkDetector& detector : link_detectors()) {
    Link link = detector.detect(facts);
    link.number = detector.number;
    link.id = detector.id;
    link.title = detector.title;
    found.links.push_back(std::move(link));
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return found;
}

}  // namespace nanscope
