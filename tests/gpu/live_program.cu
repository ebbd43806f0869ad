// A program for the injected library on a real GPU: an MLP in f16 and a softmax. It prints a digest of what it computed
// and knows nothing of nanscope. Argument: "healthy", "overflow" (a product leaves the half range) or "softmax" (a row
// is masked as a whole, and its sum is 0).
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int kRows = 64;
constexpr int kColumns = 256;
constexpr int kCount = kRows * kColumns;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(2);
}

}  // namespace

__global__ void up_proj(__half* out, const __half* in, float factor) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < kCount) out[i] = __float2half_rn(__half2float(in[i]) * factor + 1.0F);
}

__global__ void down_proj(__half* out, const __half* in, float factor) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < kCount) out[i] = __float2half_rn(__half2float(in[i]) * factor + 1.0F);
}

/// One thread a row: exp(x) without what is masked, over its sum. Row 3 can be masked as a whole.
__global__ void softmax_rows(__half* out, const __half* in, int masked_row) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= kRows) return;
  float sum = 0;
  for (int i = 0; i < kColumns; ++i) {
    sum += row == masked_row ? 0.0F : expf(__half2float(in[row * kColumns + i]) * 1e-3F);
  }
  for (int i = 0; i < kColumns; ++i) {
    const float e = row == masked_row ? 0.0F : expf(__half2float(in[row * kColumns + i]) * 1e-3F);
    out[row * kColumns + i] = __float2half_rn(e / sum);
  }
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "healthy";
  __half* x = nullptr;
  __half* y = nullptr;
  __half* z = nullptr;
  check(cudaMalloc(&x, kCount * sizeof(__half)), "cudaMalloc");
  check(cudaMalloc(&y, kCount * sizeof(__half)), "cudaMalloc");
  check(cudaMalloc(&z, kCount * sizeof(__half)), "cudaMalloc");
  std::vector<__half> values(kCount);
  for (int i = 0; i < kCount; ++i) values[i] = __float2half_rn(std::sin(static_cast<float>(i) * 0.7F) * 3.0F);
  check(cudaMemcpy(x, values.data(), kCount * sizeof(__half), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemset(y, 0, kCount * sizeof(__half)), "cudaMemset");
  check(cudaMemset(z, 0, kCount * sizeof(__half)), "cudaMemset");
  const float strong = std::strcmp(mode, "overflow") == 0 ? 3000.0F : 2.0F;
  const int masked = std::strcmp(mode, "softmax") == 0 ? 3 : -1;
  up_proj<<<(kCount + 127) / 128, 128>>>(y, x, 20.0F);
  down_proj<<<(kCount + 127) / 128, 128>>>(z, y, strong);
  softmax_rows<<<1, kRows>>>(x, z, masked);
  check(cudaDeviceSynchronize(), "running");
  check(cudaMemcpy(values.data(), x, kCount * sizeof(__half), cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::uint64_t sum = 1469598103934665603ULL;
  for (const __half& value : values) sum = (sum ^ __half_as_ushort(value)) * 1099511628211ULL;
  std::printf("%016llx\n", static_cast<unsigned long long>(sum));
  return 0;
}
