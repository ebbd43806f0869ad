#include <fmt/format.h>

#include <map>

#include "instrument/dump/producers/producer.h"
#include "instrument/dump/producers/text.h"

/// SGLang's dumper (python/sglang/srt/debug_utils/dumper.py): a file a tensor, EXPERIMENT/TAGS.pt, where the tags are
/// key=value joined by "___", `step`, `rank`, `dump_index` and `name` among them, and the file holds a dictionary of
/// `value` and `meta`. dump_index counts up through the life of a process, which is the order of execution.
namespace nanscope {
namespace {

constexpr std::string_view kJoin = "___";

using Tags = std::map<std::string, std::string, std::less<>>;

/// Nothing for names of other files. A name may hold "__" but no "___" and no '='.
std::optional<Tags> tags_of(const DumpFile& file) {
  if (!file.shown.ends_with(".pt")) return std::nullopt;
  Tags tags;
  const std::string stem = file.stem();
  for (const std::string_view part : split_at(stem, kJoin)) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    tags.emplace(part.substr(0, equals), part.substr(equals + 1));
  }
  if (!tags.contains("name") || !tags.contains("dump_index")) return std::nullopt;
  return tags;
}

/// What hooks of its own prefix, and parameters, are called.
std::string module_name(std::string name) {
  for (const std::string_view prefix : {"non_intrusive__", "param__"}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

class SglangDumper final : public Producer {
 public:
  std::string_view name() const override { return "SGLang dumper"; }
  void look(const DumpListing&, const ProducerOptions&, ProducerFindings&) override {}
  bool claims(const DumpFile& file) const override { return tags_of(file).has_value(); }

  Naming name_of(const DumpFile& file, const Container& container, std::size_t tensor) override {
    const Tags tags = tags_of(file).value_or(Tags{});
    const auto tag = [&](std::string_view key) {
      const auto found = tags.find(key);
      return found == tags.end() ? std::string() : found->second;
    };
    Naming naming;
    std::string folder = file.folder();
    for (const std::string_view place : {"step", "rank"}) {
      if (natural_number(tag(place))) folder = joined_path(folder, fmt::format("{}_{}", place, tag(place)));
    }
    std::string key = module_name(tag("name"));
    const std::string& stored = container.tensors()[tensor].key;
    // A dictionary or list was dumped: its parts have keys of their own.
    if (stored.starts_with("value.")) key += stored.substr(std::string_view("value").size());
    const std::string layer = tag("layer_id");
    const bool says_layer = parse_tensor_name(key).layer.has_value();
    if (natural_number(layer) && !says_layer) key = fmt::format("layers.{}.{}", layer, key);
    naming.name = joined_path(folder, key);
    naming.order = natural_number(tag("dump_index"));
    if (tag("name").starts_with("grad__")) naming.note = "a gradient";
    if (const std::string state = tag("recompute_status"); !state.empty() && state != "disabled") {
      naming.note = "recompute_status " + state;
    }
    return naming;
  }
};

}  // namespace

std::unique_ptr<Producer> sglang_dumper_producer() { return std::make_unique<SglangDumper>(); }

}  // namespace nanscope
