// Compares with what the producers' packages wrote: tests/golden/blocks, made by tests/blocks/compare_producers.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/blocks/block_codec.h"
#include "core/blocks/presets.h"
#include "tests/read_text.h"

namespace nanscope {
namespace {

const std::string kFolder = std::string(NANSCOPE_SOURCE_DIR) + "/tests/golden/blocks/";
constexpr std::size_t kSharedColumns = 64;

/// What a producer made of a matrix.
struct Made {
  std::string preset;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float second = 1;
  bool as_values = false;
  std::vector<float> inputs;
  std::span<const std::byte> outputs;
  std::size_t codes = 0;  ///< bytes of the outputs before scales begin
};

struct Golden {
  std::string bytes = read_text(kFolder + "blocks.bin");
  std::vector<Made> made;
  std::map<std::string, std::pair<float, std::uint64_t>> values;  ///< second scale and digest, by preset
};

float from_hex(const std::string& text) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(text, nullptr, 16)));
}

Made read_line(const std::string& line, std::span<const std::byte> bytes) {
  std::istringstream words(line);
  Made made;
  std::string second;
  std::string rows;
  std::string kind;
  std::size_t begin = 0;
  std::size_t scales = 0;
  std::size_t end = 0;
  words >> made.preset >> made.rows >> made.columns >> second >> rows >> kind >> begin >> scales >> end;
  made.second = from_hex(second);
  made.as_values = kind == "values";
  made.outputs = bytes.subspan(begin, end - begin);
  made.codes = scales - begin;
  std::vector<float> given;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows[row] != '1') continue;
    const std::size_t place = given.size();
    given.resize(place + kSharedColumns);
    std::memcpy(given.data() + place, bytes.data() + row * kSharedColumns * 4, kSharedColumns * 4);
  }
  for (std::int64_t i = 0; i < made.rows * made.columns; ++i) {
    made.inputs.push_back(given[static_cast<std::size_t>(i) % given.size()]);
  }
  return made;
}

const Golden& golden() {
  static const Golden kGolden = [] {
    Golden all;
    std::istringstream lines(read_text(kFolder + "blocks.txt"));
    const std::span bytes = std::as_bytes(std::span(all.bytes));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('#')) continue;
      if (!line.starts_with("values ")) {
        all.made.push_back(read_line(line, bytes));
        continue;
      }
      std::istringstream words(line);
      std::string word;
      std::string name;
      std::string second;
      std::string digest;
      words >> word >> name >> second >> digest;
      all.values[name] = {from_hex(second), std::stoull(digest, nullptr, 16)};
    }
    return all;
  }();
  return kGolden;
}

/// Codes that are read as NaN by both are the same: which one it is, is chance in most producers.
bool same(float ours, float theirs) {
  if (std::isnan(ours) && std::isnan(theirs)) return true;
  return std::bit_cast<std::uint32_t>(ours) == std::bit_cast<std::uint32_t>(theirs);
}

std::vector<float> decoded(const BlockFormat& format, std::span<const std::byte> bytes, const Made& made) {
  std::vector<float> values(made.inputs.size());
  decode_blocks(format, {bytes.first(made.codes), bytes.subspan(made.codes)}, made.rows, made.columns, made.second,
                values);
  return values;
}

void expect_same(const Made& made) {
  const BlockPreset* preset = find_block_preset(made.preset);
  ASSERT_NE(preset, nullptr) << made.preset;
  const BlockFormat& format = preset->format;
  const BlockBytes size = block_bytes(format, made.rows, made.columns);
  std::vector<std::byte> ours(size.codes + size.scales);
  const std::span all(ours);
  encode_blocks(format, made.inputs, made.rows, made.columns, made.second,
                {all.first(size.codes), all.subspan(size.codes)});
  Made layout = made;
  layout.codes = size.codes;
  const std::vector<float> values = decoded(format, ours, layout);
  std::vector<float> theirs(made.inputs.size());
  if (made.as_values) {
    ASSERT_EQ(made.outputs.size(), theirs.size() * 4);
    std::memcpy(theirs.data(), made.outputs.data(), made.outputs.size());
  } else {
    ASSERT_EQ(made.codes, size.codes) << made.preset;
    ASSERT_EQ(made.outputs.size(), ours.size()) << made.preset;
    theirs = decoded(format, made.outputs, made);
  }
  bool nan = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    nan = nan || std::isnan(values[i]);
    ASSERT_TRUE(same(values[i], theirs[i])) << made.preset << ": element " << i << " = " << made.inputs[i] << ": "
                                            << values[i] << " here, " << theirs[i] << " by " << preset->producer;
  }
  if (made.as_values) return;
  if (!nan) {
    EXPECT_TRUE(std::ranges::equal(ours, made.outputs)) << made.preset << ": other codes of the same values";
  }
}

TEST(BlockGolden, EncodesAsTheProducersDo) {
  for (const Made& made : golden().made) expect_same(made);
}

TEST(BlockGolden, HoldsEveryPreset) {
  std::vector<std::string_view> compared;
  for (const Made& made : golden().made) compared.push_back(made.preset);
  for (const BlockPreset& preset : block_presets()) EXPECT_THAT(compared, testing::Contains(preset.name));
}

/// All element codes, a row a scale code, and their values.
std::vector<float> all_values(const BlockFormat& format, float second) {
  const int count = 1 << info(format.element).bits;
  std::vector<float> values;
  for (std::uint32_t scale = 0; scale < 256; ++scale) {
    for (int code = 0; code < count; ++code) {
      values.push_back(block_value(format, static_cast<std::uint8_t>(code), scale, second));
    }
  }
  return values;
}

TEST(BlockGolden, EveryCodeUnderEveryScaleIsWorthWhatMlDtypesSays) {
  ASSERT_EQ(golden().values.size(), 6U);
  for (const auto& [name, expected] : golden().values) {
    const BlockPreset* preset = find_block_preset(name);
    ASSERT_NE(preset, nullptr) << name;
    std::uint64_t digest = 0xcbf29ce484222325ULL;
    const std::vector<float> values = all_values(preset->format, expected.first);
    for (const std::byte byte : std::as_bytes(std::span(values))) {
      digest = (digest ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
    }
    EXPECT_EQ(digest, expected.second) << name;
  }
}

}  // namespace
}  // namespace nanscope
