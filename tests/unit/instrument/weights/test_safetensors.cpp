#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "instrument/weights/safetensors.h"

namespace nanscope {
namespace {

using nlohmann::json;

const std::filesystem::path kHere = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/unit/instrument/weights";

std::vector<std::byte> bytes_of(const std::filesystem::path& path) { return read_file(path, 1 << 20).value(); }

/// golden.safetensors was written by the `safetensors` package 0.8.0 from NumPy arrays (ml_dtypes
/// 0.6.0 for bf16 and the 8-bit floats); golden_values.json holds each array's f32 bits as
/// array.astype(float32) gives them.
TEST(Safetensors, ReadsWhatTheReferenceWrote) {
  const auto file = SafetensorsFile::open(kHere / "golden.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->header().metadata.at("made by"), "safetensors 0.8.0");
  const auto text = bytes_of(kHere / "golden_values.json");
  const json expected = json::parse(as_text(text));
  ASSERT_EQ(file->entries().size(), expected.size());
  for (const auto& [name, tensor] : expected.items()) {
    const SafetensorsEntry* entry = file->find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->shape, tensor["shape"].get<std::vector<std::int64_t>>()) << name;
    const auto values = safetensors_values(*entry, file->bytes(*entry));
    ASSERT_TRUE(values.has_value()) << values.error().message;
    std::vector<std::uint32_t> bits;
    for (const float value : *values) bits.push_back(std::bit_cast<std::uint32_t>(value));
    EXPECT_EQ(bits, tensor["bits"].get<std::vector<std::uint32_t>>()) << name;
  }
  EXPECT_EQ(file->find("e4m3")->format, Format::e4m3);
  EXPECT_EQ(file->find("e8m0")->format, Format::e8m0);
  EXPECT_EQ(file->find("f64")->format, std::nullopt);
  EXPECT_EQ(file->find("scalar")->count(), 1);
  EXPECT_EQ(file->find("empty")->count(), 0);
  EXPECT_EQ(file->find("nothing"), nullptr);
}

/// golden_writer.safetensors is the reference's file of the same four tensors.
TEST(Safetensors, WritesWhatTheReferenceWrites) {
  const std::vector<float> a = {1.5F};
  const std::vector<float> b = {0, 1, 2, 3, 4, 5};
  const std::vector<double> d = {3.0};
  const std::vector<std::uint16_t> half = {0x3C00, 0x4000, 0x4200};
  std::vector<SafetensorsInput> tensors = {{"half", "F16", {3}, std::as_bytes(std::span(half))},
                                           {"b", "F32", {2, 3}, std::as_bytes(std::span(b))},
                                           {"a", "F32", {1}, std::as_bytes(std::span(a))},
                                           {"d", "F64", {1}, std::as_bytes(std::span(d))}};
  const auto expected = bytes_of(kHere / "golden_writer.safetensors");
  EXPECT_EQ(encode_safetensors(tensors, {{"k", "v"}}).value(), expected);
  std::swap(tensors[0], tensors[3]);
  EXPECT_EQ(encode_safetensors(tensors, {{"k", "v"}}).value(), expected);
}

TEST(Safetensors, ReadsBackWhatItWrites) {
  const std::vector<std::uint8_t> codes = {0, 1, 2, 3, 4, 5, 6};
  std::vector<SafetensorsInput> tensors;
  for (const char* dtype : {"F8_E4M3FNUZ", "F8_E5M2FNUZ", "U8", "BOOL"}) {
    tensors.push_back({std::string("t ") + dtype + "\n\"\u00FC", dtype, {7}, std::as_bytes(std::span(codes))});
  }
  tensors.push_back({"packed", "F4", {2, 7}, std::as_bytes(std::span(codes))});
  tensors.push_back({"six", "F6_E2M3", {4}, std::as_bytes(std::span(codes).first(3))});
  tensors.push_back({"none", "F32", {0}, {}});
  const auto bytes = encode_safetensors(tensors);
  ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
  const auto header = parse_safetensors(*bytes, "memory");
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ(header->data_begin % 8, 0U);
  ASSERT_EQ(header->entries.size(), tensors.size());
  for (const SafetensorsInput& tensor : tensors) {
    const auto entry = std::find_if(header->entries.begin(), header->entries.end(),
                                    [&](const SafetensorsEntry& e) { return e.name == tensor.name; });
    ASSERT_NE(entry, header->entries.end()) << tensor.name;
    EXPECT_EQ(entry->dtype, tensor.dtype);
    EXPECT_EQ(entry->shape, tensor.shape);
    EXPECT_EQ(entry->end - entry->begin, tensor.bytes.size());
  }
  EXPECT_FALSE(safetensors_values(header->entries.front(), {}).has_value() && header->entries.front().dtype == "F4");
}

TEST(Safetensors, WriterRefusesWhatDoesNotFit) {
  const std::vector<float> two = {1, 2};
  const auto bytes = std::as_bytes(std::span(two));
  EXPECT_FALSE(encode_safetensors({{"a", "F32", {3}, bytes}}).has_value());
  EXPECT_FALSE(encode_safetensors({{"a", "F31", {2}, bytes}}).has_value());
  EXPECT_FALSE(encode_safetensors({{"a", "F32", {-2, -1}, bytes}}).has_value());
  EXPECT_FALSE(encode_safetensors({{"a", "F32", {2}, bytes}, {"a", "F32", {2}, bytes}}).has_value());
}

}  // namespace
}  // namespace nanscope
