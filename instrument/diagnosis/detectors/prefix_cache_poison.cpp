#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {

/// NaN from slots of the context that another request filled: a shared prefix.
Findings detect_prefix_cache_poison(Survey& survey) {
  Findings out;
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    if (birth.read == 0) continue;
    std::set<std::int64_t> writers;
    std::int64_t count = 0;
    for (const KeyRow& key : birth.keys) {
      if (!key.in_context || key.position < 0) continue;
      ++count;
      if (key.writer != nullptr) writers.insert(key.writer->request);
    }
    if (count == 0) continue;
    Finding finding = finding_at(survey, i);
    // Slots of the context that nobody is known to have written were filled by a request that was not dumped.
    finding.rank = writers.empty() ? Rank::counted : Rank::writer_named;
    finding.fault.certainty = Certainty::shown;
    const Tensor& read = *survey.run().tensor(birth.read);
    finding.fault.evidence = {
        {"keys", count}, {"read", survey.facts.name_of(read)}, {"rows", static_cast<std::int64_t>(birth.rows.size())}};
    if (!writers.empty()) finding.fault.evidence.push_back({"writer", *writers.begin()});
    finding.fault.tensor = read.name.empty() ? finding.fault.tensor : read.name;
    finding.fault.summary = fmt::format(
        "{} of its own prefix were bad in {} before it came: {} filled them, and {} read them", counted(count, "slot"),
        survey.facts.name_of(read),
        writers.empty() ? std::string("a request that was not dumped") : fmt::format("request {}", *writers.begin()),
        counted(birth.rows.size(), "row"));
    finding.fault.fix = "do not share blocks that hold NaN: check a block when it becomes part of the prefix cache";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  exclude(out, survey, "no NaN is read from a slot that another request wrote");
  return out;
}

}  // namespace nanscope
