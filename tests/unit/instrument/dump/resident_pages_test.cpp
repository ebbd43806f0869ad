#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "instrument/dump/containers/safetensors.h"
#include "tests/temporary_folder.h"

/// A large dump is read through its pages; those that were read do not pile up.
namespace nanscope {
namespace {

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

TEST(ResidentPages, OfALargeFileStayFew) {
  constexpr std::uint64_t kTensors = 40;
  constexpr std::uint64_t kEach = std::uint64_t{8} << 20;
  const TemporaryFolder folder;
  std::string header = "{";
  for (std::uint64_t i = 0; i < kTensors; ++i) {
    header += (i > 0 ? "," : "") + ("\"t" + std::to_string(i)) + R"(":{"dtype":"U8","shape":[)" +
              std::to_string(kEach) + R"(],"data_offsets":[)" + std::to_string(i * kEach) + "," +
              std::to_string((i + 1) * kEach) + "]}";
  }
  header += "}";
  const std::filesystem::path path = folder / "large.safetensors";
  const std::uint64_t size = header.size();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&size), sizeof size) << header;
  std::filesystem::resize_file(path, sizeof size + header.size() + kTensors * kEach);  // sparse

  const auto container = open_safetensors(path);
  ASSERT_TRUE(container) << container.error().message;
  const std::uint64_t before = resident_bytes();
  std::uint64_t most = 0;
  for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
    const auto bytes = (*container)->bytes(tensor);
    ASSERT_TRUE(bytes);
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at < bytes->bytes.size(); at += 4096)
      sum += std::to_integer<std::uint64_t>(bytes->bytes[at]);
    EXPECT_EQ(sum, 0U);
    most = std::max(most, resident_bytes());
  }
  EXPECT_LT(most - before, std::uint64_t{160} << 20) << "of 320 MiB that were read";
}

}  // namespace
}  // namespace nanscope
