/// The hash that core takes some bytes at a time is the one that the kernels take of a tensor.
#include "core/tensor/content_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "instrument/recorder/tensor_observer.h"
#include "kernels/device.h"

namespace nanscope {
namespace {

std::vector<std::byte> bytes(std::size_t count) {
  std::vector<std::byte> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<std::byte>(i * 131 + i / 7);
  return all;
}

std::uint64_t in_pieces(std::span<const std::byte> all, std::size_t piece) {
  ContentHash hash;
  for (std::size_t at = 0; at < all.size(); at += piece) hash.add(all.subspan(at, std::min(piece, all.size() - at)));
  return hash.finish();
}

TEST(ContentHash, IsTheKernels) {
  const auto device = kernels::make_cpu_device().value();
  TensorObserver observer(*device);
  for (const std::size_t count : {1U, 7U, 8U, 255U, 256U, 257U, 8191U, 8192U, 8193U, 40000U}) {
    std::vector<std::byte> all = bytes(count);
    const auto columns = static_cast<std::int64_t>(count);
    const std::uint64_t expected = observer.hash({all.data(), Format::int8, 1, columns, columns}).value();
    for (const std::size_t piece : {std::size_t{1}, std::size_t{100}, std::size_t{256}, std::size_t{8192}, count}) {
      EXPECT_EQ(in_pieces(all, piece), expected) << count << " bytes, " << piece << " at a time";
    }
  }
}

TEST(ContentHash, KnowsLengthsApart) {
  const std::vector<std::byte> zeros(3);
  EXPECT_NE(in_pieces(std::span(zeros).first(2), 2), in_pieces(zeros, 3));
  EXPECT_EQ(ContentHash().finish(), ContentHash().finish());
}

}  // namespace
}  // namespace nanscope
