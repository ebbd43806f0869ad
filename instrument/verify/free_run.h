#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/dump/dump_run.h"
#include "core/result.h"
#include "instrument/model/model_spec.h"

/// The model run freely from the dumped token ids, beside what was served.
namespace nanscope {

/// What comes out of a layer, served and by the reference.
struct FreeLayer {
  std::int64_t layer = -1;
  std::string name;             ///< of the dumped tensor
  double error = 0;             ///< root mean square of the difference over that of the reference
  std::int64_t worst_row = -1;  ///< the row that is furthest off
};

struct FreeRun {
  std::string why;  ///< it was not made
  std::vector<FreeLayer> layers;
  double rounding = 0;  ///< unit roundoff of what was served
  std::optional<std::int64_t>
      leaves_at;      ///< the first layer that is off by more than the one before and rounding explain
  double growth = 1;  ///< of the error from layer to layer behind that, geometric mean
};

/// Runs the model of a checkpoint's folder in f32 over the ids of the first sequence that was dumped from its beginning
/// on, and compares what came out of each layer. FreeRun::why says what was missing. Errors: the checkpoint cannot be
/// read or run; stopped.
Result<FreeRun> free_run(DumpRun& run, const std::filesystem::path& model, Format served, std::stop_token stop);

/// In a sentence.
std::string free_run_summary(const FreeRun& free);

}  // namespace nanscope
