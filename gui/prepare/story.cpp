#include "gui/prepare/story.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/counted.h"
#include "gui/prepare/subject.h"
#include "scenarios/report/diagnosis_report.h"

namespace nanscope::gui {
namespace {

StoryNumbers numbers_of(const std::vector<Evidence>& evidence) {
  StoryNumbers numbers;
  for (const Evidence& item : evidence) numbers.emplace_back(words(item.name), to_string(item.value));
  return numbers;
}

/// From what a diagnosis says to what can be selected.
class Targets {
 public:
  explicit Targets(RunView* run) : run_(run) {
    if (run == nullptr || run->info().device != kDumpDevice) return;
    add(kBeforeSteps);
    for (const Step& step : run->steps()) add(step.id);
  }

  std::optional<Selection> of(const Where& where, const std::string& tensor) const {
    const auto named = by_name_.find(tensor);
    if (named != by_name_.end() && named->second != where.tensor_id) {
      Selection target = of(*run_->tensor(named->second), where);
      tell_call(target, named->second);
      return target;
    }
    if (where.op.empty()) return std::nullopt;
    Selection target = selection_of(where);
    if (!by_name_.empty()) tell_call(target, where.tensor_id);
    // The ledger speaks of "k" and "v"; what was stored under the scale are the codes.
    const bool ledger = where.tensor_id == 0 && (where.role == "k" || where.role == "v");
    if (ledger) target.place.role += "_codes";
    return target;
  }

 private:
  void add(StepId step) {
    for (const Tensor& tensor : run_->content(step).tensors) {
      if (tensor.known && !tensor.name.empty()) by_name_.emplace(tensor.name, tensor.id);
    }
  }

  /// Where the place alone leads to another tensor: a call of the same function.
  void tell_call(Selection& target, TensorId wanted) const {
    const Tensor* tensor = wanted != 0 ? run_->tensor(wanted) : nullptr;
    if (tensor == nullptr) return;
    const Result<Subject> first = find_subject(*run_, target.place);
    if (first && first->op.id != tensor->op && first->op.name == target.place.op) target.call = tensor->op;
  }

  /// The tensor that is named, at the tokens that are told where its rows are tokens.
  Selection of(const Tensor& tensor, const Where& where) const {
    Place asked;
    asked.request = where.request;
    asked.step = where.step;
    asked.rank = where.rank;
    const SpanOfStep at = find_span(*run_, asked);
    const bool same = at.step != nullptr && at.step->id == tensor.step;
    const Subject subject = subject_of(*run_, tensor, same ? at.span : nullptr);
    Selection target{tensor_place(subject), std::nullopt};
    asked.token = where.tokens ? std::optional(where.tokens->first) : std::nullopt;
    const bool tokens = tensor.axis != Axis::none && tensor.axis != Axis::slots;
    if (same && tokens && row_of(subject, asked)) target.place.token = asked.token;
    return target;
  }

