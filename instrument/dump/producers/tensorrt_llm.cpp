#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "instrument/dump/producers/producer.h"
#include "instrument/dump/producers/text.h"

/// TensorRT-LLM's debug hooks (tensorrt_llm/_torch/debug/debug_hook.py): a file a tensor, rank0/1.LlamaForCausalLM-
/// 1.LlamaModel-3.LlamaDecoderLayer-2.LlamaAttention-1.Linear-output.0.pt: from the model down to the module, each with
/// its class and how many of its parent's modules ran before it, the model's own number being the forward pass. The
/// names of attributes are not written, so what a module is follows from its class and its place.
namespace nanscope {
namespace {

struct Step {
  std::int64_t number = 0;
  std::string_view type;
};

struct Parts {
  std::vector<Step> path;
  bool input = false;
  std::string_view tensor;  ///< "0", or the argument's name
};

/// Nothing for files that are not named like this. Views into `stem`.
std::optional<Parts> parts_of(std::string_view stem) {
  Parts parts;
  const auto words = split_at(stem, "-");
  if (words.size() < 2) return std::nullopt;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::size_t dot = words[i].find('.');
    const auto number = natural_number(words[i].substr(0, dot));
    if (dot == std::string_view::npos || !number || dot + 1 == words[i].size()) return std::nullopt;
    parts.path.push_back({*number, words[i].substr(dot + 1)});
  }
  for (const std::string_view side : {"input.", "output."}) {
    if (!words.back().starts_with(side)) continue;
    parts.input = side == "input.";
    parts.tensor = words.back().substr(side.size());
    return parts;
  }
  return std::nullopt;
}

constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();

bool is_layer(std::string_view type) { return type.find("DecoderLayer") != std::string_view::npos; }
bool is_norm(std::string_view type) { return type.find("Norm") != std::string_view::npos; }

/// The tree of modules of one forward pass, as the names of files show it.
class ModuleTree {
 public:
  void add(const std::string& where, const Parts& parts) {
    std::string parent = where;
    for (const Step& step : parts.path) {
      children_[parent].emplace(step.number, std::string(step.type));
      parent += fmt::format("/{}", step.number);
    }
  }

  /// How many children of this parent come before `number`, among those that `like` says.
  template <class Like>
  std::int64_t place(const std::string& parent, std::int64_t number, const Like& like) const {
    const auto found = children_.find(parent);
    if (found == children_.end()) return 0;
    return std::count_if(found->second.begin(), found->second.end(),
                         [&](const auto& child) { return child.first < number && like(child.second); });
  }

 private:
  std::map<std::string, std::map<std::int64_t, std::string>> children_;
};

class TensorRtLlm final : public Producer {
 public:
  std::string_view name() const override { return "TensorRT-LLM debug hooks"; }

  void look(const DumpListing& listing, const ProducerOptions&, ProducerFindings&) override {
    for (const DumpFile& file : listing.files) {
      const std::string stem = file.stem();
      if (!file.shown.ends_with(".pt")) continue;
      if (const auto parts = parts_of(stem)) tree_.add(file.folder(), *parts);
    }
  }

  bool claims(const DumpFile& file) const override {
    return file.shown.ends_with(".pt") && parts_of(file.stem()).has_value();
  }

  Naming name_of(const DumpFile& file, const Container&, std::size_t) override {
    const std::string stem = file.stem();
    const Parts parts = parts_of(stem).value_or(Parts{});
    Naming naming;
    std::string folder = joined_path(file.folder(), fmt::format("step_{}", parts.path.front().number));
    naming.name = joined_path(folder, key_of(file.folder(), parts));
    naming.name += parts.input ? ".input." : ".output.";
    // Arguments are named; the first tensor among them is what the module works on.
    naming.name += natural_number(parts.tensor) ? std::string(parts.tensor) : argument_of(file, parts);
    naming.order = order_of(parts);
    return naming;
  }

