/// Names settled by what else is dumped: what no name alone can tell.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/dump/name_words.h"
#include "core/dump/pass_builder.h"

namespace nanscope {

/// A folder of weights without a side of any module is a checkpoint, and what has no known name there is weights too.
void PassBuilder::settle_checkpoints() {
  struct Count {
    int weights = 0;
    int others = 0;
    bool sides = false;
  };
  std::map<std::string, Count> passes;
  const auto weights = [](const DumpTensor& one) { return one.at.role == "weight" || one.at.role == "bias"; };
  for (const DumpTensor& one : run_.dump_.tensors) {
    Count& count = passes[one.at.pass()];
    ++(weights(one) ? count.weights : count.others);
    const std::size_t dot = one.name.find_last_of("./");
    const std::string_view last =
        dot == std::string::npos ? std::string_view(one.name) : std::string_view(one.name).substr(dot + 1);
    count.sides = count.sides || last == "output" || last == "input" || one.at.port == Port::input || one.at.step ||
                  one.at.request;
  }
  for (DumpTensor& one : run_.dump_.tensors) {
    const Count& count = passes[one.at.pass()];
    if (count.sides || count.weights < count.others || is_parameter(one)) continue;
    one.at.role = "weight";
    one.at.port = Port::state;
  }
}

/// Where a name says "before the rotation", the plain one of the same letter is behind it. So it is where the
/// projection of another layer or step was dumped next to it.
void PassBuilder::settle_rotated() {
  const auto letter_of = [](const TensorName& at) -> std::string {
    if (at.port == Port::input || at.form != Form::value) return {};
    for (std::string letter : {"q", "k"}) {
      if (at.role == letter && (at.op == letter || at.op == letter + "_proj")) return letter;
    }
    return {};
  };
  const auto before = [](const DumpTensor& one) {
    const std::string words = in_words(one.name);
    return words.find("pre_rope") != std::string::npos || words.find("before_rope") != std::string::npos ||
           words.find("unrotated") != std::string::npos || words.find("cur_lin") != std::string::npos;
  };
  const auto key = [](const TensorName& at, const std::string& letter) {
    return fmt::format("{}|{}|{}|{}", at.pass(), at.tower, at.layer.value_or(-1), letter);
  };
  std::set<std::string> said;
  for (const DumpTensor& one : run_.dump_.tensors) {
    const std::string letter = letter_of(one.at);
    if (!letter.empty() && before(one)) said.insert(key(one.at, letter));
  }
  const auto is_projection = [](const DumpTensor& one, const std::string& letter) {
    return one.at.op == letter + "_proj" && !is_parameter(one);
  };
  std::set<std::string> projected;
  for (const DumpTensor& one : run_.dump_.tensors) {
    const std::string letter = letter_of(one.at);
    if (!letter.empty() && is_projection(one, letter)) projected.insert(key(one.at, letter));
  }
  const auto alike = [](std::string name) {
    std::erase_if(name, is_digit);
    return name;
  };
  std::set<std::string> behind;  // names without numbers
  for (const DumpTensor& one : run_.dump_.tensors) {
    const std::string letter = letter_of(one.at);
    if (!letter.empty() && one.at.op == letter && projected.contains(key(one.at, letter)))
      behind.insert(alike(one.name));
  }
  for (DumpTensor& one : run_.dump_.tensors) {
    const std::string letter = letter_of(one.at);
    if (letter.empty() || before(one)) continue;
    const bool alone =
        one.at.op == letter && !projected.contains(key(one.at, letter)) && behind.contains(alike(one.name));
    if (!alone && !said.contains(key(one.at, letter))) continue;
    const std::string words = in_words(one.name);
    if (one.at.op != letter && words.find("cur") == std::string::npos) continue;
    one.at.op = one.at.role = letter + "_rot";
    one.at.kind = OpKind::rope;
    one.at.port = Port::output;
  }
}

/// Beside its logits a router gives, and experts take beside their rows, the chosen experts as integers, and as many
/// weights as those.
void PassBuilder::settle_routed() {
  const auto routed = [](const DumpTensor& one) {
    const bool beside = (one.at.op == "router" && one.at.port == Port::output) ||
                        (one.at.op == "experts" && one.at.port == Port::input && one.at.index > 0);
    return beside && one.at.form == Form::value && one.shape.size() >= 2;
  };
  const auto key = [](const TensorName& at) {
    return fmt::format("{}|{}|{}", at.pass(), at.tower, at.layer.value_or(-1));
  };
  const auto become = [](TensorName& at, std::string_view role) {
    at.role = role;
    if (at.port == Port::input) return;
    at.op = role == "router_ids" ? "router_ids" : "topk";
    at.index = 0;
  };
  std::set<std::pair<std::string, std::vector<std::int64_t>>> chosen;
  for (DumpTensor& one : run_.dump_.tensors) {
    if (!routed(one) || one.dtype->kind != DtypeKind::integer) continue;
    chosen.insert({key(one.at), one.shape});
    become(one.at, "router_ids");
  }
  for (DumpTensor& one : run_.dump_.tensors) {
    if (routed(one) && one.at.index > 0 && one.dtype->kind == DtypeKind::real &&
        chosen.contains({key(one.at), one.shape}))
      become(one.at, "router_weights");
  }
}

/// Of two real outputs of a router, of one shape, the one within 0 and 1 are the scores that experts are weighed by,
/// and the other are the logits: Llama 4 gives the scores first.
void PassBuilder::settle_router_scores() {
  const auto scores = [](const DumpTensor& one) {
    return one.health.count > 0 && one.health.min >= 0 && one.health.max <= 1;
  };
  std::vector<DumpTensor>& tensors = run_.dump_.tensors;
  for (DumpTensor& second : tensors) {
    if (second.at.op != "router" || second.at.port != Port::output || second.at.index != 1 || scores(second)) continue;
    const auto first = std::find_if(tensors.begin(), tensors.end(), [&](const DumpTensor& one) {
      return one.at.module == second.at.module && one.at.pass() == second.at.pass() && one.at.op == "router" &&
             one.at.port == Port::output && one.at.index == 0 && one.shape == second.shape && scores(one);
    });
    if (first == tensors.end()) continue;
    first->at.op = first->at.role = "chosen_scores";
    first->at.kind = OpKind::dumped;
    first->at.known = false;
    second.at.index = 0;
    second.at.role = "router_logits";
  }
}

/// Of a gated MLP, TransformerLens calls the gate's product hook_pre, and the other one hook_pre_linear.
void PassBuilder::settle_hooked_gates() {
  constexpr std::string_view kOther = "hook_pre_linear";
  constexpr std::string_view kGate = "hook_pre";
  std::set<std::string> gated;  // names up to the hook
  for (const DumpTensor& one : run_.dump_.tensors) {
    if (one.name.ends_with(kOther)) gated.insert(one.name.substr(0, one.name.size() - kOther.size()));
  }
  for (DumpTensor& one : run_.dump_.tensors) {
    if (!one.name.ends_with(kGate) || !gated.contains(one.name.substr(0, one.name.size() - kGate.size()))) continue;
    one.at.op = "gate_proj";
    one.at.role = "gate";
  }
}

/// In an exported graph a product that something is added to in its module is not yet what the module gave.
void PassBuilder::settle_exported() {
  constexpr std::string_view kProduct = "/MatMul_output_0";
  constexpr std::string_view kSum = "/Add_output_0";
  std::set<std::string> sums;  // modules
  for (const DumpTensor& one : run_.dump_.tensors) {
    if (one.name.ends_with(kSum)) sums.insert(one.name.substr(0, one.name.size() - kSum.size()));
  }
  for (DumpTensor& one : run_.dump_.tensors) {
    if (one.at.kind != OpKind::gemm || !one.name.ends_with(kProduct)) continue;
    if (!sums.contains(one.name.substr(0, one.name.size() - kProduct.size()))) continue;
    one.at.known = false;
    one.at.kind = OpKind::dumped;
    one.at.op = one.at.role = "product";
  }
}

/// Of the states that transformers returns, the one behind the last layer is what the final norm gave.
void PassBuilder::settle_last_states() {
  const auto is_state = [](const DumpTensor& one) {
    return one.at.op == "layer" && one.at.port == Port::input && one.at.layer &&
           one.name.find("hidden_states") != std::string::npos;
  };
  struct Pass {
    std::int64_t last = 0;
    std::int64_t states = 0;
    std::int64_t last_of_others = -1;
  };
  std::map<std::string, Pass> passes;
  for (const DumpTensor& one : run_.dump_.tensors) {
    Pass& pass = passes[one.at.pass() + '|' + one.at.tower];
    const std::int64_t layer = one.at.layer.value_or(-1);
    if (!is_state(one)) {
      pass.last_of_others = std::max(pass.last_of_others, layer);
      continue;
    }
    pass.last = std::max(pass.last, layer);
    ++pass.states;
  }
  for (DumpTensor& one : run_.dump_.tensors) {
    const Pass& pass = passes[one.at.pass() + '|' + one.at.tower];
    const bool is_last = is_state(one) && *one.at.layer == pass.last && pass.last > 0;
    // One a layer, and one more; the first may have a name of its own.
    if (!is_last || pass.states < pass.last || pass.last_of_others >= pass.last) continue;
    one.at.layer.reset();
    state_role(one.at, "last_hidden_state");
  }
}

/// What a name means depends on what else is there.
void PassBuilder::settle_names() {
  settle_checkpoints();
  settle_rotated();
  settle_routed();
  settle_router_scores();
  settle_hooked_gates();
  settle_last_states();
  settle_exported();
  const auto note = [&](const TensorName& at) {
    // vLLM's attention has scales of scores and probabilities that it never puts out.
    const bool of_scores = at.op == "scores" || at.op == "probs";
    if (!of_scores || at.form != Form::scale) seen_.insert({at.tower, at.op});
  };
  std::vector<Index> cosines;
  std::set<std::string> embedding;  // modules that are named after embeddings
  using Layer = std::pair<std::string, std::int64_t>;
  std::set<Layer> norm_first;
  std::set<Layer> norm_last;
  for (Index i = 0; i < run_.dump_.tensors.size(); ++i) {
    note(tensor(i).at);
    if (tensor(i).at.op == "embed") embedding.insert(tensor(i).at.module);
    if (is_cosine(i)) cosines.push_back(i);
    const TensorName& at = tensor(i).at;
    if (at.layer && at.op == "attn_norm") norm_first.insert({at.tower, *at.layer});
    if (at.layer && at.op == "mlp_post_norm") norm_last.insert({at.tower, *at.layer});
  }
  // OLMo Hybrid's layers without attention are Llama's, and the others OLMo 2's.
  const auto norms_before = [&](const TensorName& at) {
    return at.layer && norm_first.contains({at.tower, *at.layer}) && !norm_last.contains({at.tower, *at.layer});
  };
  // Whether one of them holds the one that looks tokens up: BERT's sums several.
  const auto embeds_inside = [&](const TensorName& at) {
    const std::string prefix = at.module + '.';
    const auto inside = embedding.lower_bound(prefix);
    return inside != embedding.end() && inside->starts_with(prefix);
  };
  for (Index i = 0; i < run_.dump_.tensors.size(); ++i) {
    TensorName& at = run_.dump_.tensors[i].at;
    const std::size_t rank = tensor(i).shape.size();
    if (at.op == "post_attention_norm") {
      const bool behind = seen_.contains({at.tower, "mlp_post_norm"}) && !norms_before(at);
      at.op = behind ? "attn_post_norm" : "mlp_norm";
    } else if ((at.op == "self_attn" || at.op == "attention") && at.port == Port::output && at.index == 1 &&
               (rank > 3 || (rank == 3 && !(tensor(i).health.absmax > 1)))) {  // RWKV returns its states there
      at = [&] {  // the probabilities, where the model was asked for them
        TensorName probs = at;
        probs.op = probs.role = "probs";
        probs.kind = OpKind::softmax;
        probs.index = 0;
        return probs;
      }();
    } else if (std::binary_search(cosines.begin(), cosines.end(), i)) {
      const TensorName first = first_call_of(at);
      at.known = first.known;
      at.order = first.order;
      at.role = at.op = tensor(i).name.ends_with(".1") ? "sin" : "cos";
      at.port = Port::state;
      at.index = 0;
    } else if (at.op == "embed" && !is_parameter(run_.dump_.tensors[i]) && embeds_inside(at)) {
      at.op = "embeddings";
      at.kind = OpKind::dumped;
    } else if (at.form == Form::codes && (at.op == "k" || at.op == "v") && at.port == Port::output) {
      // Codes of keys and values are what is stored: the cache, or the rows that go into it.
      at.op = at.role = at.op + "_cache";
      at.form = Form::value;
      at.port = Port::state;
    } else if (at.op == "embed" && at.port == Port::input) {
      at.op = at.role = "tokens";
      at.port = Port::state;
    }
    note(at);
  }
}

/// The name of a module's first call, where `at` is of a later one: models call their rotary module once for each kind
/// of layer.
TensorName PassBuilder::first_call_of(const TensorName& at) {
  const std::size_t again = at.module.rfind("_again");
  return at.known || again == std::string::npos ? at : parse_tensor_name(at.module.substr(0, again) + ".output");
}

/// Whether a rotary module's outputs are cosines and sines, not rotated queries and keys.
bool PassBuilder::is_cosine(Index index) const {
  const DumpTensor& one = tensor(index);
  const auto rotary = [](const DumpTensor& tensor) {
    return (first_call_of(tensor.at).op == "rope" && tensor.at.port == Port::output) ||
           tensor.at.module.find("position_embeddings") != std::string::npos;
  };
  const auto stem = [](const DumpTensor& tensor) {
    return tensor.name.ends_with(".1") ? tensor.name.substr(0, tensor.name.size() - 2) : tensor.name;
  };
  if (!rotary(one) || one.stated || one.count() == 0) return false;
  // YaRN and LongRoPE multiply both by an amplitude, which grows with the root, or the logarithm, of what is stretched.
  constexpr double kMostAmplitude = 2;
  if (double{one.health.absmax} > kMostAmplitude) return false;
  const auto partner = std::find_if(run_.dump_.tensors.begin(), run_.dump_.tensors.end(), [&](const DumpTensor& other) {
    return &other != &one && rotary(other) && stem(other) == stem(one) && other.at.pass() == one.at.pass() &&
           other.at.layer == one.at.layer && other.shape == one.shape;
  });
  if (partner == run_.dump_.tensors.end()) return false;
  const std::int64_t count = std::min<std::int64_t>(256, one.count());
  const auto a = run_.elements_.values(one, 0, count);
  const auto b = run_.elements_.values(*partner, 0, count);
  if (!a || !b) return false;
  const auto square = [&](std::size_t i) {
    return double{(*a)[i]} * double{(*a)[i]} + double{(*b)[i]} * double{(*b)[i]};
  };
  for (std::size_t i = 0; i < a->size(); ++i) {
    if (!(square(0) > 0.98) || !(std::abs(square(i) / square(0) - 1) < 0.04)) return false;
  }
  return true;
}

}  // namespace nanscope
