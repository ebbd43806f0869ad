/// gguf_tool TYPE < BLOCKS > VALUES, for compare_gguf.py: blocks of a type of GGUF in, f32 values out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "instrument/gguf/block_type.h"

int main(int argc, char** argv) {
  using namespace nanscope;
  const auto types = gguf_types();
  const std::string_view name = argc == 2 ? argv[1] : "";
  const auto type = std::find_if(types.begin(), types.end(), [&](const GgufType& one) { return one.name == name; });
  if (type == types.end()) {
    for (const GgufType& one : types) fmt::print("{}\n", one.name);
    return argc == 1 ? 0 : 2;
  }
  constexpr std::size_t kBlocks = 4096;
  std::vector<std::byte> blocks(kBlocks * type->bytes);
  std::vector<float> values(kBlocks * type->elements);
  while (const std::size_t got = std::fread(blocks.data(), type->bytes, kBlocks, stdin)) {
    const auto some = std::span(values).first(got * type->elements);
    decode_blocks(*type, blocks, some);
    if (std::fwrite(some.data(), sizeof(float), some.size(), stdout) != some.size()) return 2;
  }
  return 0;
}
