#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/numbers/anatomy.h"
#include "core/numbers/rounding.h"
#include "gui/cell.h"
#include "gui/prepare/prepared.h"
#include "gui/prepare/subject.h"
#include "gui/selection.h"

/// One element down to its bits, on its way through a format.
namespace nanscope::gui {

/// A formula with raised exponents and real signs: "2^-3 x 5" as "2\u207B\u00B3 \u00D7 5".
std::string typeset(std::string_view formula);

/// The element at one point of its way.
struct BitsStage {
  std::string title;  ///< "Before storing", "Stored", "Read back", "Scale of the block", "Value"
  Selection target;
  Anatomy anatomy;
  Cell tone = kHealthyFirst;  ///< NaN, Inf, clipped or healthy
  bool selected = false;      ///< it is what the selection names
  std::string next;           ///< what happens on the way to the stage below; empty for the last
};

/// The representable values around the element, on an axis from 0 to 1.
struct Ruler {
  struct Mark {
    std::uint32_t code = 0;
    std::string value;
    float at = 0;
    bool stored = false;
  };
  std::vector<Mark> marks;   ///< empty when there is nothing to measure by
  std::vector<float> meets;  ///< where buckets meet
  float bucket_begin = 0;    ///< what lies between is stored as the same code
  float bucket_end = 0;
  float value_at = 0;
  std::string value;
  bool broken = false;  ///< the value lies beyond the range, not to scale
};

/// Elements that share a code, or an exponent where the format has too many codes.
struct CodeBin {
  std::string name;  ///< "0x7e", "2^-3"
  std::string values;
  std::uint64_t count = 0;
  Cell tone = kHealthyFirst;
};
struct Histogram {
  std::vector<CodeBin> bins;  ///< ascending in value, NaN last
  bool by_exponent = false;
  std::size_t ordered = 0;  ///< bins of numbers; those of NaN follow
  std::uint64_t elements = 0;
  std::uint64_t most = 0;             ///< in one bin
  std::optional<std::size_t> chosen;  ///< the bin of the element
};

struct BitsSheet final : Prepared {
  std::string notice;  ///< why nothing is shown; then the rest is empty
  std::string advice;
  std::string choice;  ///< which element was taken when the selection names none
  std::vector<BitsStage> stages;
  std::size_t main = 0;  ///< the stage that ruler and histogram speak of
  std::string verdict;   ///< what storing did: "clipped, 43.6 % lost"
  std::string bucket;    ///< why it fell where it fell
  std::string lost;      ///< how much, in real values
  std::string origin;    ///< of what is read back though no recorded op stored it
  std::string block;     ///< who of its block set the scale, and what that cost the others
  Ruler ruler;
  Histogram histogram;

  const BitsStage& stage() const { return stages[main]; }
};

/// The element that a place names, else the worst: of its row, of the tensor. For codes of the KV cache
/// also the value before storing and the one read back, for what is read back also what was stored; of block
/// quantisation, and of weights under scales, the code, the scale of its block and who of the block set it.
/// Errors: rows that cannot be read.
Result<BitsSheet> make_bits_sheet(RunView& run, const Place& place, std::int64_t call = 0);

/// Around a cast, or around a value that is stored as it is.
Ruler make_ruler(const Rounding& rounding);

/// Formats of at most 8 bits by code, wider ones by exponent. `clips`: values were clipped.
Histogram make_histogram(const TensorData& elements, std::uint32_t chosen, bool clips);

}  // namespace nanscope::gui
