#include "scenarios/divided_scan.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace nanscope::scenarios {
namespace {

/// A division by passes is even if no share is larger than the mean by more than one part in so many. A division by
/// tensors, which opens all files, is then not worth its time.
constexpr std::int64_t kEven = 10;

void add_files(FactKeyMaker& maker, const DumpListing& listing) {
  for (const DumpFile& file : listing.files) {
    if (is_text_file(file)) continue;
    maker.add(file.shown).add(static_cast<std::int64_t>(file.state.size));
    maker.add(file.state.modified_s).add(file.state.modified_ns);
  }
}

/// The numbers of the costs of each share.
std::vector<std::vector<std::size_t>> deal(const std::vector<std::int64_t>& costs, std::int64_t parts) {
  std::vector<std::size_t> order(costs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<std::vector<std::size_t>> dealt(static_cast<std::size_t>(parts));
  using Load = std::pair<std::int64_t, std::size_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (std::size_t i = 0; i < dealt.size(); ++i) least.emplace(0, i);
  for (const std::size_t i : order) {
    auto [load, index] = least.top();
    least.pop();
    dealt[index].push_back(i);
    least.emplace(load + costs[i], index);
  }
  // In the order of the dump, as files lie.
  for (std::vector<std::size_t>& share : dealt) std::sort(share.begin(), share.end());
  return dealt;
}

std::set<std::string> names_of(const DumpListing& listing, const std::vector<const PassFiles*>& passes) {
  std::set<std::string> names;
  for (const PassFiles* pass : passes) {
    for (const std::size_t i : pass->files) names.insert(listing.files[i].shown);
  }
  return names;
}

}  // namespace

Result<std::unique_ptr<DividedScan>> DividedScan::open(const std::filesystem::path& path, OpenRunOptions options,
                                                       const DivideOptions& dividing) {
  std::unique_ptr<DividedScan> made(new DividedScan());
  if (!looks_like_recording(path.string())) {
    auto listing = list_dump(path, options.follow_links);
    if (!listing) return tl::unexpected(listing.error());
    FactKeyMaker maker("dump");
    add_files(maker, *listing);
    if (!options.model.empty()) {
      const auto model = list_dump(options.model, true);
      if (model) add_files(maker, *model);
    }
    made->key_ = maker.key();
    made->listing_ = std::move(*listing);
  }
  made->path_ = path;
  made->files_at_once_ = dividing.files_at_once;
  made->recompute_ = dividing.recompute;
  const auto overrides = Overrides::find(path, options.follow_links);
  const bool plain = overrides && !*overrides && made->listing_.files.size() > dividing.files_at_once;
  made->options_ = std::move(options);
  if (plain && made->divide_files(dividing)) return made;
  OpenRunOptions whole = made->options_;
  if (!made->listing_.files.empty()) whole.listing = std::move(made->listing_);
  auto opened = OpenScan::open(path, std::move(whole));
  if (!opened) return tl::unexpected(opened.error());
  made->scan_ = std::move(*opened);
  made->divide_facts(dividing);
  return made;
}

bool DividedScan::divide_files(const DivideOptions& dividing) {
  files_ = files_by_pass(listing_);
  if (!files_ || files_->outside.size() > dividing.files_at_once) return false;
  std::vector<const PassFiles*> all;
  for (const auto* some : {&files_->passes, &files_->outside}) {
    for (const PassFiles& one : *some) all.push_back(&one);
  }
  std::vector<std::int64_t> costs;
  std::int64_t total = 0;
  for (const PassFiles* one : all) {
    costs.push_back(static_cast<std::int64_t>(one->bytes) + kEachTensor * static_cast<std::int64_t>(one->files.size()));
    total += costs.back();
    bytes_ += one->bytes;
  }
  std::int64_t most = 0;
  for (const std::vector<std::size_t>& dealt : deal(costs, dividing.parts)) {
    ScanShare& share = shares_.emplace_back();
    for (const std::size_t i : dealt) share.passes.push_back(all[i]), share.cost += costs[i];
    most = std::max(most, share.cost);
  }
  const std::int64_t mean = total / dividing.parts;
  if (most <= mean + mean / kEven) return true;
  shares_.clear();
  files_.reset();
  bytes_ = 0;
  return false;
}

void DividedScan::divide_facts(const DivideOptions& dividing) {
  const std::vector<ScanPiece> pieces = scan_->pieces();
  bytes_ = scan_->bytes();
  std::vector<std::int64_t> costs;
  for (const ScanPiece& piece : pieces) costs.push_back(piece.cost);
  for (const std::vector<std::size_t>& dealt : deal(costs, dividing.parts)) {
    ScanShare& share = shares_.emplace_back();
    for (const std::size_t i : dealt) {
      const ScanPiece& piece = pieces[i];
      share.piece.tensors.insert(share.piece.tensors.end(), piece.tensors.begin(), piece.tensors.end());
      if (recompute_) share.piece.outputs.insert(share.piece.outputs.end(), piece.outputs.begin(), piece.outputs.end());
      share.cost += piece.cost;
    }
    std::sort(share.piece.tensors.begin(), share.piece.tensors.end());
    std::sort(share.piece.outputs.begin(), share.piece.outputs.end());
  }
}

Result<ScanCounts> DividedScan::work_on(const std::vector<const PassFiles*>& passes, const DumpFacts& known,
                                        const FactSink& sink, const std::stop_token& stop,
                                        const std::function<void(std::int64_t)>& more,
                                        const std::function<void(const RunNote& note)>& unread) const {
  OpenRunOptions opening = options_;
  opening.stop = stop;
  opening.listing = files_->listing_of(listing_, passes);
  auto scan = OpenScan::open(path_, std::move(opening));
  if (!scan) return tl::unexpected(scan.error());
  if (unread) {
    for (const RunNote& note : (*scan)->run().unread()) unread(note);
  }
  ScanPiece piece = (*scan)->piece_of(names_of(listing_, passes));
  if (!recompute_) piece.outputs.clear();
  if (Status worked = (*scan)->work(piece, known, sink, stop, more); !worked) return tl::unexpected(worked.error());
  return ScanCounts{static_cast<std::int64_t>(piece.tensors.size()), static_cast<std::int64_t>(piece.outputs.size()),
                    (*scan)->bytes()};
}

Result<ScanCounts> DividedScan::work(const ScanShare& share, const DumpFacts& known, const FactSink& sink,
                                     std::stop_token stop,
                                     const std::function<void(std::int64_t done, std::int64_t total)>& progress,
                                     const std::function<void(const RunNote& note)>& unread) const {
  std::int64_t done = 0;
  const auto more = [&](std::int64_t cost) {
    done += cost;
    if (progress) progress(std::min(done, share.cost), share.cost);
  };
  if (!by_files()) {
    for (const RunNote& note : scan_->run().unread()) {
      if (unread) unread(note);
    }
    if (Status worked = scan_->work(share.piece, known, sink, stop, more); !worked)
      return tl::unexpected(worked.error());
    return ScanCounts{static_cast<std::int64_t>(share.piece.tensors.size()),
                      static_cast<std::int64_t>(share.piece.outputs.size()), bytes_};
  }
  ScanCounts counts;
  std::vector<const PassFiles*> batch;
  std::size_t files = 0;
  for (const PassFiles* pass : share.passes) {
    batch.push_back(pass);
    files += pass->files.size();
    if (files < files_at_once_ && pass != share.passes.back()) continue;
    const auto worked = work_on(batch, known, sink, stop, more, unread);
    if (!worked) return tl::unexpected(worked.error());
    counts.tensors += worked->tensors;
    counts.outputs += worked->outputs;
    counts.bytes += worked->bytes;
    batch.clear();
    files = 0;
  }
  return counts;
}

}  // namespace nanscope::scenarios
