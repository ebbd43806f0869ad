/// The scan of a dump's tensors, and the names of the facts that it gives.
#include <algorithm>
#include <set>
#include <utility>

#include "instrument/dump/open_dump.h"
#include "instrument/dump/scan.h"

namespace nanscope {
namespace {

void add_state(FactKeyMaker& maker, const FileState& state) {
  maker.add(static_cast<std::int64_t>(state.size)).add(state.modified_s).add(state.modified_ns);
}

/// Whether a health that was kept can be one of a tensor: the first NaN is looked up by its number.
bool fits(const Health& kept, const DumpTensor& tensor) {
  const auto count = static_cast<std::uint64_t>(tensor.count());
  return kept.count == count && kept.nan <= count && kept.pos_inf <= count && kept.neg_inf <= count &&
         kept.bad() <= count && kept.first_bad < tensor.count() && (kept.first_bad >= 0) == (kept.bad() > 0);
}

}  // namespace

std::optional<std::size_t> OpenDump::add_file(const DumpFile& file, const Container& container) {
  if (file.path.empty()) return std::nullopt;
  FactKeyMaker maker("file");
  maker.add(file.shown);
  add_state(maker, file.state);
  for (const std::filesystem::path& part : container.parts()) {
    const Result<FileState> state = state_of(part);
    maker.add(part.filename().string());
    // A part that is not there is listed as skipped: another that is there later is another state.
    add_state(maker, state ? *state : FileState{});
  }
  files_.push_back({file.shown, maker.key()});
  return files_.size() - 1;
}

bool OpenDump::is_scanned(const DumpTensor& tensor) const {
  return !sources_[tensor.source].stated && !of_checkpoint(tensor);
}

std::optional<FactKey> OpenDump::identity_of(const DumpTensor& tensor) const {
  const Source& source = sources_[tensor.source];
  if (!source.stored.file || source.stated) return std::nullopt;
  const ContainedTensor& contained = source.container->tensors()[source.tensor];
  FactKeyMaker maker("tensor");
  maker.add(files_[*source.stored.file].state).add(contained.key).add(static_cast<std::int64_t>(source.tensor));
  maker.add(static_cast<std::int64_t>(contained.offset)).add(tensor.dtype->name);
  maker.add(tensor.format ? name(*tensor.format) : std::string_view());
  for (const std::int64_t extent : tensor.shape) maker.add(extent);
  return maker.key();
}

std::optional<FactKey> OpenDump::fact_key(const DumpTensor& tensor, bool sums) const {
  const std::optional<FactKey> key = identity_of(tensor);
  if (!key) return std::nullopt;
  return FactKeyMaker("health").add(*key).add(std::int64_t{sums || is_parameter(tensor) ? 1 : 0}).key();
}

Status OpenDump::make_device(int threads) {
  Result<std::unique_ptr<kernels::Device>> device = kernels::make_cpu_device(kernels::Isa::best, threads);
  if (!device) return tl::unexpected(device.error());
  device_ = std::move(*device);
  return {};
}

Status OpenDump::scan_some(std::span<const std::size_t> tensors, const OpenDumpOptions& options,
                           const std::function<void(std::size_t tensor, const TensorFact& fact)>& found) {
  std::vector<DumpTensor*> scanned;
  std::uint64_t total = 0;
  for (const std::size_t index : tensors) {
    DumpTensor& tensor = dump_.tensors[index];
    scanned.push_back(&tensor);
    total += tensor.dtype->bytes(static_cast<std::uint64_t>(tensor.count()));
  }
  std::uint64_t sum = 0;
  ScanOptions scanning{options.threads, {}, options.stop, {}, {}};
  if (!options.sums) scanning.sums = [](const DumpTensor& tensor) { return is_parameter(tensor); };
  scanning.done = [&](std::size_t more) {
    sum += more;
    if (options.progress) options.progress(sum, total);
  };
  if (found) scanning.scanned = [&](std::size_t i) { found(tensors[i], TensorFact{scanned[i]->health, {}}); };
  const auto unscanned = scan_tensors(
      scanned, [&](std::size_t i) { return bytes(*scanned[i]); }, scanning);
  if (!unscanned) return tl::unexpected(unscanned.error());
  if (Status same = check(); !same) return same;
  for (const UnscannedTensor& one : *unscanned) {
    if (found) found(tensors[one.index], TensorFact{std::nullopt, one.reason});
  }
  return {};
}

Status OpenDump::scan(const OpenDumpOptions& options) {
  if (Status made = make_device(options.threads); !made) return made;
  if (options.known != nullptr) {
    if (Status same = options.known->check_files(files_); !same) return same;
  }
  std::vector<std::size_t> left;
  std::vector<std::pair<std::size_t, std::string>> unread;  // by index
  std::set<std::size_t> lost;                               // sources
  for (std::size_t i = 0; i < dump_.tensors.size(); ++i) {
    DumpTensor& tensor = dump_.tensors[i];
    if (const auto& stated = sources_[tensor.source].stated) {
      tensor.health = *stated;
      tensor.stated = true;
    }
    if (!options.scan || !is_scanned(tensor)) continue;
    const auto key = options.known != nullptr ? fact_key(tensor, options.sums) : std::nullopt;
    const TensorFact* known = key ? options.known->find(*key) : nullptr;
    if (known == nullptr && options.known_only) {
      not_looked_at_.push_back(tensor.name);
      lost.insert(tensor.source);
    } else if (known == nullptr) {
      left.push_back(i);
    } else if (known->health && !fits(*known->health, tensor)) {
      return fail(tensor.name + ": its fact is none of its elements: the file of facts is damaged; scan again");
    } else if (known->health) {
      tensor.health = *known->health;
    } else {
      unread.emplace_back(i, known->unread);
    }
  }
  const auto found = [&](std::size_t index, const TensorFact& fact) {
    if (!fact.health) unread.emplace_back(index, fact.unread);
  };
  if (Status scanned = scan_some(left, options, found); !scanned) return scanned;
  std::sort(unread.begin(), unread.end());
  for (auto& [index, reason] : unread) {
    unread_.push_back({dump_.tensors[index].name, std::move(reason)});
    lost.insert(dump_.tensors[index].source);
  }
  std::erase_if(dump_.tensors, [&](const DumpTensor& tensor) { return lost.contains(tensor.source); });
  return {};
}

}  // namespace nanscope
