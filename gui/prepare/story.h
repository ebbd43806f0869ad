#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/run/run_view.h"
#include "gui/cell.h"
#include "gui/prepare/prepared.h"
#include "gui/selection.h"
#include "instrument/diagnosis/diagnosis.h"

namespace nanscope::gui {

/// Name and number.
using StoryNumbers = std::vector<std::pair<std::string, std::string>>;

/// What a link of the chain is, which its colour says.
enum class LinkTone : std::uint8_t {
  cause,   ///< the root of all that follows, and what led to it
  damage,  ///< numbers that lose their meaning
  nan,     ///< NaN and Inf, and what came of them
};

/// An event of the diagnosis' chain.
struct StoryLink {
  int number = 0;  ///< from 1
  std::string title;
  std::string summary;
  LinkTone tone = LinkTone::damage;
  std::string place;  ///< the tensor as its producer wrote it, else its place; empty when the event is nowhere
  std::optional<Selection> target;
  StoryNumbers evidence;
  int because = 0;                   ///< number of the link that led to it; 0: a root
  std::optional<std::size_t> fault;  ///< index in Story::faults
};

struct StoryFault {
  std::string fault_class;
  std::string tensor;  ///< as the producer wrote it, or its place
  std::string place;
  std::optional<Selection> target;
  std::string summary;
  std::string fix;
  std::optional<std::size_t> because;  ///< index in Story::faults; nothing: a root
  bool root_cause = false;
};

/// A class of faults that was not found, and why that can be said.
struct StoryCheck {
  std::string fault_class;
  std::string text;
};

struct StoryWarning {
  std::string kind;
  std::string place;
  std::optional<Selection> target;
  std::string summary;
  std::string advice;
  std::int64_t more = 0;  ///< tensors that show the same, less
};

/// Something worth a stop.
struct StoryEvent {
  std::int64_t op = 0;  ///< OpRow::id; 0 where it is of none
  std::string title;
  Selection target;
};

/// The diagnosis as it is told: what happened, where, and by which numbers; what was looked for in vain, and what was
/// not looked at.
struct Story final : Prepared {
  Verdict verdict = Verdict::nothing_to_judge;
  std::string headline;   ///< "kv-scale-locked", "No fault found in 12 tokens; 3 of 40 outputs could not be judged"
  std::string cause;      ///< one sentence; empty when there is none
  std::string certainty;  ///< of the cause: "proved: counted in the values, ..."
  std::string fix;
  std::string settings;  ///< of servers, that avoid it
  std::string spread;
  std::string first_bad;  ///< tensor; empty when nothing is bad
  std::int64_t bad_tokens = 0;
  std::int64_t tokens = 0;
  std::vector<StoryLink> links;
  std::vector<StoryFault> faults;
  std::vector<StoryWarning> warnings;
  std::vector<StoryCheck> excluded;     ///< with the figure that says so
  std::vector<StoryCheck> not_in_dump;  ///< with what to capture
  std::vector<StoryCheck> not_looked_at;
  std::vector<std::string> coverage;  ///< sentences
  std::vector<RunNote> notes;         ///< names and files that were not understood or not read
  std::vector<StoryEvent> events;     ///< the links of the chain in their order, then other faults by op
  std::optional<Selection> origin;    ///< where NaN or Inf is born

  bool healthy() const { return faults.empty() && verdict != Verdict::damaged; }
};

/// The place of a finding with its first token and channel.
Selection selection_of(const Where& where);
/// "calibrated_tokens" as "calibrated tokens".
std::string words(std::string name);
/// A tensor as its producer wrote it, with the element of its place; else its place.
std::string named_place(const std::string& tensor, const Where& where);

/// Where a diagnosis names a dumped tensor, one goes to that tensor. `run` is null where there are only names of
/// places.
Story make_story(const Diagnosis& diagnosis, RunView* run = nullptr);

}  // namespace nanscope::gui
