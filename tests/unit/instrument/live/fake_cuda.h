#pragma once
#include <cuda.h>

#include <cstddef>

/// A fake libcuda: memory is the host's, a kernel is a function of the host's, and calls call back through the fake
/// libcupti as the driver's do. cuInit() loads what CUDA_INJECTION64_PATH names, as the driver does.
extern "C" {

/// A kernel's code: the arguments as cuLaunchKernel has them.
using FakeKernel = void (*)(void** arguments);

/// A function that launches can name. `sizes` of the parameters, at offsets aligned to 8.
CUfunction fake_cuda_kernel(const char* name, FakeKernel code, const std::size_t* sizes, std::size_t count);
}
