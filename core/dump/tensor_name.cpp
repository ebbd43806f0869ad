#include "core/dump/tensor_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/dump/library_names.h"
#include "core/dump/name_table.h"
#include "core/dump/name_words.h"

namespace nanscope {
namespace {

using Segments = std::vector<std::string>;
using Path = std::span<const std::string>;

/// Takes what a word and its number say about where; false when they say nothing of the kind.
bool take_place(TensorName& name, std::string_view text) {
  if (text == "prefill") {
    name.step = 0;
    return true;
  }
  const Counted part = counted_word(text);
  const std::optional<PlaceWord> place = part.count ? place_word(part.word) : std::nullopt;
  if (!place) return false;
  switch (*place) {
    case PlaceWord::step:
      name.step = part.count;
      break;
    case PlaceWord::decode:
      name.step = *part.count + 1;  // the prefill is 0
      break;
    case PlaceWord::rank:
      name.rank = part.count;
      break;
    case PlaceWord::request:
      name.request = part.count;
      break;
    case PlaceWord::layer:
      if (name.layer) return false;
      name.layer = part.count;
      break;
  }
  return true;
}

/// A norm's order and a term of a loss are no layers: "l2_norm".
bool is_norm_order(std::string_view first, std::string_view rest) {
  return (first == "l1" || first == "l2") && (rest == "norm" || rest == "loss" || rest.starts_with("norm_"));
}

/// "w_l0_expert1_up": a weight by its first word.
std::string_view without_weight_word(std::string_view segment, bool& weight) {
  for (const std::string_view word : {"w_", "weight_", "weights_"}) {
    if (!segment.starts_with(word)) continue;
    const std::string_view rest = segment.substr(word.size());
    const Counted next = counted_word(rest.substr(0, rest.find('_')));
    if (!next.count || place_word(next.word) != PlaceWord::layer) continue;
    weight = true;
    return rest;
  }
  return segment;
}

/// Takes places from the front and the back of a segment of several words: "step7_l3_attn_scores", "probs_layer_3".
std::string without_places(TensorName& name, std::string_view segment) {
  bool weight = false;
  segment = without_weight_word(segment, weight);
  bool again = true;
  while (again && !segment.empty()) {
    again = false;
    for (std::size_t words = 1; words <= 2 && !again; ++words) {
      std::size_t end = segment.find('_');
      if (words == 2 && end != std::string_view::npos) end = segment.find('_', end + 1);
      if (end == std::string_view::npos || is_norm_order(segment.substr(0, end), segment.substr(end + 1))) break;
      if (!take_place(name, segment.substr(0, end))) continue;
      segment.remove_prefix(end + 1);
      again = true;
    }
    for (std::size_t words = 1; words <= 2 && !again; ++words) {
      std::size_t begin = segment.rfind('_');
      if (words == 2 && begin != std::string_view::npos && begin > 0) begin = segment.rfind('_', begin - 1);
      if (begin == std::string_view::npos || !take_place(name, segment.substr(begin + 1))) continue;
      segment = segment.substr(0, begin);
      again = true;
    }
  }
  const bool said =
      segment.ends_with("weight") || segment.ends_with("bias") || segment.find("scale") != std::string_view::npos;
  if (weight && !said) return std::string(segment) + ".weight";
  return std::string(segment);
}

/// The layer's number and where its own path begins: "model.layers.3.mlp" as 3 and "mlp".
std::size_t take_layer(TensorName& name, const Segments& parts) {
  constexpr std::string_view kContainers =
      "layers h blocks block layer blk resblocks layer_list past_key_values dec stage decoder_layers";
  constexpr std::string_view kCaches = "key_cache value_cache k_cache v_cache";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i + 1 < parts.size() && number(parts[i + 1])) {
      if (listed(kContainers, parts[i])) {
        name.layer = number(parts[i + 1]);
        return i + 2;
      }
      if (listed(kCaches, parts[i]) && i + 2 == parts.size()) {
        name.layer = number(parts[i + 1]);
        return i;
      }
    }
    if (!name.layer && i + 1 < parts.size() && place_word(counted_word(parts[i]).word) == PlaceWord::layer &&
        take_place(name, parts[i])) {
      return i + 1;
    }
  }
  return 0;
}

