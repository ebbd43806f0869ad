#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gui/prepare/bits_sheet.h"

/// An element beside its twin: the same place in another run.
namespace nanscope::gui {

/// A stage that both have.
struct StagePair {
  std::string title;
  std::string words;                    ///< "equal bits", "0x7e here, 0x40 there: 3 of 8 bits differ, 62 ulp apart"
  std::optional<std::uint32_t> differ;  ///< bits that do; nothing when the formats differ
};

struct BitsPair final : Prepared {
  BitsSheet here;
  std::optional<BitsSheet> there;  ///< nothing stands beside, or the twin cannot be shown
  std::string label;               ///< of the other run; empty when nothing stands beside
  std::vector<StagePair> stages;
  std::string words;  ///< how the selected element differs, or why there is no twin

  const StagePair* stage(std::string_view title) const;
};

/// Codes of one format by their bits and by how far they are apart, others by their values.
StagePair compare_stages(const BitsStage& here, const BitsStage& there);

/// The twin of the element that `here` speaks of. Errors: rows of the other run cannot be read.
Result<BitsPair> make_bits_pair(BitsSheet here, RunView& there, std::string label);

}  // namespace nanscope::gui
