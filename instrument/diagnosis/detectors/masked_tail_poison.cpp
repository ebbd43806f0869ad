#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/diagnosis/detectors/casts_of_kind.h"

namespace nanscope {
namespace {

bool nobodys(const KeyRow& key) { return !key.in_context || key.position < 0; }

/// Who left what such a slot holds, where the history of the cache says.
std::string left_by(Survey& survey, const Birth& birth) {
  const auto left = std::find_if(birth.keys.begin(), birth.keys.end(),
                                 [](const KeyRow& key) { return nobodys(key) && key.writer != nullptr; });
  if (left == birth.keys.end()) return {};
  return fmt::format(", left by {}{}", left->writer->writer.empty() ? "" : left->writer->writer + " of ",
                     request_name(survey, left->writer->step));
}

}  // namespace

/// NaN from slots that nobody wrote, or that lie behind the end of the sequence: a probability of zero times NaN is
/// NaN.
Findings detect_masked_tail_poison(Survey& survey) {
  Findings out;
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    if (birth.read == 0) continue;
    const auto count = std::count_if(birth.keys.begin(), birth.keys.end(), nobodys);
    if (count == 0) continue;
    Finding finding = finding_at(survey, i);
    // Where other keys hold NaN too, these need not be the reason.
    const bool all = count == static_cast<std::ptrdiff_t>(birth.keys.size());
    finding.rank = all ? Rank::counted : Rank::resemblance;
    finding.fault.certainty = all ? Certainty::shown : Certainty::possible;
    // Slots of nobody may hold anything: the first that is bad of somebody is what was made of them.
    finding.shows_in = finding.tensor;
    const Tensor& read = *survey.run().tensor(birth.read);
    const std::string reader = finding.fault.tensor;
    finding.fault.evidence = {{"keys", static_cast<std::int64_t>(count)},
                              {"key", std::find_if(birth.keys.begin(), birth.keys.end(), nobodys)->position},
                              {"read", survey.facts.name_of(read)},
                              {"rows", static_cast<std::int64_t>(birth.rows.size())}};
    finding.fault.tensor = read.name.empty() ? finding.fault.tensor : read.name;
    finding.fault.summary = fmt::format(
        "{} of {} {} NaN from {} of {} that the sequence never wrote, behind its end{}: masking makes their "
        "probability zero, and zero times NaN is NaN",
        counted(birth.rows.size(), "row"), reader, birth.rows.size() == 1 ? "takes" : "take", counted(count, "slot"),
        survey.facts.name_of(read), left_by(survey, birth));
    finding.fault.fix =
        "read only slots of the context, select instead of multiplying by zero, or clear blocks when they are handed "
        "out";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  exclude(out, survey, "no NaN is read from a slot that its sequence did not write");
  return out;
}

}  // namespace nanscope