struct PortName {
  std::string_view word;
  Port port;
};

constexpr std::array kPorts = {
    PortName{"input", Port::input},   PortName{"inputs", Port::input},   PortName{"in", Port::input},
    PortName{"args", Port::input},    PortName{"x", Port::input},        PortName{"hidden_states", Port::input},
    PortName{"output", Port::output}, PortName{"outputs", Port::output}, PortName{"out", Port::output},
    PortName{"result", Port::output}, PortName{"y", Port::output}};

/// "output", "input_1", "input[0]".
std::optional<std::pair<Port, int>> port_of(std::string_view word) {
  Counted counted = counted_word(word);
  if (const std::size_t bracket = word.find('['); bracket != std::string_view::npos && word.back() == ']') {
    counted = {word.substr(0, bracket), number(word.substr(bracket + 1, word.size() - bracket - 2))};
  }
  const auto found =
      std::find_if(kPorts.begin(), kPorts.end(), [&](const PortName& port) { return port.word == counted.word; });
  if (found == kPorts.end()) return std::nullopt;
  return std::pair(found->port, counted.count && *counted.count < 1000 ? static_cast<int>(*counted.count) : 0);
}

/// How many segments of `path` a tail takes, 0 when it is not its end.
std::size_t tail_length(std::string_view tail, Path path) {
  const bool whole = !tail.empty() && tail.front() == '^';
  if (whole) tail.remove_prefix(1);
  std::size_t length = 0;
  for (bool more = true; more; ++length) {
    const std::size_t dot = tail.rfind('.');
    more = dot != std::string_view::npos;
    const std::string_view wanted = more ? tail.substr(dot + 1) : tail;
    if (length == path.size() || path[path.size() - 1 - length] != wanted) return 0;
    if (more) tail.remove_suffix(tail.size() - dot);
  }
  if (whole) return length == path.size() ? length + 1 : 0;
  return length;
}

const ModulePattern* find_module(std::span<const ModulePattern> patterns, Path path) {
  const ModulePattern* best = nullptr;
  std::size_t longest = 0;
  for (const ModulePattern& pattern : patterns) {
    for (const std::string_view tail : Parts(pattern.tails, ' ')) {
      const std::size_t length = tail.empty() ? 0 : tail_length(tail, path);
      if (length <= longest) continue;
      longest = length;
      best = &pattern;
    }
  }
  return best;
}

constexpr ModulePattern kLayer{"", "layer", OpKind::block, 900, "resid", "resid", 10};

const ModulePattern* module_of(const TensorName& name, Path path) {
  if (name.layer) return path.empty() ? &kLayer : find_module(layer_modules(), path);
  const ModulePattern* found = find_module(outer_modules(), path);
  return found != nullptr ? found : find_module(layer_modules(), path);
}

const StatePattern* state_of(const TensorName& name, std::string_view word) {
  const auto in = [&](std::span<const StatePattern> table) -> const StatePattern* {
    const auto found =
        std::find_if(table.begin(), table.end(), [&](const auto& row) { return listed(row.names, word); });
    return found == table.end() ? nullptr : &*found;
  };
  const StatePattern* outer = name.layer ? nullptr : in(outer_state_tensors());
  return outer != nullptr ? outer : in(state_tensors());
}

/// Four places a module: its input, its state, what a state pattern puts after it, its output.
int place_of(int order, Port port) { return order * 4 + (port == Port::input ? 0 : port == Port::state ? 1 : 3); }

