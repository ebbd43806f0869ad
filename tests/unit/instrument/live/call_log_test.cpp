#include "instrument/live/call_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace nanscope::live {
namespace {

std::atomic<int> demangled = 0;

std::string demangle(const char* symbol) {
  ++demangled;
  return symbol == nullptr ? "kernel" : "void ns::" + std::string(symbol) + "<4>(\"x\")";
}

Call call_of(std::uint32_t correlation) {
  Call call;
  call.correlation = correlation;
  return call;
}

TEST(CallLog, GivesBackWhatWasAddedInOrderAndOnce) {
  CallLog log(&demangle);
  log.add_kernel("gemm", call_of(1));
  log.add_graph(call_of(2));
  log.add_kernel("norm", call_of(3));
  std::vector<Call> calls(5);
  log.take(calls);
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[0].kernel->short_name, "gemm");
  EXPECT_EQ(calls[1].kernel, nullptr);
  EXPECT_EQ(calls[2].kernel->demangled, "void ns::norm<4>(\"x\")");
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(calls[i].correlation, i + 1);
  log.take(calls);
  EXPECT_TRUE(calls.empty());
  EXPECT_EQ(log.lost(), 0);
}

TEST(CallLog, AKernelIsNamedOnceWhereverItsSymbolLies) {
  demangled = 0;
  CallLog log(&demangle);
  char first[] = "gemm";
  char second[] = "gemm";
  const KernelName& name = log.add_kernel(first, {});
  EXPECT_EQ(&log.add_kernel(second, {}), &name);
  EXPECT_EQ(&log.add_kernel(first, {}), &name);
  EXPECT_EQ(demangled, 1);
  std::strcpy(first, "norm");  // its module went, and another lies there
  EXPECT_EQ(log.add_kernel(first, {}).short_name, "norm");
  EXPECT_EQ(name.symbol, "gemm") << "what was listed keeps its name";
  EXPECT_EQ(log.add_kernel(nullptr, {}).demangled, "kernel");
}

TEST(CallLog, WhatFindsNoRoomIsCounted) {
  CallLog log(&demangle, 2);
  for (std::uint32_t i = 0; i < 5; ++i) log.add_graph(call_of(i));
  std::vector<Call> calls;
  log.take(calls);
  EXPECT_EQ(calls.size(), 2U);
  EXPECT_EQ(log.lost(), 3);
  log.add_graph({});
  log.take(calls);
  EXPECT_EQ(calls.size(), 1U);
}

TEST(CallLog, TakesFromManyThreadsWhileOneWrites) {
  CallLog log(&demangle);
  constexpr int kEach = 2000;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&log, thread] {
      const std::string symbol = "kernel_" + std::to_string(thread % 2);
      for (std::uint32_t i = 0; i < kEach; ++i) {
        Call call = call_of(i);
        call.stream = thread;
        log.add_kernel(symbol.c_str(), call);
      }
    });
  }
  std::vector<Call> all;
  std::vector<Call> calls;
  while (all.size() < 4 * kEach) {
    log.take(calls);
    all.insert(all.end(), calls.begin(), calls.end());
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::uint32_t> next(4);
  for (const Call& call : all) EXPECT_EQ(call.correlation, next[call.stream]++) << "each thread's in its order";
}

TEST(CallLog, AttributesAreJson) {
  CallLog log(&demangle);
  Call call;
  call.grid = {1, 2, 3};
  call.block = {128, 1, 1};
  call.shared = 64;
  call.stream = 0x7f;
  log.add_kernel("gemm", call);
  std::vector<Call> calls;
  log.take(calls);
  const std::string expected =
      R"json({"symbol":"void ns::gemm<4>(\"x\")","grid":[1,2,3],"block":[128,1,1],"shared":64,"stream":"0x7f"})json";
  EXPECT_EQ(attributes(calls[0]), expected);
  EXPECT_EQ(attributes(call), R"({"stream":"0x7f"})") << "without a kernel, a graph";
}

}  // namespace
}  // namespace nanscope::live
