/// Assigns each sequence of a pass to a request: to one of an earlier pass, or to a new one.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "core/dump/pass_builder.h"
#include "core/dump/slot_history.h"

namespace nanscope {

namespace {

/// How many of the first blocks are the same.
std::int64_t shared_blocks(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return std::mismatch(a.begin(), a.begin() + count, b.begin()).first - a.begin();
}

/// Whether the keys that place the rows of a frame may be `end` tokens and the tail of a cache's last block.
bool ends_in_a_tail(const Frame& frame, std::int64_t end) {
  static constexpr std::int64_t kSmallestBlock = 8;
  static constexpr std::int64_t kLargestBlock = 256;
  return frame.keys % kSmallestBlock == 0 && end >= frame.seen && end <= frame.keys && frame.keys - end < kLargestBlock;
}

}  // namespace

std::int64_t PassBuilder::request_by_name(const std::string& name) {
  return requests_.emplace(name, static_cast<std::int64_t>(requests_.size())).first->second;
}

/// The pass without its step and rank: passes of one such name are steps of the same requests.
std::string PassBuilder::request_folder(Index any) const {
  TensorName at = tensor(any).at;
  at.step.reset();
  at.rank.reset();
  return at.pass();
}

/// Integers of the pass that are of no layer; of the first layer where each has them.
std::optional<std::vector<std::int64_t>> PassBuilder::integers_of_pass(std::string_view role, std::int64_t& width) {
  for (const auto& [scope, members] : roles_) {
    if (!scope.tower.empty()) continue;
    const auto found = members.find({std::string(role), Form::value});
    if (found == members.end()) continue;
    const DumpTensor& one = tensor(found->second);
    if (one.count() > kMostContext) return std::nullopt;
    width = one.shape.size() == 2 ? one.shape[1] : 0;
    return integers_of(one);
  }
  return std::nullopt;
}

/// The blocks that each sequence of the pass uses: what its row of the block table says up to its context. Empty where
/// the size of a block does not show.
std::vector<std::vector<std::int64_t>> PassBuilder::blocks_of_sequences() {
  std::vector<std::vector<std::int64_t>> blocks;
  SlotMap map;
  std::int64_t width = 0;
  if (auto slots = integers_of_pass("slot_mapping", width)) map.slots = std::move(*slots);
  if (auto table = integers_of_pass("block_table", width)) map.table = std::move(*table);
  map.table_width = width;
  const auto sequences = static_cast<std::int64_t>(frame_.spans.size());
  if (map.slots.empty() || width <= 0 || static_cast<std::int64_t>(map.table.size()) < sequences * width) return blocks;
  Step step;
  step.spans = frame_.spans;
  // Few rows may fit several sizes; that of the passes before is tried first.
  const bool as_before = block_size_ > 0 && has_block_size(map, step, block_size_);
  const std::int64_t size = as_before ? block_size_ : block_size_of(map, step);
  if (size <= 0) return blocks;
  for (std::int64_t s = 0; s < sequences; ++s) {
    const std::int64_t context = frame_.spans[static_cast<std::size_t>(s)].context;
    const auto row = map.table.begin() + s * width;
    blocks.emplace_back(row, row + std::min(width, (context + size - 1) / size));
  }
  block_size_ = size;
  return blocks;
}

/// The request whose blocks a sequence continues. A request that shares only a prefix does not count. If there is none,
/// the sequence is a new request.
std::int64_t PassBuilder::request_with_blocks(const RankRequests& rank, const std::string& folder, std::size_t sequence,
                                              const std::vector<std::int64_t>& blocks,
                                              const std::vector<std::int64_t>& taken) {
  const Span& span = frame_.spans[sequence];
  const std::int64_t usual = request_by_name(fmt::format("{}#{}", folder, sequence));
  const auto is_of = [&](const Held& held) {
    const auto both = static_cast<std::int64_t>(std::min(held.blocks.size(), blocks.size()));
    return both > 0 && shared_blocks(held.blocks, blocks) == both;
  };
  const auto is_free = [&](std::int64_t request) {
    return std::find(taken.begin(), taken.end(), request) == taken.end();
  };
  const auto own = rank.held.find(usual);
  const bool begins = span.first_token == 0 && own != rank.held.end();
  if (own == rank.held.end() || (is_free(usual) && !begins && is_of(own->second))) return usual;
  std::optional<std::int64_t> found;
  for (const auto& [request, held] : rank.held) {
    if (held.folder != folder || begins || !is_free(request) || !is_of(held)) continue;
    if (!found || held.context == span.first_token) found = request;
  }
  return found ? *found : request_by_name(fmt::format("{}#new{}.{}", folder, rank.passes, sequence));
}

/// The request that wrote the cached prefix of a new sequence; -1 if there is none.
std::int64_t PassBuilder::prefix_of(const RankRequests& rank, const std::string& folder, std::int64_t request,
                                    const Span& span, const std::vector<std::int64_t>& blocks) const {
  const std::int64_t whole = block_size_ > 0 ? span.first_token / block_size_ : 0;
  std::int64_t found = -1;
  for (const auto& [other, held] : rank.held) {
    // One that took a prefix from another did not write it either.
    if (held.folder != folder || other == request || held.prefix_of >= 0 || held.context < whole * block_size_)
      continue;
    if (whole > 0 && shared_blocks(held.blocks, blocks) >= whole) found = other;
  }
  return found;
}

std::vector<std::int64_t> PassBuilder::requests_of(std::int64_t of_rank, Index any) {
  const std::string folder = request_folder(any);
  RankRequests& rank = rank_requests_[of_rank];
  ++rank.passes;
  std::int64_t width = 0;
  const auto ids = integers_of_pass("request_ids", width);
  const auto blocks = blocks_of_sequences();
  std::vector<std::int64_t> requests;
  for (std::size_t s = 0; s < frame_.spans.size(); ++s) {
    std::int64_t request = 0;
    if (ids && ids->size() >= frame_.spans.size()) {
      request = request_by_name(fmt::format("{}@{}", folder, (*ids)[s]));
    } else if (!blocks.empty()) {
      request = request_with_blocks(rank, folder, s, blocks[s], requests);
    } else {
      request = request_by_name(fmt::format("{}#{}", folder, s));
    }
    requests.push_back(request);
  }
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    Span& span = frame_.spans[s];
    const auto known = rank.held.find(requests[s]);
    span.prefix_of =
        known == rank.held.end() ? prefix_of(rank, folder, requests[s], span, blocks[s]) : known->second.prefix_of;
    rank.held[requests[s]] = {folder, blocks[s], span.context, span.prefix_of};
  }
  return requests;
}

/// The requests of the pass's sequences, and where they stand after the passes before.
void PassBuilder::continue_requests(std::int64_t rank, Index any) {
  const TensorName& at = tensor(any).at;
  const std::vector<std::int64_t> requests = requests_of(rank, any);
  for (std::size_t s = 0; s < frame_.spans.size(); ++s) {
    Span& span = frame_.spans[s];
    span.request = requests[s];
    auto& [steps, context] = progress_[span.request * 4096 + rank];
    span.index = at.step && frame_.spans.size() == 1 ? std::max(steps, *at.step) : steps;
    const std::int64_t missed = span.index - steps;  // a token for every step that was not dumped
    const bool counts_on = missed <= kMostContext - context;
    const std::int64_t next = counts_on ? context + missed : 0;
    if (!counts_on && context > 0 && !frame_.placed) {
      run_.not_understood_.push_back({tensor(any).name, "its step is no count of tokens"});
    }
    if (span.rows == 1 && counts_on && context > 0 && (!frame_.placed || ends_in_a_tail(frame_, next + span.rows))) {
      span.first_token = next;
      span.context = next + 1;
    }
    steps = span.index + 1;
    context = span.context;
  }
}

}  // namespace nanscope
