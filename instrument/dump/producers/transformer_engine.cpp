#include <fmt/format.h>

#include <array>

#include "instrument/dump/producers/producer.h"
#include "instrument/dump/producers/text.h"

/// TransformerEngine's DumpTensors (transformer_engine/debug/features/dump_tensors.py):
/// tensor_dumps/rank_0/iter_000100/LAYER_TENSOR.pt, of earlier versions
/// tensor_dumps/rank_0/LAYER_TENSOR_iter_000100.pt, a dictionary whose `high_precision` is the tensor before it was
/// quantized. `quantized` is a pickled object of TransformerEngine itself: a file that holds one cannot be read without
/// it. Dots in a layer's name became '_'.
namespace nanscope {
namespace {

struct Kind {
  std::string_view suffix;
  std::string_view port;
};
constexpr std::array kKinds = {Kind{"_activation", ".input"},  Kind{"_weight", ".weight"}, Kind{"_output", ".output"},
                               Kind{"_gradient", ".gradient"}, Kind{"_wgrad", ".wgrad"},   Kind{"_dgrad", ".dgrad"}};

struct Module {
  std::string_view written;
  std::string_view name;
};
/// Ends of a layer's name, the longest of each first.
constexpr std::array kModules = {
    Module{"self_attention_layernorm_qkv", "self_attention.layernorm_qkv"},
    Module{"self_attention_linear_qkv", "self_attention.linear_qkv"},
    Module{"self_attention_linear_proj", "self_attention.linear_proj"},
    Module{"self_attention_qkv", "self_attention.qkv"},
    Module{"self_attention_proj", "self_attention.proj"},
    Module{"layernorm_mlp_fc1", "layernorm_mlp.fc1"},
    Module{"layernorm_mlp_fc2", "layernorm_mlp.fc2"},
    Module{"mlp_linear_fc1", "mlp.linear_fc1"},
    Module{"mlp_linear_fc2", "mlp.linear_fc2"},
    Module{"layernorm_qkv", "layernorm_qkv"},
    Module{"linear_qkv", "linear_qkv"},
    Module{"linear_proj", "linear_proj"},
    Module{"linear_fc1", "linear_fc1"},
    Module{"linear_fc2", "linear_fc2"},
    Module{"qkv", "qkv"},
    Module{"proj", "proj"},
    Module{"fc1", "fc1"},
    Module{"fc2", "fc2"},
};

struct NameParts {
  std::string folder;
  std::string layer;  ///< as it is written
  Kind kind{};
};

/// Nothing for files that are not named like this.
std::optional<NameParts> name_parts(const DumpFile& file) {
  if (!file.shown.ends_with(".pt")) return std::nullopt;
  NameParts parts{file.folder(), file.stem(), {}};
  const auto folders = split_at(parts.folder, "/");
  bool rank = false;
  for (const std::string_view one : folders) rank = rank || number_after(one, "rank_");
  bool step = number_after(folders.back(), "iter_").has_value();
  const std::size_t tail = parts.layer.rfind("_iter_");
  if (!step && tail != std::string::npos && natural_number(std::string_view(parts.layer).substr(tail + 6))) {
    parts.folder = joined_path(parts.folder, parts.layer.substr(tail + 1));
    parts.layer = parts.layer.substr(0, tail);
    step = true;
  }
  if (!rank || !step) return std::nullopt;
  for (const Kind& kind : kKinds) {
    if (!parts.layer.ends_with(kind.suffix)) continue;
    parts.layer.resize(parts.layer.size() - kind.suffix.size());
    parts.kind = kind;
    return parts;
  }
  return std::nullopt;
}

/// "decoder_layers_3_self_attention_proj" as "layers.3.self_attention.proj".
std::string dotted(const std::string& layer) {
  for (const Module& module : kModules) {
    if (!layer.ends_with(module.written)) continue;
    std::string before = layer.substr(0, layer.size() - module.written.size());
    if (before.ends_with('_')) before.pop_back();
    const std::size_t number = before.rfind('_');
    if (number == std::string::npos || !natural_number(std::string_view(before).substr(number + 1))) break;
    return fmt::format("layers.{}.{}", before.substr(number + 1), module.name);
  }
  return layer;
}

class TransformerEngine final : public Producer {
 public:
  std::string_view name() const override { return "TransformerEngine DumpTensors"; }
  void look(const DumpListing&, const ProducerOptions&, ProducerFindings&) override {}
  bool claims(const DumpFile& file) const override { return name_parts(file).has_value(); }

  Naming name_of(const DumpFile& file, const Container& container, std::size_t tensor) override {
    const NameParts parts = name_parts(file).value_or(NameParts{});
    const std::string& key = container.tensors()[tensor].key;
    Naming naming;
    naming.name = joined_path(parts.folder, dotted(parts.layer));
    naming.name += parts.kind.port;
    if (key != "high_precision" && !key.empty()) naming.name += '.' + key;
    return naming;
  }
};

}  // namespace

std::unique_ptr<Producer> transformer_engine_producer() { return std::make_unique<TransformerEngine>(); }

}  // namespace nanscope
