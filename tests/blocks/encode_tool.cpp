/// encode_tool encode|decode PRESET ROWS COLUMNS SECOND < IN > OUT, for compare_producers.py.
///
/// encode: f32 values in; codes, then scales out. decode: codes, then scales in; f32 values out. SECOND: the bits of
/// the second scale as a hexadecimal number. PRESET@RxC has blocks of R x C elements instead of its own.
#include <fmt/format.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/blocks/block_codec.h"
#include "core/blocks/presets.h"

namespace {

using namespace nanscope;

std::vector<std::byte> read_all(std::size_t bytes) {
  std::vector<std::byte> in(bytes);
  if (std::fread(in.data(), 1, bytes, stdin) != bytes) {
    fmt::print(stderr, "encode_tool: fewer than {} bytes came in\n", bytes);
    std::exit(2);
  }
  return in;
}

void write_all(std::span<const std::byte> out) {
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size()) std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc == 6 ? argv[2] : "";
  const BlockPreset* preset = find_block_preset(name.substr(0, name.find('@')));
  if (preset == nullptr) {
    fmt::print(stderr, "usage: encode_tool encode|decode PRESET ROWS COLUMNS SECOND\n");
    return 2;
  }
  BlockFormat format = preset->format;
  if (name.find('@') != std::string::npos &&
      std::sscanf(name.c_str() + name.find('@'), "@%dx%d", &format.block.rows, &format.block.columns) != 2) {
    fmt::print(stderr, "encode_tool: {}: what stands behind @ is no RxC\n", name);
    return 2;
  }
  const std::int64_t rows = std::atoll(argv[3]);
  const std::int64_t columns = std::atoll(argv[4]);
  const auto second = std::bit_cast<float>(static_cast<std::uint32_t>(std::strtoul(argv[5], nullptr, 16)));
  const BlockBytes bytes = block_bytes(format, rows, columns);
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  if (std::string(argv[1]) == "encode") {
    const std::vector<std::byte> in = read_all(values.size() * sizeof(float));
    std::copy(in.begin(), in.end(), std::as_writable_bytes(std::span(values)).begin());
    std::vector<std::byte> codes(bytes.codes);
    std::vector<std::byte> scales(bytes.scales);
    encode_blocks(format, values, rows, columns, second, {codes, scales});
    write_all(codes);
    write_all(scales);
    return 0;
  }
  const std::vector<std::byte> in = read_all(bytes.codes + bytes.scales);
  decode_blocks(format, {std::span(in).first(bytes.codes), std::span(in).subspan(bytes.codes)}, rows, columns, second,
                values);
  write_all(std::as_bytes(std::span(values)));
  return 0;
}