/// One side of a module.
bool take_module(TensorName& name, Path path, std::pair<Port, int> side) {
  const ModulePattern* found = module_of(name, path);
  if (found == nullptr) return false;
  name.port = side.first;
  name.index = side.second;
  name.op = found->op;
  name.kind = found->kind;
  name.order = place_of(name.port == Port::input && found->order_in != 0 ? found->order_in : found->order, name.port);
  name.role = name.port == Port::input ? found->role_in : found->role_out;
  // An attention is called with q, k and v.
  if (name.port == Port::input && name.kind == OpKind::attention && name.index > 0) {
    constexpr std::array<std::string_view, 3> kArguments = {"q", "k", "v"};
    name.role = name.index < 3 ? kArguments[static_cast<std::size_t>(name.index)] : std::string_view("x");
  }
  return true;
}

bool take_state(TensorName& name, Path path) {
  const StatePattern* state = state_of(name, path.back());
  if (state == nullptr) return false;
  const Path owner = path.first(path.size() - 1);
  const ModulePattern* module = owner.empty() ? nullptr : module_of(name, owner);
  name.port = state->port;
  name.role = state->role;
  name.kind = state->kind;
  name.op = state->role;
  if (state->order != 0) {
    name.order = place_of(state->order, state->port);
    return true;
  }
  if (name.role == "resid") {
    name.order = place_of(kLayer.order, Port::output);
    return true;
  }
  if (module == nullptr) return false;
  name.op = module->op;
  name.kind = module->kind;
  name.order = place_of(module->order, state->port);
  return true;
}

/// Roles that a form belongs to: the scale of a cache is that of its keys.
void settle_form(TensorName& name) {
  const bool of_cache =
      name.role == "k_cache" || name.role == "v_cache" || name.role == "k_read" || name.role == "v_read";
  const std::string letter = name.role.substr(0, 1);
  if (of_cache && (name.form == Form::codes || name.form == Form::raw)) name.form = Form::value;
  if (of_cache && name.form == Form::dequantised) {
    name.role = letter + "_read";
    name.form = Form::value;
    name.port = Port::output;
  } else if (of_cache && name.form != Form::value) {
    name.role = letter;
  } else if ((name.role == "k" || name.role == "v") && name.form == Form::dequantised) {
    name.role = letter + "_read";
    name.form = Form::value;
  }
  if (name.form == Form::value) return;
  if (name.form != Form::codes && name.form != Form::dequantised && name.form != Form::raw)
    name.port = name.port == Port::input ? Port::input : Port::state;
}

/// Fills in what a path says. `index` is of "output.1".
bool take_path(TensorName& name, Path path, int index) {
  if (path.empty()) return false;
  if (const auto port = port_of(path.back()); port && path.size() + (name.layer ? 1U : 0U) > 1) {
    if (take_module(name, path.first(path.size() - 1), {port->first, std::max(port->second, index)})) return true;
    if (path.size() > 1 && take_state(name, path.first(path.size() - 1))) return true;
    name.port = port->first;
    name.index = std::max(port->second, index);
    return false;
  }
  return take_state(name, path) || take_module(name, path, {Port::output, index});
}

/// "experts.gate_up_proj_bias", as parameters of all experts in one tensor are called.
bool take_joined_bias(TensorName& name, Path path) {
  constexpr std::string_view kBias = "_bias";
  const std::string& last = path.back();
  if (last.size() <= kBias.size() || !last.ends_with(kBias)) return false;
  Segments apart(path.begin(), path.end() - 1);
  apart.push_back(last.substr(0, last.size() - kBias.size()));
  apart.emplace_back("bias");
  return take_state(name, apart);
}

/// "rotary_emb.q", "key_states_rope": queries and keys behind the rotary embedding.
bool take_rotated(TensorName& name, Path path) {
  constexpr std::string_view kTurned = "rope roped rot rotated post_rope after_rope embed rope_out";
  const auto letter_of = [](std::string_view word) -> std::string_view {
    if (listed("q query q_states query_states queries q_proj qcur", word)) return "q";
    if (listed("k key k_states key_states keys k_proj kcur", word)) return "k";
    return {};
  };
  std::string_view letter;
  const std::string& last = path.back();
  if (path.size() > 1 && listed("rotary_emb rope rotary rotary_pos_emb rotary_fn", path[path.size() - 2]))
    letter = letter_of(last);
  for (const std::string_view word : Parts(kTurned, ' ')) {
    if (!letter.empty() || last.size() <= word.size() + 1) continue;
    if (last.ends_with(word) && last[last.size() - word.size() - 1] == '_')
      letter = letter_of(std::string_view(last).substr(0, last.size() - word.size() - 1));
  }
  if (letter.empty()) return false;
  const std::string word = std::string(letter) + "_rot";
  return take_state(name, std::span(&word, 1));
}

