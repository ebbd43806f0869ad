#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "instrument/dump/producers/producer.h"
#include "instrument/dump/producers/text.h"

/// The forward hooks of SGLang (python/sglang/srt/debug_utils/tensor_dump_forward_hook.py) and of servers that took
/// them over: a folder a process, TP0_PP0_Rank0_pid77, and a file a forward pass in it, Pass00003.pt, a dictionary of
/// what each module returned: a tensor, or a list of them.
///
/// A file is written when `model` returns. What runs after it (the head, the sampler) is therefore found in the next
/// file, beside the modules of the next pass; here it is given back to the pass that it belongs to.
namespace nanscope {
namespace {

struct PassFile {
  std::string folder;
  std::int64_t pass = 0;
  std::optional<std::int64_t> rank;
};

std::optional<PassFile> pass_of(const DumpFile& file) {
  if (!file.shown.ends_with(".pt")) return std::nullopt;
  const std::string stem = file.stem();
  const auto pass = number_after(stem, "Pass");
  if (!pass) return std::nullopt;
  PassFile found{file.folder(), *pass, std::nullopt};
  const std::string last = found.folder.substr(found.folder.rfind('/') + 1);
  for (const std::string_view part : split_at(last, "_")) {
    if (const auto rank = number_after(part, "Rank")) found.rank = rank;
  }
  if (found.rank) found.folder = found.folder.substr(0, found.folder.size() - last.size());
  if (found.folder.ends_with('/')) found.folder.pop_back();
  return found;
}

/// Modules that run after `model` returned, and its own output.
bool after_the_model(std::string_view key) { return key != "model" ? !key.starts_with("model.") : true; }

class ForwardPasses final : public Producer {
 public:
  std::string_view name() const override { return "SGLang forward hooks"; }

  void look(const DumpListing& listing, const ProducerOptions&, ProducerFindings&) override {
    for (const DumpFile& file : listing.files) {
      const auto pass = pass_of(file);
      if (!pass) continue;
      const auto [first, isnew] = first_.emplace(file.folder(), pass->pass);
      if (!isnew) first->second = std::min(first->second, pass->pass);
    }
  }

  bool claims(const DumpFile& file) const override { return pass_of(file).has_value(); }

  Naming name_of(const DumpFile& file, const Container& container, std::size_t tensor) override {
    const PassFile at = pass_of(file).value_or(PassFile{});
    std::string key = container.tensors()[tensor].key;
    const std::size_t batch = key.rfind(".forward_batch_info.");
    std::int64_t pass = at.pass;
    if (batch != std::string::npos) {
      key = key.substr(batch + std::string_view(".forward_batch_info.").size());
    } else {
      if (holds_the_pass_before(file, container) && after_the_model(key)) {
        --pass;
        moved_.insert(key);
      }
      key = with_port(key);
    }
    std::string folder = at.folder;
    if (at.rank) folder = joined_path(folder, fmt::format("rank_{}", *at.rank));
    Naming naming;
    naming.name = joined_path(joined_path(folder, fmt::format("pass_{}", pass)), key);
    return naming;
  }

  void finish(ProducerFindings& findings) override {
    if (moved_.empty()) return;
    findings.notes.push_back({*moved_.begin(),
                              "what runs after `model` is stored with the next pass, and was given "
                              "back to its own"});
  }

 private:
  /// Only where the first file of a process has nothing that runs after `model`, and only behind it. Files come in
  /// natural order, so that the first of a process is looked at before the others.
  bool holds_the_pass_before(const DumpFile& file, const Container& container) {
    const auto first = first_.find(file.folder());
    const bool is_first = first != first_.end() && pass_of(file).value_or(PassFile{}).pass == first->second;
    if (!is_first) return !whole_.contains(file.folder());
    if (!looked_at_.insert(file.shown).second) return false;
    const auto tensors = container.tensors();
    const bool whole = std::any_of(tensors.begin(), tensors.end(), [](const ContainedTensor& one) {
      return one.key.find(".forward_batch_info.") == std::string::npos && after_the_model(one.key);
    });
    if (whole) whole_.insert(file.folder());
    return false;
  }

  /// "model.norm" returned one tensor, "model.norm.1" is the second of several, "layers.1" is a layer.
  static std::string with_port(const std::string& key) {
    const std::size_t dot = key.rfind('.');
    if (dot == std::string::npos || !natural_number(std::string_view(key).substr(dot + 1))) return key + ".output";
    const std::string_view before = std::string_view(key).substr(0, dot);
    const std::string_view container = before.substr(before.rfind('.') + 1);
    for (const std::string_view list : {"layers", "h", "blocks", "block", "experts", "to_out"}) {
      if (container == list) return key + ".output";
    }
    return fmt::format("{}.output.{}", before, key.substr(dot + 1));
  }

  std::map<std::string, std::int64_t> first_;  ///< pass of each process' folder
  std::set<std::string> looked_at_;            ///< first files
  std::set<std::string> whole_;                ///< folders whose first file has all of its pass
  std::set<std::string> moved_;
};

}  // namespace

std::unique_ptr<Producer> forward_passes_producer() { return std::make_unique<ForwardPasses>(); }

}  // namespace nanscope
