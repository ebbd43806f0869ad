#include "core/dump/library_names.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/dump/name_words.h"
#include "core/dump/tensor_name.h"

namespace nanscope {
namespace {

/// "['a']['b'][0]" and "['a'].b[0]" as a/b/0, as jax.tree_util.keystr() writes keys; empty for other text.
std::string tree_path(std::string_view key) {
  if (!key.starts_with("['") && !key.starts_with("[\"")) return {};
  std::string path;
  while (!key.empty()) {
    std::string_view part;
    if (key.front() == '[') {
      const std::size_t end = key.find(']');
      if (end == std::string_view::npos) return {};
      part = key.substr(1, end - 1);
      if (part.size() > 1 && (part.front() == '\'' || part.front() == '"')) part = part.substr(1, part.size() - 2);
      key.remove_prefix(end + 1);
    } else if (key.front() == '.') {
      const std::size_t end = std::min(key.find_first_of(".[", 1), key.size());
      part = key.substr(1, end - 1);
      key.remove_prefix(end);
    } else {
      return {};
    }
    if (!path.empty()) path += '/';
    path += part;
  }
  return path;
}

/// The folder of a step or a rank before the modules stays a folder, that of the collection is left out.
std::string flax_call(std::string_view text) {
  constexpr std::string_view kCall = "/__call__";
  const std::size_t at = text.rfind(kCall);
  if (at == std::string_view::npos) return {};
  const std::string_view behind = text.substr(at + kCall.size());
  if (!behind.empty() && (behind.front() != '/' || !number(behind.substr(1)))) return {};
  std::string path(text.substr(0, at));
  for (const std::string_view collection : {"intermediates", "perturbations"}) {
    const std::size_t found = path.find(collection);
    const std::size_t end = found + collection.size();
    if (found == std::string::npos || (found > 0 && path[found - 1] != '/') || end == path.size() || path[end] != '/')
      continue;
    path.erase(found, collection.size() + 1);
  }
  std::string called = path + ".output";
  const bool again = !behind.empty() && behind != "/0";
  if (again) called = path + "_again" + std::to_string(*number(behind.substr(1)) + 1) + ".output";
  const std::size_t first = called.find('/');
  const std::string word = in_words(called.substr(0, first));
  const Counted counted = counted_word(word);
  const bool placed = first != std::string::npos && counted.count && place_word(counted.word) != PlaceWord::layer;
  std::replace(called.begin() + (placed ? static_cast<std::ptrdiff_t>(first) + 1 : 0), called.end(), '/', '.');
  return called;
}

/// "/model/layers.2/mlp/up_proj/MatMul_output_0" of an ONNX graph that PyTorch exported: modules as folders, and the
/// operator. The product in a module that is one is what the module gave; other operators are named as they are.
std::string exported(std::string_view text) {
  const std::size_t root = text.starts_with('/') ? 0 : text.find("//");
  if (root == std::string_view::npos) return {};
  const std::string_view folder = text.substr(0, root);
  std::string_view path = text.substr(root);
  while (path.starts_with('/')) path.remove_prefix(1);
  constexpr std::string_view kOutput = "_output_";
  const std::size_t output = path.rfind(kOutput);
  const std::size_t last = path.rfind('/');
  if (output == std::string_view::npos || last == std::string_view::npos || output < last ||
      !number(path.substr(output + kOutput.size())))
    return {};
  std::string modules(path.substr(0, last));
  std::replace(modules.begin(), modules.end(), '/', '.');
  const std::string_view op = path.substr(last + 1, output - last - 1);
  const std::string before = folder.empty() ? std::string() : std::string(folder) + '/';
  const bool product = op == "MatMul" || op == "Gemm";
  if (product && parse_tensor_name(modules + ".output").kind == OpKind::gemm) return before + modules + ".output";
  return before + modules + '.' + std::string(op);
}

/// What transformers returns a list of: a layer's each.
bool is_list_of_layers(std::string_view word) {
  return listed("hidden_states attentions decoder_hidden_states decoder_attentions all_hidden_states all_attentions",
                word);
}

/// "hidden_states_3", "hidden_states.0.3" (of step 0), "logits.2" (of step 2). The key alone, without folders.
std::string listed_layer(std::string_view key) {
  const std::size_t first = key.find('.');
  if (first == std::string_view::npos) {
    const Counted counted = counted_word(key);
    const bool list = counted.count && *counted.count > 0 && counted.word.size() < key.size() &&
                      is_list_of_layers(counted.word) && counted.word != "decoder_hidden_states";
    return list ? std::string(counted.word) + '.' + std::to_string(*counted.count) : std::string();
  }
  const std::string_view word = key.substr(0, first);
  const std::string_view rest = key.substr(first + 1);
  const std::size_t second = rest.find('.');
  const auto step = number(rest.substr(0, second));
  if (!step) return {};
  if (second == std::string_view::npos) {
    const bool of_steps = listed("logits scores", word);
    return of_steps ? "step_" + std::to_string(*step) + "/" + std::string(word == "scores" ? "processed_logits" : word)
                    : std::string();
  }
  if (!is_list_of_layers(word) || !number(rest.substr(second + 1))) return {};
  return "step_" + std::to_string(*step) + '/' + std::string(word) + std::string(rest.substr(second));
}

}  // namespace

std::string in_grammar(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::string_view folder = slash == std::string_view::npos ? std::string_view() : name.substr(0, slash + 1);
  std::string text(name);
  if (const std::size_t tree = name.find("['"); tree != std::string_view::npos) {
    const std::string path = tree_path(name.substr(tree));
    if (!path.empty()) text = std::string(name.substr(0, tree)) + path;
  }
  if (std::string operators = exported(text); !operators.empty()) return operators;
  if (std::string called = flax_call(text); !called.empty()) return called;
  if (std::string layer = listed_layer(name.substr(folder.size())); !layer.empty()) return std::string(folder) + layer;
  return text;
}

}  // namespace nanscope