/// Words at the end of a segment that say on which side of its module it is, or that it is the plain value.
bool take_side(TensorName& name, Path path, int index, int depth);

/// The same where words of a form stand at an end of the last segment.
bool take_with_form(TensorName& name, Path path, int index, int depth = 0) {
  if (path.empty() && name.layer && name.form == Form::value) return take_module(name, path, {Port::output, index});
  if (path.empty() || depth > 3) return false;
  if (take_path(name, path, index)) return true;
  if (take_rotated(name, path) || take_joined_bias(name, path)) return true;
  const auto attempt = [&](const FormWords& form) {
    Segments shorter(path.begin(), path.end() - 1);
    if (!form.stem.empty()) shorter.push_back(form.stem);
    TensorName tried = name;
    if (!take_with_form(tried, shorter, index, depth + 1)) return false;
    // Of "k_cache_fp8_scale" the scale is the form, the codes are what it is of.
    if (tried.form == Form::value || tried.form == Form::codes) tried.form = form.form;
    name = std::move(tried);
    return true;
  };
  const auto end = form_at_end(path.back());
  if (end && attempt(*end)) return true;
  const auto beginning = form_at_beginning(path.back());
  if (beginning && attempt(*beginning)) return true;
  return take_side(name, path, index, depth);
}

bool take_side(TensorName& name, Path path, int index, int depth) {
  struct Side {
    std::string_view words;
    std::optional<Port> port;
  };
  constexpr std::array kSides = {
      Side{"in input inp", Port::input},
      Side{"out output", Port::output},
      Side{"pre_rope before_rope unrotated lin split scaled", std::nullopt},
  };
  for (const Side& side : kSides) {
    for (const std::string_view word : Parts(side.words, ' ')) {
      const std::string& last = path.back();
      const bool whole = last == word && path.size() > 1 && !side.port;
      const bool tail =
          last.size() > word.size() + 1 && last.ends_with(word) && last[last.size() - word.size() - 1] == '_';
      if (!whole && !tail) continue;
      Segments shorter(path.begin(), path.end() - 1);
      if (tail) shorter.push_back(last.substr(0, last.size() - word.size() - 1));
      TensorName tried = name;
      if (side.port && take_module(tried, shorter, {*side.port, index})) {
        name = std::move(tried);
        return true;
      }
      tried = name;
      if (!side.port && take_with_form(tried, shorter, index, depth + 1)) {
        name = std::move(tried);
        return true;
      }
    }
  }
  return false;
}

/// Without the number that some writers begin names with, in the order of execution: "0012_l3_norm1".
std::string without_order(const std::string& segment) {
  const std::size_t end = segment.find('_');
  const bool counts = end != std::string::npos && end > 1 && number(segment.substr(0, end)) && end + 1 < segment.size();
  return counts ? segment.substr(end + 1) : segment;
}

/// "attn_probs.r1", "k_gathered.seq0": of one sequence of the pass.
void take_sequence(TensorName& name, Segments& parts) {
  if (parts.size() < 2) return;
  const Counted last = counted_word(parts.back());
  if (!last.count || !listed("r seq sequence req", last.word)) return;
  name.sequence = last.count;
  parts.pop_back();
}

