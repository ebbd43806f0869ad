#include "core/dump/tensor_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <vector>

#include "core/dump/name_table.h"

namespace nanscope {
namespace {

using Segments = std::vector<std::string_view>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool all_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!all_digits(text) || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

Segments split(std::string_view text, char by) {
  Segments parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(by, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Whether `word` is one of the words of `list`, which spaces separate.
bool listed(std::string_view list, std::string_view word) {
  const Segments words = split(list, ' ');
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// "step_003" as "step" and 3, "rank1" as "rank" and 1.
struct Counted {
  std::string word;
  std::optional<std::int64_t> count;
};

Counted counted_word(std::string_view text) {
  std::size_t digits = text.size();
  while (digits > 0 && is_digit(text[digits - 1])) --digits;
  Counted out;
  out.count = number(text.substr(digits));
  std::string_view word = text.substr(0, digits);
  while (!word.empty() && (word.back() == '_' || word.back() == '-' || word.back() == ' ')) word.remove_suffix(1);
  out.word = lowered(word);
  return out;
}

/// Takes what a folder (or a leading part of a key) says about where; false when it says nothing of the kind.
bool take_place(TensorName& name, std::string_view text) {
  const Counted part = counted_word(text);
  if (part.word == "prefill" && !part.count) {
    name.step = 0;
    return true;
  }
  if (!part.count) return false;
  if (listed("step iter iteration pass forward fwd forward_pass", part.word)) {
    name.step = part.count;
  } else if (part.word == "decode") {
    name.step = *part.count + 1;  // the prefill is 0
  } else if (listed("rank tp_rank tp pp_rank dp_rank ep_rank gpu device worker", part.word)) {
    name.rank = part.count;
  } else if (listed("request req prompt session turn call conversation sample", part.word)) {
    name.request = part.count;
  } else {
    return false;
  }
  return true;
}

/// The layer's number and where its own path begins: "model.layers.3.mlp" as 3 and "mlp".
std::size_t take_layer(TensorName& name, const Segments& parts) {
  constexpr std::string_view kContainers = "layers h blocks block layer blk resblocks layer_list";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string word = lowered(parts[i]);
    if (i + 1 < parts.size() && listed(kContainers, word) && all_digits(parts[i + 1])) {
      name.layer = number(parts[i + 1]);
      return i + 2;
    }
    const Counted part = counted_word(parts[i]);
    if (part.count && listed("layer layers block blk l", part.word)) {
      name.layer = part.count;
      return i + 1;
    }
  }
  return 0;
}

struct PortName {
  std::string_view word;
  Port port;
};

/// "output", "input.0", "output_1", "input[0]" at the end of a key.
std::size_t take_port(TensorName& name, const Segments& parts, std::size_t begin) {
  if (parts.size() < begin + 1 || parts.size() < 2) return parts.size();
  std::size_t last = parts.size() - 1;
  std::string_view word = parts[last];
  int index = 0;
  if (const auto count = number(word); count && *count < 1000 && last > begin) {
    index = static_cast<int>(*count);
    word = parts[--last];
  }
  Counted counted = counted_word(word);
  if (const std::size_t bracket = word.find('['); bracket != std::string_view::npos && word.back() == ']') {
    counted = {lowered(word.substr(0, bracket)), number(word.substr(bracket + 1, word.size() - bracket - 2))};
  }
  constexpr std::array kPorts = {PortName{"input", Port::input},   PortName{"inputs", Port::input},
                                 PortName{"in", Port::input},      PortName{"args", Port::input},
                                 PortName{"output", Port::output}, PortName{"outputs", Port::output},
                                 PortName{"out", Port::output},    PortName{"result", Port::output}};
  const auto found =
      std::find_if(kPorts.begin(), kPorts.end(), [&](const PortName& port) { return port.word == counted.word; });
  if (found == kPorts.end() || last == 0) return parts.size();
  name.port = found->port;
  name.index = counted.count && *counted.count < 1000 ? static_cast<int>(*counted.count) : index;
  return last;
}

/// How many segments of `path` a tail takes, 0 when it is not its end.
std::size_t tail_length(std::string_view tail, std::span<const std::string_view> path) {
  const bool whole = !tail.empty() && tail.front() == '^';
  if (whole) tail.remove_prefix(1);
  const Segments wanted = split(tail, '.');
  if (wanted.size() > path.size() || (whole && wanted.size() != path.size())) return 0;
  return std::equal(wanted.begin(), wanted.end(), path.end() - static_cast<std::ptrdiff_t>(wanted.size()))
             ? wanted.size() + (whole ? 1U : 0U)
             : 0;
}

const ModulePattern* find_module(std::span<const ModulePattern> patterns, std::span<const std::string_view> path) {
  const ModulePattern* best = nullptr;
  std::size_t longest = 0;
  for (const ModulePattern& pattern : patterns) {
    for (const std::string_view tail : split(pattern.tails, ' ')) {
      if (tail.empty()) continue;
      const std::size_t length = tail_length(tail, path);
      if (length <= longest) continue;
      longest = length;
      best = &pattern;
    }
  }
  return best;
}

const StatePattern* find_state(std::string_view word) {
  for (const StatePattern& pattern : state_tensors()) {
    if (listed(pattern.names, word)) return &pattern;
  }
  return nullptr;
}

/// Four places a module: its input, its state, what a state pattern puts after it, its output.
int place_of(int order, Port port) { return order * 4 + (port == Port::input ? 0 : port == Port::state ? 1 : 3); }

constexpr ModulePattern kLayer{"", "layer", ModuleKind::block, 900, "resid", "resid", 10};

/// Fills in what the module is. False when no table has it.
bool take_module(TensorName& name, std::span<const std::string_view> path, bool has_port) {
  const ModulePattern* found = nullptr;
  if (name.layer) {
    found = path.empty() ? &kLayer : find_module(layer_modules(), path);
  } else {
    found = find_module(outer_modules(), path);
    if (found == nullptr) found = find_module(layer_modules(), path);
  }
  if (found == nullptr) return false;
  name.op = found->op;
  name.kind = found->kind;
  if (!has_port) return true;
  const int order = name.port == Port::input && found->order_in != 0 ? found->order_in : found->order;
  name.order = place_of(order, name.port);
  name.role = name.port == Port::input ? found->role_in : found->role_out;
  // An attention is called with q, k and v.
  if (name.port == Port::input && name.kind == ModuleKind::attention && name.index > 0) {
    constexpr std::array<std::string_view, 3> kArguments = {"q", "k", "v"};
    name.role = name.index < 3 ? kArguments[static_cast<std::size_t>(name.index)] : std::string_view("x");
  }
  return true;
}

bool take_state(TensorName& name, std::span<const std::string_view> path) {
  const StatePattern* state = find_state(path.back());
  if (state == nullptr) return false;
  const auto module = path.first(path.size() - 1);
  const bool of_module = !module.empty() && take_module(name, module, false);
  name.port = state->port;
  name.role = state->role;
  if (state->order != 0) {
    name.order = place_of(state->order, state->port);
    name.op = std::string(state->role);
    name.kind = state->kind;
  } else if (of_module) {
    name.port = state->port;
    const ModulePattern* owner = find_module(name.layer ? layer_modules() : outer_modules(), module);
    name.order = place_of(owner != nullptr ? owner->order : 0, state->port);
  } else {
    name.op = path.size() > 1 ? std::string(path[path.size() - 2]) : std::string(state->role);
    if (state->role == "resid") name.order = place_of(900, Port::output);
  }
  return of_module || state->order != 0 || state->role == "resid";
}

/// Without what wrappers add, and with llama.cpp's "Qcur-3" as its layer and its name.
Segments cleaned(std::string_view key, TensorName& name) {
  Segments parts;
  for (const std::string_view part : split(key, '.')) {
    if (listed("_orig_mod _fsdp_wrapped_module _checkpoint_wrapped_module", part)) continue;
    parts.push_back(part);
  }
  if (parts.size() > 1 && parts.front() == "module") parts.erase(parts.begin());
  while (parts.size() > 1 && take_place(name, parts.front())) parts.erase(parts.begin());
  const std::size_t dash = parts.back().rfind('-');
  if (dash != std::string_view::npos && dash > 0 && all_digits(parts.back().substr(dash + 1))) {
    name.layer = number(parts.back().substr(dash + 1));
    parts.back() = parts.back().substr(0, dash);
  }
  return parts;
}

void take_key(TensorName& name, std::string_view key) {
  const Segments parts = cleaned(key, name);
  for (const std::string_view part : parts) {
    if (listed("visual vision_tower vision_model vit vision", part)) name.tower = "vision";
    if (listed("audio_tower audio_model", part)) name.tower = "audio";
    // Its layers are numbered anew, or run after all others.
    if (listed("mtp", part)) name.tower = "mtp";
  }
  const std::size_t begin = name.layer ? 0 : take_layer(name, parts);
  const std::size_t end = std::max(begin, take_port(name, parts, begin));
  const bool has_port = end < parts.size();
  Segments path(parts.begin() + static_cast<std::ptrdiff_t>(begin), parts.begin() + static_cast<std::ptrdiff_t>(end));
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    if (path[i] != "experts" || !all_digits(path[i + 1])) continue;
    name.expert = number(path[i + 1]);
    path.erase(path.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  std::size_t module_parts = end;
  if (has_port) {
    name.known = take_module(name, path, true) || (!path.empty() && take_state(name, path));
  } else if (!path.empty() && take_state(name, path)) {
    name.known = true;
    module_parts = end - 1;
  } else {
    name.known = take_module(name, path, true);
  }
  for (std::size_t i = 0; i < module_parts; ++i) {
    if (!name.module.empty()) name.module += '.';
    name.module += parts[i];
  }
  // Where in its layer an unknown module stands is not known either: behind what is.
  if (!name.known && name.layer) name.order = place_of(kLayer.order - 1, name.port);
  if (name.op.empty() && !path.empty()) name.op = std::string(path.back());
  if (name.role.empty()) name.role = has_port ? (name.port == Port::input ? "x" : "out") : std::string(parts.back());
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
  TensorName name;
  Segments folders = split(text, '/');
  const std::string_view key = folders.back();
  folders.pop_back();
  for (const std::string_view folder : folders) {
    if (folder.empty() || take_place(name, folder)) continue;
    if (!name.run.empty()) name.run += '/';
    name.run += folder;
  }
  take_key(name, key);
  return name;
}

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  const auto digits = [](std::string_view text, std::size_t begin) {
    std::size_t end = begin;
    while (end < text.size() && is_digit(text[end])) ++end;
    while (begin + 1 < end && text[begin] == '0') ++begin;
    return text.substr(begin, end - begin);
  };
  const auto phase = [](std::string_view text) {
    return text.starts_with("prefill") ? 0 : text.starts_with("decode") ? 1 : 2;
  };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = digits(a, i);
      const std::string_view y = digits(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      while (i < a.size() && is_digit(a[i])) ++i;
      while (j < b.size() && is_digit(b[j])) ++j;
      continue;
    }
    if (a[i] != b[j]) {
      const int first = phase(a.substr(i));
      const int second = phase(b.substr(j));
      if (first < 2 && second < 2) return first < second;
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
    }
    ++i;
    ++j;
  }
  return a.size() - i < b.size() - j;
}

}  // namespace nanscope
