#include "instrument/diagnosis/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "core/counted.h"

namespace nanscope {
namespace {

/// Steps that judge what is not judged for a reason: the reason holds one of the words.
struct NextStep {
  std::string_view word;
  std::string_view step;
};
constexpr NextStep kNextSteps[] = {
    {"weight", "give the checkpoint: nanscope verify DUMP --model DIR"},
    {"config.json", "give the checkpoint: nanscope verify DUMP --model DIR"},
    {"sinks", "give the checkpoint: nanscope verify DUMP --model DIR"},
    {"cache", "dump the KV caches and their block tables"},
    {"scale", "dump the quantization scales"},
    {"mask", "dump the attention mask"},
    {"token ids", "dump the token ids"},
    {"codes", "dump the quantized codes"},
    {"reads as", "dump the inputs of each module, not its outputs alone"},
    {"inputs", "dump the inputs of each module, not its outputs alone"},
    {"was not dumped", "dump the inputs of each module, not its outputs alone"},
    {"were not dumped", "dump the inputs of each module, not its outputs alone"},
};

std::string next_step_of(const std::vector<Coverage::Gap>& gaps) {
  std::map<std::string_view, std::int64_t> judged;
  for (const Coverage::Gap& gap : gaps) {
    const auto found = std::find_if(std::begin(kNextSteps), std::end(kNextSteps), [&](const NextStep& one) {
      return gap.reason.find(one.word) != std::string::npos;
    });
    if (found != std::end(kNextSteps)) judged[found->step] += gap.outputs;
  }
  const auto most =
      std::max_element(judged.begin(), judged.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == judged.end() ? std::string() : std::string(most->first);
}

/// Integers that a module was given, such as token ids and positions: no arithmetic of the model makes them.
bool given_integers(RunView& run, const Tensor& tensor) {
  const Op* op = run.maker(tensor);
  const bool given =
      tensor.name.find(".input") != std::string::npos || tensor.name.find(".kwargs.") != std::string::npos;
  return given && op != nullptr && op->kind == OpKind::dumped && tensor.format == Format::i32;
}

/// Cosines and sines that a module of the dump made: without the model's configuration nothing says what they should
/// be.
template <class AddGap>
void add_tables(Survey& survey, const AddGap& add_gap) {
  for (const Step& step : survey.run().steps()) {
    for (const Tensor& tensor : survey.run().content(step.id).tensors) {
      const bool table = (tensor.role == "cos" || tensor.role == "sin") && tensor.known;
      if (table && tensor.name.find(".output") != std::string::npos)
        add_gap(tensor.id, "its angles take the model's config.json");
    }
  }
}

/// Adds the tensors of one rank of a dump that each of its steps has but one: they were lost, or that step did not
/// compute them. The first step has no past.
void add_absent(RunView& run, std::int64_t rank, Coverage& coverage) {
  std::map<std::string, std::vector<StepId>> having;  // by name within the step
  std::map<StepId, std::string> folders;
  std::set<StepId> steps;
  std::set<std::string> of_past;
  for (const Step& step : run.steps()) {
    if (step.id == kBeforeSteps || step.rank != rank) continue;
    for (const Tensor& tensor : run.content(step.id).tensors) {
      if (tensor.name.empty()) continue;
      steps.insert(step.id);
      const std::size_t folder = tensor.name.rfind('/') + 1;  // npos + 1 is 0
      folders.emplace(step.id, tensor.name.substr(0, folder));
      const std::string name = tensor.name.substr(folder);
      if (tensor.role == "past_length" || tensor.role.ends_with("_cache")) of_past.insert(name);
      std::vector<StepId>& known = having[name];
      if (known.empty() || known.back() != step.id) known.push_back(step.id);
    }
  }
  if (steps.size() < 2) return;
  for (const auto& [name, in] : having) {
    if (in.size() + 1 != steps.size() || of_past.contains(name)) continue;
    const std::set<StepId> with(in.begin(), in.end());
    std::vector<StepId> without;
    std::set_difference(steps.begin(), steps.end(), with.begin(), with.end(), std::back_inserter(without));
    if (coverage.absent++ == 0) coverage.first_absent = folders[without.front()] + name;
  }
}

void add_absent(RunView& run, Coverage& coverage) {
  if (run.info().device != kDumpDevice) return;
  std::set<std::int64_t> ranks;
  for (const Step& step : run.steps()) ranks.insert(step.rank);
  for (const std::int64_t rank : ranks) add_absent(run, rank, coverage);
}

}  // namespace

Coverage coverage_of(Survey& survey) {
  Coverage coverage;
  RunView& run = survey.run();
  std::map<std::string, Coverage::Gap> gaps;
  std::set<TensorId> seen;
  const auto add_gap = [&](TensorId id, const std::string& reason) {
    const Tensor* tensor = run.tensor(id);
    if (tensor == nullptr || !seen.insert(id).second || given_integers(run, *tensor)) return;
    ++coverage.outputs;
    Coverage::Gap& gap = gaps[reason];
    if (gap.outputs++ == 0) gap.example = survey.facts.name_of(*tensor);
    gap.reason = reason;
  };
  for (const TensorId id : survey.not_understood) add_gap(id, "no known arithmetic gives what was dumped");
  for (const Recomputed& result : survey.tables) {
    if (!seen.insert(result.tensor).second) continue;
    ++coverage.outputs;
    ++coverage.judged;
  }
  add_tables(survey, add_gap);
  for (const Recomputed& result : survey.recomputer.results()) {
    if (!seen.insert(result.tensor).second) continue;
    ++coverage.outputs;
    ++coverage.judged;
    if (result.open > 0) ++coverage.in_part;
  }
  for (const NotRecomputed& one : survey.recomputer.not_recomputed()) add_gap(one.tensor, one.reason);
  if (!survey.recomputing) {
    for (const Step& step : run.steps()) {
      for (const Tensor& tensor : run.content(step.id).tensors) {
        const Op* maker = tensor.known && tensor.count() > 0 ? run.maker(tensor) : nullptr;
        if (maker != nullptr && maker->kind != OpKind::parameter) add_gap(tensor.id, "recomputation was switched off");
      }
    }
  }
  for (auto& [reason, gap] : gaps) coverage.gaps.push_back(std::move(gap));
  std::stable_sort(coverage.gaps.begin(), coverage.gaps.end(),
                   [](const Coverage::Gap& a, const Coverage::Gap& b) { return a.outputs > b.outputs; });
  const std::vector<RunNote> notes = run.notes();
  coverage.unknown_names =
      std::count_if(notes.begin(), notes.end(), [](const RunNote& note) { return note.is_unknown_name(); });
  add_absent(run, coverage);
  // The engine makes a recording's ops again with their weights.
  const bool recorded = run.info().device != kDumpDevice;
  coverage.next_step = !recorded               ? next_step_of(coverage.gaps)
                       : coverage.gaps.empty() ? std::string()
                                               : "recompute all of it bit for bit: nanscope replay RECORDING";
  return coverage;
}

std::vector<UnreadPart> unread_parts(Facts& facts, const std::vector<RunNote>& notes) {
  std::vector<UnreadPart> parts;
  for (const UnreadElements& one : facts.run.unread()) {
    const Tensor* tensor = facts.run.tensor(one.tensor);
    parts.push_back({tensor != nullptr ? facts.name_of(*tensor) : fmt::format("tensor {}", one.tensor), one.text});
  }
  for (const RunNote& note : notes) {
    if (note.is_unread()) parts.push_back({note.tensor, note.text.substr(RunNote::kNotRead.size())});
  }
  return parts;
}

void withdraw_exclusions(std::vector<Check>& checks, std::size_t unread) {
  for (Check& check : checks) {
    if (check.state != Checked::excluded) continue;
    check.state = Checked::not_looked_at;
    check.text = fmt::format("{} could not be read", counted(static_cast<std::int64_t>(unread), "part"));
  }
}

}  // namespace nanscope
