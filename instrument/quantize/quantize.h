#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/quantize/target.h"

namespace nanscope {

/// What was lost in one weight.
struct QuantizedWeight {
  std::string module;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double signal = 0;         ///< sum of the squares of the weights
  double noise = 0;          ///< sum of the squares of what they are off by
  std::int64_t clipped = 0;  ///< beyond the largest value under their scale
  std::int64_t flushed = 0;  ///< not 0, stored as 0
  std::int64_t blocks = 0;
  std::int64_t owned = 0;  ///< blocks whose largest element is at least four times every other

  /// Signal over noise in dB; infinite where nothing was lost.
  double snr() const;
  /// Root mean square of the error over that of the weights.
  double error() const;
};

struct QuantizeOptions {
  const QuantizeTarget* target = nullptr;  ///< needed
  std::vector<std::string> ignore;         ///< expressions; a module that one matches stays as it is
  /// The largest magnitude of what each module reads (engine/calibrate.h): targets that have a scale for it write it,
  /// and say that inputs are quantized. Empty: it is not known, and weights alone are.
  std::map<std::string, float> inputs;
  int threads = 0;  ///< 0: one a core
  std::stop_token stop;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  ///< bytes read
};

struct QuantizeReport {
  std::vector<QuantizedWeight> weights;
  std::vector<std::string> kept;        ///< matrices that stay floats
  std::vector<std::string> not_copied;  ///< files of the folder that are not part of the result
  std::uint64_t bytes_before = 0;       ///< of all tensors
  std::uint64_t bytes_after = 0;
  std::size_t resumed = 0;       ///< files that an earlier call had finished
  std::size_t input_scales = 0;  ///< products whose inputs are quantized by a scale that was written

  /// The error that the last layer's output is expected to have, root mean square over its own: branches that add alike
  /// to the residual stream, products whose errors are independent, and each as wrong as its weight.
  double predicted_error() const;
};

/// Writes the checkpoint `from` to the new folder `to`, its products' weights quantized; all else is as it was. What is
/// not finished lies in the folder `to`.partial, and a later call with the same arguments goes on there. Errors: `from`
/// is no checkpoint of floats, or was changed meanwhile; `to` exists; a weight that the target, or a loader of its
/// layout, could not take, by name; an expression that is none; the disk is full; stopped.
Result<QuantizeReport> quantize_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                                           const QuantizeOptions& options);

}  // namespace nanscope
