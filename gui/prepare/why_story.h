#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/run/run_view.h"
#include "gui/facts.h"
#include "gui/prepare/prepared.h"
#include "gui/selection.h"
#include "instrument/diagnosis/why.h"

namespace nanscope::gui {

/// A hop of the way back from an element to its cause, as it is told.
struct WhyHop {
  HopKind kind = HopKind::element;
  std::string heading;  ///< "request 2, prefill" where the way enters another step, else empty
  std::string place;    ///< as people read it; a weight's or a slot's name where there is none
  std::optional<Selection> target;
  std::string value;  ///< "NaN", "24.0092"; empty when it could not be had
  std::string bits;   ///< "f32 0x41C012E8"
  bool bad = false;
  bool birth = false;    ///< the first op that is bad while its inputs were healthy
  bool setting = false;  ///< what made healthy inputs dangerous
  std::string text;
  std::vector<std::pair<std::string, std::string>> numbers;
};

/// Provenance of one element.
struct WhyStory final : Prepared {
  std::string notice;    ///< why there is no way to show; empty when there is one
  std::string question;  ///< "Why is 2/0/2/scores.out[0,7] NaN?"
  std::string conclusion;
  std::string stopped;
  std::vector<WhyHop> hops;

  /// The hop that is at the selected place: of those the one at `preferred`, else the first.
  std::optional<std::size_t> find(const Selection& selection, std::optional<std::size_t> preferred = {}) const;
};

WhyStory tell_why(RunView& run, const WhyPath& path);

/// The way back from the selected element, else from the first bad one of the selected tensor. What
/// is no tensor is answered by a notice. Errors: rows cannot be read.
Result<PreparedPtr> prepare_why(RunFacts& facts, const Selection& selection);

}  // namespace nanscope::gui
