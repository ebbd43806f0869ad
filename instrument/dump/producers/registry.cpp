#include <algorithm>

#include "core/dump/tensor_name.h"
#include "instrument/dump/plain_files.h"
#include "instrument/dump/producers/producer.h"

namespace nanscope {

#define NANSCOPE_PRODUCER(name) std::unique_ptr<Producer> name##_producer();
#include "instrument/dump/producers/producers.def"
#undef NANSCOPE_PRODUCER

std::vector<std::unique_ptr<Producer>> make_producers() {
  std::vector<std::unique_ptr<Producer>> producers;
#define NANSCOPE_PRODUCER(name) producers.push_back(name##_producer());
#include "instrument/dump/producers/producers.def"
#undef NANSCOPE_PRODUCER
  return producers;
}

namespace {

/// "mlp_inputs_args_0", "mlp_outputs_1": as transformers' model_addition_debugger_context() names a file with one
/// tensor, whose key is "data" in each.
std::string debugged_name(std::string stem) {
  for (const std::string_view side : {"_inputs_args_", "_inputs_kwargs_", "_outputs"}) {
    const std::size_t at = stem.rfind(side);
    if (at == std::string::npos) continue;
    std::string rest = stem.substr(at + side.size());
    if (rest.starts_with('_')) rest.erase(0, 1);
    const std::string port = side == "_outputs" ? ".output" : ".input";
    const bool first = rest.empty() || rest == "0";
    return stem.substr(0, at) + port + (first ? std::string() : '.' + rest);
  }
  return stem;
}

/// A file of each module, "model.layers.0.mlp.safetensors" with the keys "input" and "output", or of each layer,
/// "layer_3.npz" with "q" and "k": what the keys leave open, the file's name says. Numbers behind a dash count files.
bool belongs_to_name(const std::string& stem, const std::string& key) {
  const TensorName joined = parse_tensor_name(stem + '.' + key);
  if (is_side(key)) return joined.known && (joined.layer || parse_tensor_name(stem).known);
  const bool path = key.find_first_of("./") != std::string::npos || stem.find('-') != std::string::npos;
  return !path && joined.known && joined.layer && !parse_tensor_name(key).layer;
}

}  // namespace

std::string plain_name(const DumpFile& file, const ContainedTensor& tensor) {
  const std::string folder = file.folder();
  std::string key = tensor.key.empty() ? file.stem() : tensor.key == "data" ? debugged_name(file.stem()) : tensor.key;
  if (!tensor.key.empty() && tensor.key != "data" && belongs_to_name(file.stem(), key)) key = file.stem() + '.' + key;
  return folder.empty() ? key : folder + '/' + key;
}

}  // namespace nanscope
