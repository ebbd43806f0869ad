#include "tests/unit/kernels/ops/op_cases.h"

#include <fmt/format.h>

#include <cstring>
#include <span>

#include "core/numbers/codec.h"
#include "kernels/tensor_core_bound.h"

namespace nanscope::kernels::cases {
namespace {

void hash(std::uint64_t& state, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) state = (state ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
}

}  // namespace

std::vector<OpCase> op_cases_of(std::span<const Shape> shapes) {
  std::vector<OpCase> cases;
  add_norm_cases(cases, shapes);
  add_element_cases(cases, shapes);
  add_attention_cases(cases);
  add_attention_split_cases(cases);
  add_kv_cases(cases, shapes);
  add_product_cases(cases, shapes);
  add_block_cases(cases, shapes);
  add_tile_cases(cases, shapes);
  add_observer_cases(cases, shapes);
  add_gradient_cases(cases, shapes);
  add_attention_gradient_cases(cases);
  add_optimizer_cases(cases, shapes);
  add_recurrent_cases(cases, shapes);
  return cases;
}

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> all = op_cases_of(shapes());
  return all;
}

Result<std::vector<Output>> run_case(const OpCase& op_case, Device& device, const Placement& placement) {
  CaseMemory memory(device, placement);
  op_case.build(memory);
  return memory.finish();
}

std::uint64_t digest(const std::vector<Output>& outputs) {
  std::uint64_t state = 0xcbf29ce484222325ULL;
  for (const Output& output : outputs) {
    hash(state, std::as_bytes(std::span(output.name)));
    const std::int64_t shape[] = {output.rows, output.columns};
    hash(state, std::as_bytes(std::span(shape)));
    hash(state, output.bytes);
  }
  return state;
}

std::string first_difference(const std::vector<Output>& expected, const std::vector<Output>& found, bool other_kind) {
  if (expected.size() != found.size()) return "the number of outputs differs";
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Output& a = expected[i];
    const Output& b = found[i];
    if (a.bytes.size() != b.bytes.size()) return a.name + ": sizes differ";
    const std::size_t element = info(a.format).storage_bytes();
    for (std::size_t at = 0; at < a.bytes.size(); at += element) {
      if (std::memcmp(&a.bytes[at], &b.bytes[at], element) == 0) continue;
      std::uint32_t codes[2] = {0, 0};
      std::memcpy(&codes[0], &a.bytes[at], element);
      std::memcpy(&codes[1], &b.bytes[at], element);
      const auto index = static_cast<std::int64_t>(at / element);
      double share = 0;
      if (other_kind && a.products > 0 &&
          within_tensor_core_bound(a.format, a.products, a.magnitude(index / a.columns, index % a.columns),
                                   decode(a.format, codes[0]), decode(a.format, codes[1]), share)) {
        continue;
      }
      return fmt::format("{}[{},{}]: expected {:#x}, found {:#x}", a.name, index / a.columns, index % a.columns,
                         codes[0], codes[1]);
    }
  }
  return "";
}

}  // namespace nanscope::kernels::cases
