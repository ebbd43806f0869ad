#include <cstdlib>
#include <string_view>
#include <vector>

#include "instrument/dump/overrides.h"

/// Seeds: the example of docs/producers.md. What is accepted is applied to a few tensors; a pattern may fail on them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nanscope;
  auto read = Overrides::read({reinterpret_cast<const char*>(data), size}, "nanscope.toml");
  if (!read) {
    if (read.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  std::vector<DumpTensor> tensors;
  for (const char* name : {"step_1/net.3.key_mem", "net.3.factor", "batch7/gpu_x2/layers.0.mlp.output"}) {
    DumpTensor tensor;
    tensor.name = name;
    tensor.at = parse_tensor_name(name);
    tensor.dtype = find_dtype("u8");
    tensor.shape = {2, 2};
    tensors.push_back(tensor);
  }
  std::size_t added = 0;
  const auto applied = read->apply(tensors, [&](const std::shared_ptr<Container>&) { return added++; });
  if (!applied && applied.error().message.empty()) std::abort();
  const std::size_t count = tensors.size();
  const auto sorted = read->sort(tensors);
  if (sorted && tensors.size() != count) std::abort();
  read->unused();
  return 0;
}
