#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/tokenizer/bpe_model.h"

namespace nanscope {

/// Learns byte-pair merges from a text: GPT-2's split into pieces, then again and again the pair of
/// neighbouring tokens that occurs most often in them becomes a token. Pairs that occur equally
/// often are taken in order of their ids, (left, right) ascending, so the result depends on the
/// text alone. Token ids: the 256 bytes in GPT-2's order, then the merges as they are learned.
/// Stops early when no pair occurs twice.
Result<std::vector<BpeMerge>> train_bpe(std::string_view text, int merge_count);

/// A tokenizer.json of those merges, with `specials` behind them as special tokens.
std::string tokenizer_json(const std::vector<BpeMerge>& merges, const std::vector<std::string>& specials);

}  // namespace nanscope
