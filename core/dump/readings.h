#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/diagnosis/scales.h"
#include "core/dump/quantized.h"

/// How codes were read: in which format, and with the scale applied how often. The reading that gives back what
/// was dumped is the one that the server used.
namespace nanscope {

/// real = decode(code in `format`) x scale^power.
struct Reading {
  Format format = Format::e4m3;
  int power = 1;

  bool operator==(const Reading&) const = default;
};

/// What the readings of one tensor of codes say about another tensor that was made of it (or that it was made of).
struct ReadingReport {
  TensorIndex codes = 0;
  std::optional<TensorIndex> scale;
  TensorIndex shown = 0;  ///< the tensor that was reproduced
  std::string how;        ///< "read back", "stored from", "x W' + b", "q k'", "p v"
  Reading proper;         ///< the format that the dump states, the scale once
  Reading best;
  double proper_share = 0;  ///< of the elements looked at that it reproduces
  double best_share = 0;
  double scale_value = 0;    ///< the first, where there is one
  std::size_t elements = 0;  ///< looked at

  /// Another reading gives the dumped numbers, and the proper one does not.
  bool wrong() const { return !(best == proper) && best_share >= 0.9 && proper_share <= 0.5 && elements >= 8; }
};

/// All that the dump allows to try, in order of what is shown.
std::vector<ReadingReport> reading_reports(DumpFacts& facts);

}  // namespace nanscope
