#include <algorithm>
#include <array>
#include <utility>

#include "core/dump/warnings/warning.h"

namespace nanscope {

namespace dump_warnings {
#define NANSCOPE_DUMP_WARNING(function, id, text) \
  std::vector<Watched> find_##function(DumpFacts& facts, const IsWatched& watched);
#include "core/dump/warnings/warnings.def"
#undef NANSCOPE_DUMP_WARNING
}  // namespace dump_warnings

namespace {
constexpr std::array kKinds = {
#define NANSCOPE_DUMP_WARNING(function, id, text) WarningKind{id, text, dump_warnings::find_##function},
#include "core/dump/warnings/warnings.def"
#undef NANSCOPE_DUMP_WARNING
};
}  // namespace

std::span<const WarningKind> all_warning_kinds() { return kKinds; }

std::vector<Warning> warnings_of(DumpFacts& facts, const IsWatched& watched) {
  std::vector<Warning> warnings;
  for (const WarningKind& kind : all_warning_kinds()) {
    std::vector<Watched> found = kind.find(facts, watched);
    if (found.empty()) continue;
    const auto worst = std::max_element(found.begin(), found.end(),
                                        [](const Watched& a, const Watched& b) { return a.severity < b.severity; });
    warnings.push_back({std::string(kind.kind), facts.where(worst->tensor), facts.tensor(worst->tensor).name,
                        std::move(worst->evidence), std::move(worst->summary), std::move(worst->advice),
                        static_cast<std::int64_t>(found.size()) - 1});
  }
  return warnings;
}

}  // namespace nanscope
