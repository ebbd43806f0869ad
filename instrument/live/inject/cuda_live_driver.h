#pragma once
#include <cuda.h>

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "instrument/live/driver.h"
#include "instrument/live/inject/cuda_api.h"
#include "instrument/live/launch.h"

namespace nanscope::live {

/// The process's own driver. The scan is loaded from PTX into each context in which it is wanted, on the first launch
/// that is looked at; its results lie in memory of the context that is freed with it.
class CudaLiveDriver final : public LiveDriver {
 public:
  /// `ptx` ends with a 0 and outlives the driver.
  CudaLiveDriver(CudaApi api, const char* ptx) : api_(api), ptx_(ptx) {}

  bool capturing(std::uint64_t stream) override;
  Status scan(std::uint64_t stream, std::span<const Extent> extents, bool again, std::span<Scan> scans) override;
  Status copy(std::uint64_t stream, std::uint64_t address, std::span<std::byte> to) override;
  std::int64_t now_ns() override;

  /// The parameters of a launch, by the driver's layout of them: `parameters` as cuLaunchKernel takes it, or null and
  /// `extra`. Nothing of a kernel whose layout is not known.
  std::vector<Parameter> parameters(CUfunction function, void** parameters, void** extra) const;

 private:
  /// What a context has of ours.
  struct Loaded {
    CUfunction function = nullptr;
    CUdeviceptr scans = 0;       ///< kMostExtents
    CUdeviceptr beginnings = 0;  ///< as many times kBeginningWords
  };
  static constexpr std::size_t kMostExtents = 64;
  Result<Loaded> loaded();

  CudaApi api_;
  const char* ptx_;
  std::map<CUcontext, Result<Loaded>> contexts_;
};

}  // namespace nanscope::live
