#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/containers/strict_json.h"
#include "instrument/dump/producers/msprobe_tensors.h"
#include "instrument/dump/producers/producer.h"
#include "instrument/dump/producers/statistics_only.h"
#include "instrument/dump/producers/text.h"
#include "instrument/files/file.h"
#include "instrument/files/read_budget.h"

/// transformers' model_addition_debugger_context() with its default use_repr=True (model_debugging_utils.py): a tree of
/// calls as MODEL_debug_tree_FULL_TENSORS.json, and without the printed values as ..._SUMMARY.json. Each tensor has its
/// shape, and where it is real its mean, std, min and max. With use_repr=False the tensors lie in files, which are read
/// as plain ones.
namespace nanscope {
namespace {

constexpr int kDeepestTree = 10;  ///< three levels of JSON each, of the 32 that a document may have
constexpr std::string_view kFull = "_debug_tree_FULL_TENSORS.json";
constexpr std::string_view kSummary = "_debug_tree_SUMMARY.json";

struct Measured {
  std::string key;
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  Health health;
};

/// "tensor(2.9795e+00, dtype=torch.float16)".
std::optional<double> printed_number(const JsonView& tensor, std::string_view key) {
  constexpr std::string_view kBegin = "tensor(";
  const auto found = tensor.find(key);
  if (!found) return std::nullopt;
  const std::string text = found->text();
  if (!text.starts_with(kBegin)) return std::nullopt;
  const std::size_t end = text.find_first_of(",)", kBegin.size());
  if (end == std::string::npos) return std::nullopt;
  std::string number = text.substr(kBegin.size(), end - kBegin.size());
  if (number.ends_with('.')) number += '0';  // "0."
  return msprobe_number(number);
}

/// "torch.Size([1, 12, 64])".
std::optional<std::vector<std::int64_t>> printed_shape(std::string_view text) {
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return std::nullopt;
  std::vector<std::int64_t> shape;
  if (begin + 1 == end) return shape;
  for (const std::string_view part : split_at(text.substr(begin + 1, end - begin - 1), ", ")) {
    const auto extent = natural_number(part);
    if (!extent || shape.size() == kMaxDimensions) return std::nullopt;
    shape.push_back(*extent);
  }
  return shape;
}

/// The tensors of a tree, in the order in which they came.
class Tree {
 public:
  Tree(std::string file, std::uint64_t bytes) : file_(std::move(file)), budget_(bytes) {}

  Status read(const JsonView& node, int depth) {
    const auto path = node.find("module_path");
    if (!path || depth > kDeepestTree) return {};
    const std::string module = path->text().substr(0, path->text().find(" ("));
    if (const auto inputs = node.find("inputs")) {
      for (const auto& [side, values] : inputs->items()) {
        if (Status done = visit(values, module + ".input", 0); !done) return done;
      }
    }
    if (const auto children = node.find("children")) {
      for (const auto& [key, child] : children->items()) {
        if (Status done = read(child, depth + 1); !done) return done;
      }
    }
    const auto outputs = node.find("outputs");
    return outputs ? visit(*outputs, module + ".output", 0) : Status();
  }

  std::vector<Measured> take() { return std::move(tensors_); }

 private:
  Status visit(const JsonView& value, const std::string& key, int depth) {
    if (depth > kDeepestTree) return {};
    if (value.is_object() && value.find("shape") && value.find("dtype")) return add(value, key);
    std::size_t number = 0;
    const bool array = value.is_array();
    for (const auto& [name, item] : value.items()) {
      // Arguments by position are input, input.1, ...; the hidden states by name are the first.
      const bool first = array ? number == 0 : name.equals("hidden_states");
      const std::string part = array ? std::to_string(number) : name.text();
      ++number;
      if (!budget_.fits(key.size() + part.size() + 2)) return too_much();
      if (Status done = visit(item, first ? key : key + '.' + part, depth + 1); !done) return done;
    }
    return {};
  }

