#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/dump/dump_run.h"
#include "core/result.h"
#include "instrument/model/model_spec.h"
#include "instrument/verify/verify.h"

/// The model run freely from the dumped token ids, beside what was served.
namespace nanscope {

/// What comes out of a layer, served and by the reference.
struct FreeLayer {
  std::int64_t layer = -1;
  std::string name;             ///< of the dumped tensor
  double error = 0;             ///< root mean square of the difference over that of the reference
  std::int64_t worst_row = -1;  ///< the row that is furthest off
  std::vector<double> rows;     ///< the error of each
  std::size_t rows_off = 0;     ///< further than the layers before and rounding explain
};

struct FreeRun {
  std::string why;  ///< it was not made
  std::vector<FreeLayer> layers;
  std::vector<std::int32_t> prompt;  ///< the ids of the first step
  double rounding = 0;               ///< unit roundoff of what was served
  std::optional<std::int64_t>
      leaves_at;      ///< the first layer that is off by more than the one before and rounding explain
  double growth = 1;  ///< of the error from layer to layer behind that, geometric mean
};

/// The token ids of the first sequence that was dumped from its beginning on. Errors: there is none.
Result<std::vector<std::int32_t>> served_ids(DumpRun& dump);

/// What the activations of a run were rounded to.
Format served_format(RunView& run);

/// What is wrong with ids that are said to be of a text; empty: nothing. Tokens before the text's own are not the
/// tokenizer's doing but a template's, and are passed over. `folder` holds the tokenizer.json. Errors: there is none,
/// or it cannot be read.
Result<std::string> compare_ids(const std::vector<std::int32_t>& ids, const std::string& text,
                                const std::filesystem::path& folder);

/// A checkpoint that is loaded and can be run, in f32.
class ReferenceModel {
 public:
  /// Errors: the folder cannot be read, a weight is missing, is not used or has another shape than config.json says;
  /// stopped.
  static Result<std::unique_ptr<ReferenceModel>> load(const std::filesystem::path& folder, std::stop_token stop);
  ~ReferenceModel();

  /// Runs it over the ids of the first sequence that was dumped from its beginning on, and compares what came out of
  /// each layer. FreeRun::why says what was missing. Errors: it cannot be run; stopped.
  Result<FreeRun> run(DumpRun& dump, Format served, std::stop_token stop) const;

 private:
  struct Parts;
  explicit ReferenceModel(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// In a sentence.
std::string free_run_summary(const FreeRun& free);

/// Sets why a check that found nothing is no agreement (Verification::open, open_at): less than the share `least` of
/// the elements was checked, or the free run leaves the model.
void ask_what_is_open(Verification& made, const FreeRun& free, double least);

}  // namespace nanscope
