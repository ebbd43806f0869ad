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

}  // namespace

std::string plain_name(const DumpFile& file, const ContainedTensor& tensor) {
  const std::string folder = file.folder();
  const std::string key = tensor.key.empty()     ? file.stem()
                          : tensor.key == "data" ? debugged_name(file.stem())
                                                 : tensor.key;
  return folder.empty() ? key : folder + '/' + key;
}

}  // namespace nanscope
