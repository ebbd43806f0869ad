#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/dump/pass_builder.h"
#include "instrument/dump/open_dump.h"

/// A checkpoint beside a dump: its weights are those that the ops of the dump are fed with.
namespace nanscope {
namespace {

/// Of whichever pass a weight lies in.
std::string key_of(const DumpTensor& tensor) {
  TensorName at = tensor.at;
  at.run.clear();
  at.rank.reset();
  return parameter_key(at, at.known ? at.op : at.module, at.role, at.form);
}

bool is_weight(const DumpTensor& tensor) { return tensor.at.role == "weight" || tensor.at.role == "bias"; }

}  // namespace

bool OpenDump::of_checkpoint(const DumpTensor& tensor) const {
  return first_of_checkpoint_ && tensor.source >= *first_of_checkpoint_;
}

Status OpenDump::add_checkpoint(const std::filesystem::path& folder, std::vector<NamedTensor> merged) {
  Result<DumpListing> listing = list_dump(folder, true);
  if (!listing) return tl::unexpected(listing.error());
  first_of_checkpoint_ = sources_.size();
  if (!merged.empty()) {
    auto container = memory_container(std::move(merged));
    if (!container) return tl::unexpected(container.error());
    add_tensors(std::shared_ptr<Container>(std::move(*container)), {.path = {}, .shown = "adapter/merged", .state = {}},
                nullptr);
  }
  const std::size_t before = sources_.size();
  const bool sharded = std::any_of(listing->files.begin(), listing->files.end(),
                                   [](const DumpFile& file) { return file.shown == "model.safetensors.index.json"; });
  for (DumpFile& file : listing->files) {
    const bool read = sharded ? file.shown == "model.safetensors.index.json" : file.shown == "model.safetensors";
    if (!read) continue;
    file.shown = "checkpoint/" + file.shown;
    follow_links_ = true;  // the hub keeps its files elsewhere
    const Result<bool> opened = open_file(file, nullptr);
    if (!opened) return tl::unexpected(opened.error());
  }
  add_tied_head();
  if (sources_.size() == before)
    return fail(folder.string() + ": neither model.safetensors nor model.safetensors.index.json is there");
  return {};
}

/// Files leave a head out that is the embedding's table.
void OpenDump::add_tied_head() {
  const DumpTensor* table = nullptr;
  for (const DumpTensor& tensor : dump_.tensors) {
    if (!of_checkpoint(tensor) || tensor.at.role != "weight") continue;
    if (tensor.at.op == "lm_head") return;
    if (tensor.at.op == "embed") table = &tensor;
  }
  if (table == nullptr) return;
  DumpTensor head = *table;
  head.at = parse_tensor_name("checkpoint/lm_head.weight");
  dump_.tensors.push_back(std::move(head));
}

void OpenDump::replace_weights() {
  std::map<std::string, DumpTensor> own;
  for (const DumpTensor& tensor : dump_.tensors) {
    if (of_checkpoint(tensor)) own.emplace(key_of(tensor), tensor);
  }
  std::set<std::size_t> gone;
  for (const DumpTensor& tensor : dump_.tensors) {
    if (of_checkpoint(tensor) || !is_weight(tensor)) continue;
    const auto found = own.find(key_of(tensor));
    if (found == own.end()) continue;
    replaced_.push_back({tensor, found->second});
    gone.insert(tensor.source);
  }
  std::erase_if(dump_.tensors, [&](const DumpTensor& tensor) { return gone.contains(tensor.source); });
}

}  // namespace nanscope