/// "expert3_up": the expert and its part.
void take_expert(TensorName& name, Segments& path) {
  for (std::size_t i = 0; i < path.size(); ++i) {
    std::string& part = path[i];
    if (part == "experts" && i + 1 < path.size() && number(path[i + 1])) {
      name.expert = number(path[i + 1]);
      path.erase(path.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      continue;
    }
    if (!part.starts_with("expert")) {
      const Counted suffix = counted_word(part);
      if (i > 0 && i + 1 == path.size() && suffix.word == "e" && suffix.count) {
        name.expert = suffix.count;
        path.pop_back();
      }
      continue;
    }
    const std::size_t end = part.find('_');
    const Counted which = counted_word(part.substr(0, end));
    if (which.word != "expert" || !which.count) continue;
    name.expert = which.count;
    const std::string rest = end == std::string::npos ? std::string() : part.substr(end + 1);
    if (rest == "in") {
      part = "experts", path.insert(path.begin() + static_cast<std::ptrdiff_t>(i) + 1, "input");
    } else {
      part = rest == "out" || rest == "down"  ? "down_proj"
             : rest == "gate" || rest == "up" ? rest + "_proj"
             : rest.empty()                   ? "experts"
                                              : rest;
    }
  }
}

/// Without what wrappers add, and with llama.cpp's "Qcur-3" as its layer and its name.
Segments cleaned(std::string_view key, TensorName& name) {
  Segments parts;
  std::string plain(key);
  std::replace(plain.begin(), plain.end(), ':', '.');
  if (const std::size_t side = plain.find(" ("); side != std::string::npos && plain.back() == ')') {
    plain = plain.substr(0, side) + '.' + plain.substr(side + 2, plain.size() - side - 3);
  }
  for (const std::string_view part : Parts(plain, '.')) {
    if (listed("_orig_mod _fsdp_wrapped_module _checkpoint_wrapped_module kwargs", part)) continue;
    const std::size_t dash = part.rfind('-');
    if (dash != std::string_view::npos && dash > 0 && number(part.substr(dash + 1)) && !name.layer) {
      name.layer = number(part.substr(dash + 1));
      parts.push_back(in_words(part.substr(0, dash)));
      continue;
    }
    std::string word = in_words(part);
    // "_k_scale" of vLLM is an attribute that its class keeps to itself.
    if (word.size() > 1 && word.front() == '_' && form_at_end(word)) word.erase(0, 1);
    for (const std::string_view one : Parts(path_of_hook(word), '.')) parts.emplace_back(one);
  }
  if (parts.size() > 1 && parts.front() == "module") parts.erase(parts.begin());
  while (parts.size() > 1 && !number(parts[1]) && place_word(counted_word(parts.front()).word) != PlaceWord::layer &&
         take_place(name, parts.front())) {
    parts.erase(parts.begin());
  }
  Segments placed;
  for (const std::string& part : parts) {
    const std::string left = without_places(name, without_order(part));
    for (const std::string_view one : Parts(left, '.')) placed.emplace_back(one);
  }
  take_sequence(name, placed);
  return placed;
}

/// A number behind the side, "output.0", is which of several; an expert's is taken out of the path.
int take_index(Segments& path) {
  if (path.size() < 2) return 0;
  const auto count = number(path.back());
  if (!count || *count >= 1000) return 0;
  path.pop_back();
  return static_cast<int>(*count);
}

/// One of a list that holds a tensor a layer: the states that transformers returns are what its layers were given,
/// and behind the last one what its norm gave.
void take_list(TensorName& name, Segments& parts) {
  const std::string word = parts[parts.size() - 2];
  std::vector<std::string> path{word};
  if (listed("hidden_states decoder_hidden_states all_hidden_states", word)) {
    path = {"input"};
  } else if (listed("attentions decoder_attentions all_attentions", word)) {
    path = {"probs"};
  } else if (parts.size() > 2 || find_module(layer_modules(), path) == nullptr ||
             find_module(outer_modules(), path) != nullptr) {
    return;
  }
  name.layer = number(parts.back());
  parts = std::move(path);
}

void take_key(TensorName& name, std::string_view key) {
  Segments parts = cleaned(calls_apart(key), name);
  for (const std::string& part : parts) {
    if (listed("visual vision_tower vision_model vit vision", part)) name.tower = "vision";
    if (listed("audio_tower audio_model", part)) name.tower = "audio";
    // Its layers are numbered anew, or run after all others.
    if (listed("mtp", part)) name.tower = "mtp";
  }
  if (parts.size() >= 2 && !name.layer && number(parts.back())) take_list(name, parts);
  const std::size_t begin = name.layer ? 0 : take_layer(name, parts);
  Segments path(parts.begin() + static_cast<std::ptrdiff_t>(begin), parts.end());
  take_expert(name, path);
  const int index = take_index(path);
  name.known = take_with_form(name, path, index);
  settle_form(name);
  const bool has_port = !path.empty() && port_of(path.back()).has_value();
  const bool of_parameter = path.size() > 1 && listed("weight bias", path.back());
  const bool own_word = name.known && (name.port == Port::state || name.form != Form::value);
  const std::size_t own = has_port || of_parameter || own_word ? 1 : 0;
  for (std::size_t i = 0; i + own < begin + path.size(); ++i) {
    if (!name.module.empty()) name.module += '.';
    name.module += i < begin ? parts[i] : path[i - begin];
  }
  // Where in its layer an unknown module stands is not known either: behind what is.
  // Sides order what is of one module; a word alone is of none, whatever it may stand for.
  const Port side = path.size() > 1 ? name.port : Port::output;
  if (!name.known && name.layer) name.order = place_of(kLayer.order - 1, side);
  if (name.op.empty() && !path.empty())
    name.op = (has_port || of_parameter) && path.size() > 1 ? path[path.size() - 2] : path.back();
  if (name.role.empty()) name.role = has_port ? (name.port == Port::input ? "x" : "out") : parts.back();
}

/// A folder that is a part of the model, not of where.
bool is_module_folder(const TensorName& name, std::string_view folder) {
  return name.layer || folder.find('.') != std::string_view::npos ||
         listed("attn self_attn attention mlp ffn moe model", in_words(folder));
}

}  // namespace

