// A program on the fake libcuda: an MLP in f16 whose second product leaves the half range, the way it does on a GPU. It
// prints what it computed, and knows nothing of nanscope. Arguments: "healthy", "overflow"; then nothing, or "crash",
// "exit" (without running exit handlers), "fork", "hang" (a thread of it waits for the GPU when it exits).
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "core/numbers/codec.h"
#include "fake_cuda.h"

namespace {

constexpr int kSize = 256;

std::uint16_t half(float value) {
  return static_cast<std::uint16_t>(nanscope::encode(nanscope::Format::f16, value, nanscope::Overflow::overflow));
}
float value_of(std::uint16_t code) { return nanscope::decode(nanscope::Format::f16, code); }

/// out[i] = in[i] * factor + 1 in f16, each rounded once.
void scale(void** arguments) {
  auto* out = *static_cast<std::uint16_t**>(arguments[0]);
  const auto* in = *static_cast<const std::uint16_t**>(arguments[1]);
  const float factor = *static_cast<const float*>(arguments[2]);
  for (int i = 0; i < kSize; ++i) out[i] = half(value_of(in[i]) * factor + 1.0F);
}

/// out[i] = a[i] - b[i]
void subtract(void** arguments) {
  auto* out = *static_cast<std::uint16_t**>(arguments[0]);
  const auto* a = *static_cast<const std::uint16_t**>(arguments[1]);
  const auto* b = *static_cast<const std::uint16_t**>(arguments[2]);
  for (int i = 0; i < kSize; ++i) out[i] = half(value_of(a[i]) - value_of(b[i]));
}

void launch(CUfunction function, void** arguments) {
  cuLaunchKernel(function, 2, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "healthy";
  const std::string end = argc > 2 ? argv[2] : "";
  cuInit(0);
  const std::size_t scale_sizes[] = {8, 8, 4};
  const std::size_t subtract_sizes[] = {8, 8, 8};
  const CUfunction up = fake_cuda_kernel("_ZN3mlp7up_projEPtPKtf", &scale, scale_sizes, 3);
  const CUfunction down = fake_cuda_kernel("_ZN3mlp9down_projEPtPKtf", &scale, scale_sizes, 3);
  const CUfunction residual = fake_cuda_kernel("_ZN3mlp8residualEPtPKtS1_", &subtract, subtract_sizes, 3);
  CUdeviceptr x = 0;
  CUdeviceptr y = 0;
  CUdeviceptr z = 0;
  cuMemAlloc_v2(&x, kSize * 2);
  cuMemAlloc_v2(&y, kSize * 2);
  cuMemAlloc_v2(&z, kSize * 2);
  auto* in = reinterpret_cast<std::uint16_t*>(x);
  for (int i = 0; i < kSize; ++i) in[i] = half(std::sin(static_cast<float>(i) * 0.7F) * 3.0F);
  std::memset(reinterpret_cast<void*>(y), 0, kSize * 2);
  std::memset(reinterpret_cast<void*>(z), 0, kSize * 2);
  float gentle = 20.0F;
  float strong = mode == "overflow" ? 3000.0F : 2.0F;
  void* first[] = {&y, &x, &gentle};
  void* second[] = {&z, &y, &strong};
  void* third[] = {&x, &z, &z};
  if (end == "hang") {
    std::thread([&] { launch(up, first); }).detach();
    usleep(300'000);
    std::exit(3);
  }
  launch(up, first);
  launch(down, second);
  launch(residual, third);
  if (end == "fork") {
    const pid_t child = fork();
    if (child == 0) {
      launch(up, first);
      std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
  }
  if (end == "crash") {
    usleep(300'000);
    std::uint16_t read = 0;
    cuMemcpyDtoHAsync_v2(&read, x, sizeof read, nullptr);
    // What was launched a while ago must be found in the recording.
    usleep(500'000);
    std::abort();
  }
  std::uint64_t sum = 1469598103934665603ULL;
  const auto* out = reinterpret_cast<const std::uint16_t*>(x);
  for (int i = 0; i < kSize; ++i) sum = (sum ^ out[i]) * 1099511628211ULL;
  std::printf("%016llx\n", static_cast<unsigned long long>(sum));
  std::fflush(stdout);
  if (end == "exit") {
    usleep(500'000);
    _exit(7);
  }
  cuMemFree_v2(z);
  return 0;
}
