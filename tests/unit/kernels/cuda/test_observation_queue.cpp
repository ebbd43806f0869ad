// Observations that are handed on late must be those of the moment they were asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/tensor/health.h"
#include "instrument/recorder/observation_queue.h"
#include "kernels/ops/residual_add.h"
#include "tests/unit/kernels/cuda/fake_cudart.h"

namespace nanscope {
namespace {

using fake_cuda::Schedule;
using kernels::TensorView;
using testing::HasSubstr;
using testing::IsEmpty;

struct Kept {
  std::uint64_t hash;
  std::vector<Health> tiles;
  std::vector<std::byte> bytes;
};

bool operator==(const Kept& a, const Kept& b) {
  const auto same = [](const Health& x, const Health& y) { return std::memcmp(&x, &y, sizeof(Health)) == 0; };
  return a.hash == b.hash && a.bytes == b.bytes &&
         std::equal(a.tiles.begin(), a.tiles.end(), b.tiles.begin(), b.tiles.end(), same);
}

/// Doubles a tensor of many shapes in place, again and again, and observes it after each time.
std::vector<Kept> observe_all(kernels::Device& device, std::size_t half_bytes) {
  std::vector<Kept> kept;
  std::vector<float> values(9000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 101) - 50.0F;
  const kernels::Buffer buffer = *device.allocate(values.size() * sizeof(float), false);
  EXPECT_TRUE(device.upload(buffer.data(), std::as_bytes(std::span(values))));
  ObservationQueue queue(
      device,
      [&](Observation observation) -> Status {
        kept.push_back(
            {observation.hash, {observation.tiles.begin(), observation.tiles.end()}, std::move(observation.bytes)});
        return {};
      },
      [](std::size_t bytes) { return std::vector<std::byte>(bytes); }, half_bytes);
  int turn = 0;
  for (const std::int64_t rows : {1, 3, 1, 7, 0, 9, 2, 1, 5}) {
    for (const std::int64_t columns : {1, 32, 600, 77}) {
      const TensorView view{buffer.data(), Format::f32, rows, columns, columns + turn % 3};
      const Status launched = rows > 0 ? device.launch(kernels::ResidualAddArgs{view, view, view}) : Status{};
      EXPECT_TRUE(launched);
      const Status asked = queue.observe({.view = view, .health = turn % 3 != 0, .bytes = turn % 2 == 0});
      EXPECT_TRUE(asked) << asked.error().message;
      ++turn;
    }
    if (rows != 2) continue;
    EXPECT_TRUE(queue.finish());
  }
  EXPECT_TRUE(queue.finish());
  EXPECT_TRUE(queue.finish()) << "nothing more";
  return kept;
}

TEST(ObservationQueue, OfAGpuAreThoseOfTheCpuInTheSameOrder) {
  const auto cpu = kernels::make_device("cpu:baseline", 1);
  ASSERT_TRUE(cpu);
  const std::vector<Kept> expected = observe_all(**cpu, 0);
  ASSERT_EQ(expected.size(), 36U);
  for (const Schedule schedule : {Schedule::late, Schedule::eager, Schedule::random}) {
    for (const char* name : {"cuda", "cuda:nograph"}) {
      // From every tensor on its own to all in one half.
      for (const std::size_t half_bytes :
           {std::size_t{1}, std::size_t{1000}, std::size_t{60000}, std::size_t{1} << 24}) {
        for (std::uint64_t seed = 1; seed <= (schedule == Schedule::random ? 5U : 1U); ++seed) {
          fake_cuda::reset(schedule, seed);
          {
            const auto gpu = kernels::make_device(name);
            ASSERT_TRUE(gpu);
            EXPECT_EQ(observe_all(**gpu, half_bytes) == expected, true) << name << ", halves of " << half_bytes;
          }
          EXPECT_THAT(fake_cuda::problems(), IsEmpty());
          EXPECT_EQ(fake_cuda::allocations(), 0U);
        }
      }
    }
  }
}

/// A writer takes its time with what it was lent, while later tensors are copied and their memory freed.
TEST(ObservationQueue, WhatIsLentStaysWhileItIsHeld) {
  constexpr std::int64_t kRows = 320;
  constexpr std::int64_t kColumns = 1024;
  const auto observe = [](kernels::Device& device) {
    const kernels::Buffer buffer = *device.allocate(kRows * kColumns * sizeof(float), false);
    const std::vector<float> ones(kRows * kColumns, 1.0F);
    EXPECT_TRUE(device.upload(buffer.data(), std::as_bytes(std::span(ones))));
    std::vector<Observation> held;
    std::vector<Kept> kept;
    const auto keep = [&](Observation observation) {
      const std::vector<Health> tiles(observation.tiles.begin(), observation.tiles.end());
      const bool lent = observation.memory != nullptr;
      EXPECT_EQ(lent, !device.host_addressable());
      if (lent) {
        held.push_back(std::move(observation));
      } else {
        kept.push_back({observation.hash, tiles, std::move(observation).take_bytes()});
      }
      return Status{};
    };
    ObservationQueue queue(
        device, keep, [](std::size_t bytes) { return std::vector<std::byte>(bytes); }, std::size_t{100} << 10);
    for (int turn = 0; turn < 12; ++turn) {
      const std::int64_t columns = turn % 3 == 0 ? kColumns / 2 : kColumns;
      const TensorView view{buffer.data(), Format::f32, kRows * kColumns / columns, columns, columns};
      EXPECT_TRUE(device.launch(kernels::ResidualAddArgs{view, view, view}));
      EXPECT_TRUE(queue.observe({.view = view, .bytes = turn % 2 == 0}));
    }
    EXPECT_TRUE(queue.finish());
    for (Observation& one : held) {
      kept.push_back({one.hash, {one.tiles.begin(), one.tiles.end()}, std::move(one).take_bytes()});
    }
    return kept;
  };
  const auto cpu = kernels::make_device("cpu:baseline", 1);
  ASSERT_TRUE(cpu);
  const std::vector<Kept> expected = observe(**cpu);
  for (const Schedule schedule : {Schedule::late, Schedule::eager}) {
    fake_cuda::reset(schedule);
    {
      const auto gpu = kernels::make_device("cuda");
      ASSERT_TRUE(gpu);
      EXPECT_EQ(observe(**gpu) == expected, true);
    }
    EXPECT_THAT(fake_cuda::problems(), IsEmpty());
    EXPECT_EQ(fake_cuda::allocations(), 0U);
  }
}

/// Who is behind is not lent all that there is: what comes then is copied, until some was given back.
TEST(ObservationQueue, LendsNoMoreThanItMay) {
  fake_cuda::reset(Schedule::late);
  {
    const auto gpu = kernels::make_device("cuda");
    ASSERT_TRUE(gpu);
    constexpr std::int64_t kColumns = 32768;  // 128 KiB of elements: a half, and host memory, of 256 KiB
    const kernels::Buffer buffer = *(*gpu)->allocate(kColumns * sizeof(float), true);
    const TensorView view{buffer.data(), Format::f32, 1, kColumns, kColumns};
    std::vector<Observation> held;
    std::vector<bool> lent;
    ObservationQueue queue(
        **gpu,
        [&](Observation observation) {
          lent.push_back(observation.memory != nullptr);
          if (observation.memory) held.push_back(observation);
          EXPECT_EQ(std::move(observation).take_bytes(), std::vector<std::byte>(kColumns * sizeof(float)));
          return Status{};
        },
        [](std::size_t bytes) { return std::vector<std::byte>(bytes); }, std::size_t{1} << 18, std::size_t{1} << 19);
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(queue.observe({.view = view, .bytes = true}));
      ASSERT_TRUE(queue.finish());
    }
    held.clear();
    ASSERT_TRUE(queue.observe({.view = view, .bytes = true}));
    ASSERT_TRUE(queue.finish());
    EXPECT_EQ(lent, (std::vector<bool>{true, true, false, false, true}));
  }
  EXPECT_THAT(fake_cuda::problems(), IsEmpty());
  EXPECT_EQ(fake_cuda::allocations(), 0U);
}

/// A GPU is not waited for while there is room.
TEST(ObservationQueue, WaitsOnlyWhenAHalfIsFull) {
  fake_cuda::reset(Schedule::late);
  const auto gpu = kernels::make_device("cuda");
  ASSERT_TRUE(gpu);
  const kernels::Buffer buffer = *(*gpu)->allocate(4096, true);
  const TensorView view{buffer.data(), Format::f32, 1, 1024, 1024};
  int delivered = 0;
  ObservationQueue queue(
      **gpu, [&](const Observation&) { return ++delivered, Status{}; },
      [](std::size_t bytes) { return std::vector<std::byte>(bytes); });
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(queue.observe({.view = view, .bytes = true}));
  EXPECT_EQ(delivered, 0);
  EXPECT_EQ(fake_cuda::calls("cudaEventSynchronize") + fake_cuda::calls("cudaStreamSynchronize"), 0);
  ASSERT_TRUE(queue.finish());
  EXPECT_EQ(delivered, 100);
  EXPECT_EQ(fake_cuda::calls("cudaEventSynchronize"), 1) << "one copy brought them all";
  const int copies = fake_cuda::calls("cudaMemcpyAsync");
  ASSERT_TRUE(queue.finish());
  EXPECT_EQ(fake_cuda::calls("cudaMemcpyAsync"), copies) << "nothing is copied twice";
}

TEST(ObservationQueue, AnErrorOfWhoIsToldEndsIt) {
  fake_cuda::reset(Schedule::late);
  const auto gpu = kernels::make_device("cuda");
  ASSERT_TRUE(gpu);
  const kernels::Buffer buffer = *(*gpu)->allocate(4096, true);
  const TensorView view{buffer.data(), Format::f32, 1, 1024, 1024};
  {
    ObservationQueue queue(
        **gpu, [&](const Observation&) -> Status { return fail("the disk is full"); },
        [](std::size_t bytes) { return std::vector<std::byte>(bytes); }, 6000);
    Status status;
    int asked = 0;
    for (; status && asked < 10; ++asked) status = queue.observe({.view = view, .bytes = true});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "the disk is full");
    EXPECT_LT(asked, 10);
  }
  EXPECT_THAT(fake_cuda::problems(), IsEmpty()) << "copies on their way were waited for";
}

}  // namespace
}  // namespace nanscope
