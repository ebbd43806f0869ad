#include "instrument/dump/pass_files.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/dump/name_words.h"
#include "core/dump/tensor_name.h"
#include "instrument/dump/producers/producer.h"

namespace nanscope {
namespace {

bool is_claimed(const DumpListing& listing) {
  ProducerFindings findings;
  const auto producers = make_producers();
  for (const auto& producer : producers) producer->look(listing, {}, findings);
  return std::any_of(listing.files.begin(), listing.files.end(), [&](const DumpFile& file) {
    return std::any_of(producers.begin(), producers.end(),
                       [&](const auto& producer) { return producer->claims(file); });
  });
}

/// Where the tensors of a file are, as OpenDump reads it from their names.
class Places {
 public:
  TensorName of(const DumpFile& file) {
    const std::string folder = file.folder();
    const auto [found, is_new] = folders_.try_emplace(folder);
    if (is_new) found->second = parse_tensor_name(folder.empty() ? "x" : folder + "/x");
    TensorName at = found->second;
    const std::string stem = file.stem();
    const TensorName own = parse_tensor_name(stem + "/x");
    if (!at.step) at.step = own.step ? own.step : step_in(stem);
    if (!at.rank) at.rank = own.rank;
    if (!at.request) at.request = own.request;
    return at;
  }

 private:
  std::unordered_map<std::string, TensorName> folders_;
};

struct Placed {
  bool in_step = false;
  std::optional<std::int64_t> rank;
  std::size_t pass = 0;
};

}  // namespace

std::optional<FilesByPass> files_by_pass(const DumpListing& listing) {
  if (is_claimed(listing)) return std::nullopt;
  Places places;
  std::vector<Placed> placed;
  std::unordered_map<std::string, std::size_t> passes;
  for (const DumpFile& file : listing.files) {
    const TensorName at = places.of(file);
    const std::size_t pass = passes.try_emplace(at.pass(), passes.size()).first->second;
    placed.push_back({at.step || at.request, at.rank, pass});
  }
  const bool steps = std::any_of(placed.begin(), placed.end(), [](const Placed& one) { return one.in_step; });
  FilesByPass found;
  std::vector<std::optional<std::size_t>> known(passes.size());
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const Placed& at = placed[i];
    const bool inside = steps ? at.in_step : at.rank.has_value();
    std::vector<PassFiles>& into = inside ? found.passes : found.outside;
    const bool begun = inside && known[at.pass];
    if (inside && !begun) known[at.pass] = into.size();
    if (!begun) into.push_back({at.rank, {}, 0});
    PassFiles& pass = inside ? into[*known[at.pass]] : into.back();
    pass.files.push_back(i);
    pass.bytes += listing.files[i].state.size;
  }
  return found;
}

DumpListing FilesByPass::listing_of(const DumpListing& whole, std::span<const PassFiles* const> passes) const {
  std::set<std::size_t> files;
  std::set<std::int64_t> ranks;
  for (const PassFiles* pass : passes) {
    files.insert(pass->files.begin(), pass->files.end());
    if (pass->rank) ranks.insert(*pass->rank);
  }
  for (const PassFiles& one : outside) {
    if (!one.rank || ranks.contains(*one.rank)) files.insert(one.files.begin(), one.files.end());
  }
  DumpListing some{.root = whole.root, .files = {}, .left_out = {}, .partial = true};
  for (const std::size_t i : files) some.files.push_back(whole.files[i]);
  return some;
}

}  // namespace nanscope
