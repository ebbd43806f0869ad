#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "instrument/recompute/arithmetic.h"
#include "tests/unit/core/dump/memory_dump.h"

namespace {

/// Takes an input apart; zeros where it has ended.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  std::string_view text(std::size_t length) {
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view rest_;
};

constexpr std::array<std::string_view, 40> kWords = {"model.layers.0.",
                                                     "model.layers.1.",
                                                     "model.layers.",
                                                     "model.",
                                                     "step_0/",
                                                     "step_1/",
                                                     "rank_0/",
                                                     "rank_1/",
                                                     "run/",
                                                     "self_attn.",
                                                     "mlp.",
                                                     "q_proj",
                                                     "k_proj",
                                                     "v_proj",
                                                     "qkv_proj",
                                                     "o_proj",
                                                     "down_proj",
                                                     "scores",
                                                     "probs",
                                                     "attention",
                                                     "rope",
                                                     "k_cache",
                                                     "v_cache",
                                                     "kv_cache",
                                                     "mask",
                                                     "positions",
                                                     "input_ids",
                                                     "slot_mapping",
                                                     "block_table",
                                                     "seq_lens",
                                                     "embed_tokens",
                                                     "norm",
                                                     "lm_head",
                                                     "router_ids",
                                                     ".input",
                                                     ".output",
                                                     ".weight",
                                                     ".scale",
                                                     ".codes",
                                                     ".amax_history"};
constexpr std::array<const char*, 8> kDtypes = {"f32", "f16", "bf16", "e4m3", "i32", "i64", "u8", "bool"};
constexpr std::array<double, 8> kValues = {0, 1, -1, 448, 1e9, -1e18, 9.2e18, -9.2e18};

std::string name_of(Input& input) {
  std::string name;
  for (int parts = 1 + input.byte() % 6; parts > 0; --parts) {
    const std::uint8_t what = input.byte();
    if (what < kWords.size()) {
      name += kWords[what];
    } else if (what < 200) {
      name += std::to_string(what);
    } else {
      name += input.text(what % 12);
    }
  }
  return name;
}

}  // namespace

/// Names, shapes and integers of a dump may be anything: it becomes a run, and is diagnosed, or is refused.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  nanscope::testing::MemoryDump dump;
  for (int tensors = 0; !input.empty() && tensors < 24; ++tensors) {
    const std::string name = name_of(input);
    const char* dtype = kDtypes[input.byte() % kDtypes.size()];
    std::vector<std::int64_t> shape;
    for (int dimensions = input.byte() % 5; dimensions > 0; --dimensions) shape.push_back(input.byte() % 9);
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint8_t value = input.byte();
      values.push_back(value < kValues.size() ? kValues[value] : static_cast<double>(value) - 64);
    }
    dump.add(name, dtype, std::move(shape), std::move(values));
  }
  const auto run = dump.run();
  nanscope::PlainArithmetic arithmetic;
  const auto diagnosis = nanscope::diagnose(*run, arithmetic, {});
  if (!diagnosis && diagnosis.error().message.empty()) std::abort();
  return 0;
}