  Status add(const JsonView& value, const std::string& key) {
    Measured one{key, find_dtype(value.find("dtype")->text()), {}, {}};
    auto shape = printed_shape(value.find("shape")->text());
    const auto max = printed_number(value, "max");
    const auto min = printed_number(value, "min");
    if (one.dtype == nullptr || !shape || !max || !min) return {};
    const auto count = checked_count(*shape, *one.dtype);
    if (!count) return {};
    one.shape = std::move(*shape);
    one.health = measured_health(*count, *max, *min, printed_number(value, "mean"), std::nullopt);
    if (!budget_.take(3 * sizeof(Measured) + text_bytes(key.size()) + sizeof(std::int64_t) * one.shape.size()))
      return too_much();
    tensors_.push_back(std::move(one));
    return {};
  }

  tl::unexpected<Error> too_much() const {
    return fail(file_ + ": its tensors would take more than four times the file in memory, expected fewer");
  }

  std::string file_;
  ReadBudget budget_;
  std::vector<Measured> tensors_;
};

class TransformersDebugger final : public Producer {
 public:
  std::string_view name() const override { return "transformers debugger"; }

  void look(const DumpListing& listing, const ProducerOptions&, ProducerFindings& findings) override {
    std::set<std::string> full;
    for (const DumpFile& file : listing.files) {
      if (file.shown.ends_with(kFull)) full.insert(file.shown.substr(0, file.shown.size() - kFull.size()));
    }
    for (const DumpFile& file : listing.files) {
      const bool summary = file.shown.ends_with(kSummary);
      if (!summary && !file.shown.ends_with(kFull)) continue;
      // Both say the same.
      if (summary && full.contains(file.shown.substr(0, file.shown.size() - kSummary.size()))) continue;
      read(file, findings);
    }
  }

  bool claims(const DumpFile& file) const override { return trees_.contains(file.shown); }

  Result<std::unique_ptr<Container>> open(const DumpFile& file) override {
    auto container = std::make_unique<StatisticsOnly>();
    for (const Measured& one : trees_.at(file.shown)) container->add(one.key, one.dtype, one.shape);
    return container;
  }

  Naming name_of(const DumpFile& file, const Container&, std::size_t tensor) override {
    const Measured& one = trees_.at(file.shown)[tensor];
    Naming naming;
    naming.name = joined_path(file.folder(), one.key);
    naming.order = static_cast<std::int64_t>(tensor);
    naming.stated = one.health;
    return naming;
  }

  void finish(ProducerFindings& findings) override {
    for (const auto& [file, tensors] : trees_) {
      findings.notes.push_back({file, fmt::format("{} tensors were dumped as statistics alone: use_repr=False and "
                                                  "do_prune_layers=False dump them all",
                                                  tensors.size())});
    }
  }

 private:
  void read(const DumpFile& file, ProducerFindings& findings) {
    const auto text = map_file(file.path);
    if (!text) {
      findings.unread.push_back({file.shown, text.error().message});
      return;
    }
    // Of tensors in files, the tree says where they are.
    if (as_text(text->bytes).find(".safetensors\"") != std::string_view::npos) return;
    const auto root = parse_strict_json(as_text(text->bytes), file.path.string(), 0, {});
    Tree tree(file.path.string(), text->bytes.size());
    const Status done = root ? tree.read(*root, 0) : Status(tl::unexpected(root.error()));
    if (!done) {
      findings.unread.push_back({file.shown, done.error().message});
      return;
    }
    std::vector<Measured> tensors = tree.take();
    findings.expected += tensors.size();
    if (!tensors.empty()) trees_.emplace(file.shown, std::move(tensors));
  }

  std::map<std::string, std::vector<Measured>> trees_;  ///< by the file's name
};

}  // namespace

std::unique_ptr<Producer> transformers_debugger_producer() { return std::make_unique<TransformersDebugger>(); }

}  // namespace nanscope
