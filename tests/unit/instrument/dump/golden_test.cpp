#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/files/output_file.h"
#include "instrument/dump/container.h"
#include "instrument/files/file.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using nlohmann::json;

const std::filesystem::path kDumps = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/dumps";

const json& expectations() {
  static const json kExpected = [] {
    const auto text = read_file(kDumps / "expected.json", 1 << 22).value();
    return json::parse(as_text(text));
  }();
  return kExpected;
}

const ContainerKind* kind_of(const std::filesystem::path& path) {
  const auto head = read_file(path, 1 << 22).value();
  return container_kind_of(path, std::span(head).first(std::min<std::size_t>(head.size(), 16)));
}

std::vector<std::uint32_t> bits_of(const Container& container, std::size_t index) {
  const ContainedTensor& tensor = container.tensors()[index];
  const auto bytes = container.bytes(index);
  if (!bytes) throw std::runtime_error(bytes.error().message);
  EXPECT_EQ(bytes->bytes.size(), tensor.dtype->bytes(tensor.count())) << tensor.key;
  std::vector<std::uint32_t> bits;
  const auto values = decode_values(*tensor.dtype, bytes->bytes, 0, tensor.count());
  for (const float value : values.value()) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

/// Everything that a container says, in the shape of expected.json.
json description(const Container& container) {
  json tensors = json::array();
  for (std::size_t i = 0; i < container.tensors().size(); ++i) {
    const ContainedTensor& tensor = container.tensors()[i];
    tensors.push_back(
        {{"key", tensor.key}, {"dtype", tensor.dtype->name}, {"shape", tensor.shape}, {"bits", bits_of(container, i)}});
  }
  std::set<std::string> skipped;
  for (const SkippedTensor& tensor : container.skipped()) skipped.insert(tensor.key);
  return {{"tensors", tensors}, {"skipped", skipped}, {"metadata", container.metadata()}};
}

json by_key(json described) {
  auto& tensors = described["tensors"].get_ref<json::array_t&>();
  std::sort(tensors.begin(), tensors.end(), [](const json& a, const json& b) { return a["key"] < b["key"]; });
  return described;
}

/// The files were written by NumPy, safetensors, huggingface_hub and torch, and so were the values expected
/// of them: tests/golden/dumps/make.py.
TEST(GoldenDumps, HoldWhatTheirProducersReadInThem) {
  for (const auto& [name, expected] : expectations().items()) {
    SCOPED_TRACE(name);
    const ContainerKind* kind = kind_of(kDumps / name);
    ASSERT_NE(kind, nullptr);
    EXPECT_EQ(kind->name, expected["kind"].get<std::string>());
    const auto container = kind->open(kDumps / name);
    ASSERT_TRUE(container.has_value()) << container.error().message;
    json wanted = expected;
    wanted.erase("kind");
    EXPECT_EQ(by_key(description(**container)), by_key(wanted));
  }
}

/// A file cut off anywhere is refused, in one line that names it; it never reads as something else. (Lines
/// of JSON are whole without those that are cut off: a manifest of lines is left out.)
TEST(GoldenDumps, EveryPrefixIsRefused) {
  const TemporaryFolder folder;
  for (const auto& [name, expected] : expectations().items()) {
    SCOPED_TRACE(name);
    if (name.ends_with(".jsonl")) continue;
    const ContainerKind* kind = kind_of(kDumps / name);
    const auto whole = read_file(kDumps / name, 1 << 22).value();
    const auto path = folder / std::filesystem::path(name).filename().string();
    ASSERT_TRUE(write_output(path, whole, {.replace = true}).has_value());
    for (std::size_t length = whole.size(); length-- > 0;) {
      std::filesystem::resize_file(path, length);
      EXPECT_EQ(kind_of(path), kind) << length;
      const auto container = kind->open(path);
      ASSERT_FALSE(container.has_value()) << length;
      EXPECT_EQ(container.error().message.rfind(path.string() + ": ", 0), 0U) << container.error().message;
      EXPECT_EQ(container.error().message.find('\n'), std::string::npos);
    }
    std::filesystem::remove(path);
  }
}

}  // namespace
}  // namespace nanscope