  RunView* run_;
  std::map<std::string, TensorId> by_name_;
};

bool is_nan_kind(const std::string& kind) {
  return kind.find("nan") != std::string::npos || kind.find("inf") != std::string::npos || kind == "token";
}

/// The chain of a diagnosis; without one its faults, each of which is an event.
std::vector<Event> chain_of(const Diagnosis& diagnosis) {
  if (!diagnosis.chain.empty()) return diagnosis.chain;
  std::vector<Event> chain;
  for (std::size_t i = 0; i < diagnosis.faults.size(); ++i) {
    const Fault& fault = diagnosis.faults[i];
    chain.push_back({fault.fault_class, fault.where, fault.tensor, fault.summary, fault.evidence, fault.because, i});
  }
  return chain;
}

void tell_chain(const Diagnosis& diagnosis, const std::vector<Event>& chain, const Targets& targets, Story& story) {
  bool nan = false;
  const auto root = std::find_if(chain.begin(), chain.end(), [&](const Event& event) {
    return event.fault && event.fault == diagnosis.root_cause;
  });
  const auto causes = root == chain.end() ? std::size_t{1} : static_cast<std::size_t>(root - chain.begin()) + 1;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const Event& event = chain[i];
    const Fault* fault = event.fault ? &diagnosis.faults[*event.fault] : nullptr;
    nan = nan || is_nan_kind(event.kind) || (fault != nullptr && fault->breaks);
    StoryLink link;
    link.number = static_cast<int>(i) + 1;
    link.title = words(event.kind);
    link.summary = event.text;
    link.tone = i < causes ? LinkTone::cause : nan ? LinkTone::nan : LinkTone::damage;
    link.place = named_place(event.tensor, event.where);
    link.target = targets.of(event.where, event.tensor);
    if (link.target) link.target->link = link.number;
    link.evidence = numbers_of(event.evidence);
    if (event.because) link.because = static_cast<int>(*event.because) + 1;
    link.fault = event.fault;
    story.links.push_back(std::move(link));
  }
}

/// To be called when links and faults are told.
void tell_events(const Diagnosis& diagnosis, const std::vector<Event>& chain, Story& story) {
  std::vector<bool> told(story.faults.size());
  for (std::size_t i = 0; i < story.links.size(); ++i) {
    const StoryLink& link = story.links[i];
    if (link.fault) told[*link.fault] = true;
    if (link.target) story.events.push_back({chain[i].where.op_id, link.title, *link.target});
  }
  const auto others = static_cast<std::ptrdiff_t>(story.events.size());
  for (std::size_t i = 0; i < story.faults.size(); ++i) {
    const StoryFault& fault = story.faults[i];
    if (told[i] || !fault.target) continue;
    story.events.push_back({diagnosis.faults[i].where.op_id, fault.fault_class, *fault.target});
  }
  std::stable_sort(story.events.begin() + others, story.events.end(),
                   [](const StoryEvent& a, const StoryEvent& b) { return a.op < b.op; });
}

void tell_faults(const Diagnosis& diagnosis, const Targets& targets, Story& story) {
  for (std::size_t i = 0; i < diagnosis.faults.size(); ++i) {
    const Fault& fault = diagnosis.faults[i];
    story.faults.push_back({fault.fault_class, fault.tensor, place_text(fault.where),
                            targets.of(fault.where, fault.tensor), fault.summary, fault.fix, fault.because,
                            diagnosis.root_cause == i});
  }
  if (diagnosis.root_cause) {
    const Fault& root = diagnosis.faults[*diagnosis.root_cause];
    story.headline = root.fault_class;
    story.cause = root.summary;
    story.certainty = report::certainty_text(root);
    story.fix = root.fix;
    story.settings = report::settings_text(root);
    story.origin = targets.of(root.where, root.tensor);
  }
  const auto birth = std::find_if(diagnosis.faults.begin(), diagnosis.faults.end(), [](const Fault& fault) {
    return fault.breaks && fault.where.request.value_or(0) >= 0;  // what nobody asked for breaks nothing
  });
  if (birth != diagnosis.faults.end()) story.origin = targets.of(birth->where, birth->tensor);
}

/// The origin is a link of the chain, where one is at its place.
void name_origin(Story& story) {
  if (!story.origin) return;
  const auto same = std::find_if(story.links.begin(), story.links.end(), [&](const StoryLink& link) {
    return link.target && link.target->place == story.origin->place;
  });
  if (same != story.links.end()) story.origin->link = same->number;
}

void tell_checks(const Diagnosis& diagnosis, const Targets& targets, Story& story) {
  for (const Check& check : diagnosis.checks) {
    if (check.state == Checked::excluded) story.excluded.push_back({check.fault_class, check.text});
    if (check.state == Checked::not_in_dump) story.not_in_dump.push_back({check.fault_class, check.text});
    if (check.state == Checked::not_looked_at) story.not_looked_at.push_back({check.fault_class, check.text});
  }
  for (const Warning& warning : diagnosis.warnings) {
    story.warnings.push_back({warning.kind, named_place(warning.tensor, warning.where),
                              targets.of(warning.where, warning.tensor), warning.summary, warning.advice,
                              warning.more});
  }
}

std::string capitalised(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z')
    text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text;
}

void tell_coverage(const Diagnosis& diagnosis, Story& story) {
  if (!diagnosis.unread.empty()) story.coverage.push_back("Not read: " + report::unread_text(diagnosis));
  story.coverage.push_back(report::coverage_text(diagnosis));
  if (std::string gaps = report::gaps_text(diagnosis); !gaps.empty()) story.coverage.push_back("Unjudged: " + gaps);
  if (!diagnosis.coverage.next_step.empty()) story.coverage.push_back("Next: " + diagnosis.coverage.next_step);
  const Completeness& whole = diagnosis.completeness;
  if (whole.interrupted) {
    const std::string place = whole.reached.empty() ? "" : " at " + whole.reached + ",";
    const std::string ops = counted(whole.expected > 0 ? whole.expected : whole.read, "op");
    story.coverage.push_back(whole.expected > 0
                                 ? fmt::format("The recording ends{} after {} of {}", place, whole.read, ops)
                                 : fmt::format("The recording ends{} after {}, before the run did", place, ops));
  } else if (whole.expected > whole.read) {
    story.coverage.push_back(fmt::format("{} were read of {} that there should be", whole.read, whole.expected));
  }
  story.notes = diagnosis.notes;
}

}  // namespace

Selection selection_of(const Where& where) {
  Selection selection;
  Place& place = selection.place;
  place.request = where.request;
  place.step = where.step;
  place.rank = where.rank;
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

std::string named_place(const std::string& tensor, const Where& where) {
  std::string place = place_text(where);
  const std::string whole = tensor_text(where);
  if (tensor.empty() || tensor == whole) return place;
  return place.starts_with(whole) ? tensor + place.substr(whole.size()) : tensor;
}

Story make_story(const Diagnosis& diagnosis, RunView* run) {
  const Targets targets(run);
  Story story;
  story.verdict = diagnosis.verdict();
  story.headline = story.verdict == Verdict::fault ? "Faults found, the cause is unknown"
                                                   : capitalised(report::verdict_words(diagnosis));
  const std::vector<Event> chain = chain_of(diagnosis);
  tell_faults(diagnosis, targets, story);
  tell_chain(diagnosis, chain, targets, story);
  tell_checks(diagnosis, targets, story);
  tell_coverage(diagnosis, story);
  tell_events(diagnosis, chain, story);
  name_origin(story);
  const Spread& spread = diagnosis.spread;
  story.first_bad = spread.first_bad_tensor;
  story.bad_tokens = spread.bad_tokens;
  story.tokens = spread.tokens;
  story.spread =
      fmt::format("{}{} of {} tokens bad", spread.at_least ? "at least " : "", spread.bad_tokens, spread.tokens);
  return story;
}

}  // namespace nanscope::gui