 private:
  /// "model.layers.2.self_attn.qkv_proj", or the classes where they say nothing.
  std::string key_of(const std::string& where, const Parts& parts) const {
    std::string parent = where;
    std::string key = "model";
    std::string_view above;
    for (const Step& step : parts.path) {
      const std::string word = word_of(parent, step, above);
      if (&step != &parts.path.front() && !word.empty()) key += '.' + word;
      parent += fmt::format("/{}", step.number);
      above = step.type;
    }
    // The causal model's own children: the decoder and the head.
    if (parts.path.size() == 2 && parts.path[1].type.find("Head") != std::string_view::npos) return "lm_head";
    return key;
  }

  std::string word_of(const std::string& parent, const Step& step, std::string_view above) const {
    const std::string type(step.type);
    const auto same = [&](const std::string& other) { return other == type; };
    const std::int64_t place = tree_.place(parent, step.number, same);
    if (is_layer(type)) return fmt::format("layers.{}", place);
    if (is_layer(above)) {
      const auto attention = [](const std::string& other) { return other.find("Attention") != std::string::npos; };
      const bool before = tree_.place(parent, step.number, attention) == 0 && tree_.place(parent, kLast, attention) > 0;
      if (is_norm(type)) return before ? "input_layernorm" : "post_attention_layernorm";
      if (type.find("Attention") != std::string::npos) return "self_attn";
      if (type.find("MLP") != std::string::npos || type.find("Mlp") != std::string::npos) return "mlp";
      if (type.find("MoE") != std::string::npos) return "mlp";
    }
    if (type.find("Embedding") != std::string::npos && !type.starts_with("Rotary")) return "embed_tokens";
    if (type.ends_with("LMHead")) return "lm_head";
    const bool attention = above.find("Attention") != std::string_view::npos;
    const bool mlp = above.find("MLP") != std::string_view::npos;
    if (type.find("Linear") != std::string::npos && attention) return place == 0 ? "qkv_proj" : "o_proj";
    if (type.find("Linear") != std::string::npos && mlp) return place == 0 ? "gate_up_proj" : "down_proj";
    if (is_norm(type) && attention) return place == 0 ? "q_norm" : "k_norm";
    if (is_norm(type)) return "norm";
    // The decoder below the causal model has no word of its own in a key that begins with "model".
    if (type.ends_with("Model") && above.find("CausalLM") != std::string_view::npos) return "";
    return fmt::format("{}.{}", type, step.number);
  }

  /// A module's input comes before what is in it, its output after. Numbers of modules fit in two bytes or so: a path
  /// deeper than six, or wider, keeps the order of its outer parts.
  static std::int64_t order_of(const Parts& parts) {
    constexpr std::size_t kDeepest = 6;
    constexpr std::int64_t kWidest = 500;
    std::int64_t order = 0;
    for (std::size_t i = 1; i <= kDeepest; ++i) {
      const bool inside = i < parts.path.size();
      // 0 for the input of the module that the path ended at, the widest for its output.
      const std::int64_t digit = inside ? std::min(parts.path[i].number, kWidest) : parts.input ? 0 : kWidest + 1;
      order = order * (kWidest + 2) + digit;
    }
    return order;
  }

  /// How many arguments of this call come before: their files follow each other in natural order, hidden_states among
  /// the first that modules have.
  std::string argument_of(const DumpFile& file, const Parts& parts) {
    if (parts.tensor == "hidden_states" || parts.tensor == "x" || parts.tensor == "input") return "0";
    const std::string call = file.shown.substr(0, file.shown.rfind('-'));
    return fmt::format("{}", ++arguments_[call + (parts.input ? "i" : "o")]);
  }

  ModuleTree tree_;
  std::map<std::string, int> arguments_;
};

}  // namespace

std::unique_ptr<Producer> tensorrt_llm_producer() { return std::make_unique<TensorRtLlm>(); }

}  // namespace nanscope
