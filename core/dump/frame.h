#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/dump/dump.h"
#include "core/run/run.h"

/// Whose rows the rows of a pass are: batches, flattened sequences, padding, decode rows of many requests.
namespace nanscope {

/// The longest context that a dump is believed: beyond it, lengths and positions are what nobody wrote.
constexpr std::int64_t kMostContext = std::int64_t{1} << 24;

/// What the ids, masks, positions and lengths of a pass say. Spans have no requests yet.
struct Frame {
  std::int64_t rows = 0;   ///< of the pass's activations; 0 when it has none
  std::int64_t batch = 1;  ///< sequences of rows / batch frame positions each
  std::vector<Span> spans;
  bool placed = false;    ///< the dump says at which positions they stand; else they begin where the pass before ended
  std::int64_t keys = 0;  ///< that scores go over, where these alone place the rows; a block's tail may be among them
  std::int64_t seen = 0;  ///< of those keys, up to the last that is known to be seen; small probabilities become zero
  std::vector<RunNote> notes = {};  ///< lengths and positions that no sequence has, which place nothing
};

/// Integers of a small tensor; nothing when they cannot be read.
using ReadIntegers = std::function<std::optional<std::vector<std::int64_t>>(const DumpTensor&)>;

/// The first elements of a tensor as numbers; nothing when they cannot be read.
using ReadValues = std::function<std::optional<std::vector<float>>(const DumpTensor&, std::int64_t count)>;

Frame frame_of(std::span<const DumpTensor* const> pass, const ReadIntegers& read, const ReadValues& values = {});

}  // namespace nanscope
