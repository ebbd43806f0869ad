#include "gui/prepare/bits_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/numbers/bits_input.h"
#include "instrument/diagnosis/compare.h"

namespace nanscope::gui {
namespace {

std::string value_of(const Anatomy& anatomy) {
  if (anatomy.kind == NumberClass::nan) return "NaN";
  if (anatomy.kind == NumberClass::inf) return anatomy.negative ? "-Inf" : "Inf";
  return fmt::format("{:.9g}", anatomy.value);
}

const BitsStage& selected(const BitsSheet& sheet) {
  const auto at =
      std::find_if(sheet.stages.begin(), sheet.stages.end(), [](const BitsStage& stage) { return stage.selected; });
  return at == sheet.stages.end() ? sheet.stage() : *at;
}

/// The same element, not another one in whose stead the worst was taken.
bool same_element(const BitsStage& here, const BitsStage& there) { return here.target.place == there.target.place; }

}  // namespace

const StagePair* BitsPair::stage(std::string_view title) const {
  const auto at =
      std::find_if(stages.begin(), stages.end(), [&](const StagePair& pair) { return pair.title == title; });
  return at == stages.end() ? nullptr : &*at;
}

StagePair compare_stages(const BitsStage& here, const BitsStage& there) {
  const Anatomy& a = here.anatomy;
  const Anatomy& b = there.anatomy;
  StagePair pair;
  pair.title = here.title;
  if (a.format != b.format) {
    pair.words = fmt::format("{} {} here, {} {} there", name(a.format), value_of(a), name(b.format), value_of(b));
    return pair;
  }
  pair.differ = a.code ^ b.code;
  if (*pair.differ == 0) {
    pair.words = "equal bits";
    return pair;
  }
  pair.words = fmt::format("{} here, {} there: {} of {} bits differ", bits::code_text(a.format, a.code),
                           bits::code_text(b.format, b.code), std::popcount(*pair.differ), info(a.format).bits);
  if (const auto ulps = ulp_distance(a.format, a.code, b.code)) pair.words += fmt::format(", {} ulp apart", *ulps);
  return pair;
}

Result<BitsPair> make_bits_pair(BitsSheet here, RunView& there, std::string label) {
  BitsPair pair;
  pair.label = std::move(label);
  pair.here = std::move(here);
  if (pair.here.stages.empty()) return pair;
  const BitsStage& chosen = selected(pair.here);
  Result<BitsSheet> twin = make_bits_sheet(there, chosen.target.place);
  if (!twin) return tl::unexpected(twin.error());
  if (twin->stages.empty()) {
    pair.words = fmt::format("the other run has no such element: {}", twin->notice);
    return pair;
  }
  if (!same_element(chosen, selected(*twin))) {
    pair.words = "the other run has no such element";
    return pair;
  }
  for (const BitsStage& stage : pair.here.stages) {
    for (const BitsStage& other : twin->stages) {
      if (stage.title == other.title) pair.stages.push_back(compare_stages(stage, other));
    }
  }
  pair.words = compare_stages(chosen, selected(*twin)).words;
  pair.there = std::move(*twin);
  return pair;
}

}  // namespace nanscope::gui