std::string TensorName::pass() const {
  std::string text = run;
  if (request) text += fmt::format("|request {}", *request);
  if (step) text += fmt::format("|step {}", *step);
  if (rank) text += fmt::format("|rank {}", *rank);
  return text;
}

TensorName parse_tensor_name(std::string_view text) {
  const std::string written = in_grammar(text);
  text = written;
  TensorName name;
  std::vector<std::string_view> folders = split_text(text, '/');
  std::string key;
  const std::string_view last = folders.back();
  folders.pop_back();
  for (const std::string_view folder : folders) {
    if (folder.empty()) continue;
    TensorName placed = name;
    const std::string left = without_places(placed, in_words(folder));
    const Counted counted = counted_word(left);
    if (counted.word == "t" && counted.count && !placed.step) {
      name.step = counted.count;
    } else if (listed("warm_up warmup dummy profile", counted.word)) {
      name.warm_up = true;
      name.run += folder;
    } else if (take_place(placed, left)) {
      name = std::move(placed);
    } else if (is_module_folder(name, folder)) {
      key += std::string(folder) + '.';
    } else {
      if (!name.run.empty()) name.run += '/';
      name.run += folder;
    }
  }
  take_key(name, key + std::string(last));
  return name;
}

bool state_role(TensorName& name, std::string_view role) {
  TensorName stated;
  stated.layer = name.layer;
  const std::string word(role);
  if (!take_with_form(stated, std::span(&word, 1), 0)) return false;
  settle_form(stated);
  name.op = stated.op;
  name.kind = stated.kind;
  name.role = stated.role;
  name.form = stated.form;
  name.port = stated.port;
  name.order = stated.order;
  name.known = true;
  return true;
}

TensorName scale_of(const TensorName& name) {
  TensorName scale = name;
  scale.form = Form::scale;
  settle_form(scale);
  scale.port = name.port == Port::input ? Port::input : Port::state;
  scale.order = name.order - 1;
  scale.known = true;
  return scale;
}

}  // namespace nanscope
