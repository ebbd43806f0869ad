#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "core/numbers/codec.h"
#include "instrument/inspect/check.h"
#include "instrument/inspect/requantize.h"

/// Scales of blocks that are, or will be, powers of two.
namespace nanscope {
namespace {

constexpr std::int64_t kBlockRowsLooked = 4;  ///< of a weight, that are looked at
constexpr std::size_t kLeastBlocks = 8;       ///< that tell something
constexpr double kNearlyAll = 0.95;

bool has_block_scales(const Inspected& one) {
  return one.matrix && one.matrix->layout == nullptr && one.matrix->scale == Format::f32 &&
         one.matrix->block_columns < one.matrix->columns && info(one.matrix->element).bits == 8;
}

bool is_power_of_two(float value) {
  int exponent = 0;
  return value > 0 && std::frexp(value, &exponent) == 0.5F;
}

struct Blocks {
  std::size_t count = 0;
  std::size_t powers = 0;  ///< whose scale is a power of two
  std::size_t full = 0;    ///< that hold the largest code of all
};

void count_blocks(const StoredMatrix& matrix, Blocks& blocks) {
  std::vector<float> codes(static_cast<std::size_t>(matrix.columns));
  std::vector<float> scales(static_cast<std::size_t>(matrix.scale_columns));
  const std::int64_t all = matrix.scale_rows();
  for (std::int64_t i = 0; i < std::min(kBlockRowsLooked, all); ++i) {
    const std::int64_t first = i * all / std::min(kBlockRowsLooked, all) * matrix.block_rows;
    matrix.scales_of_row(first, scales);
    std::vector<float> largest(scales.size(), 0);
    for (std::int64_t row = first; row < std::min(matrix.rows, first + matrix.block_rows); ++row) {
      matrix.codes_of_row(row, codes);
      for (std::size_t k = 0; k < codes.size(); ++k) {
        float& most = largest[k / static_cast<std::size_t>(matrix.block_columns)];
        most = std::max(most, std::abs(codes[k]));
      }
    }
    for (std::size_t b = 0; b < scales.size(); ++b) {
      if (largest[b] == 0) continue;
      ++blocks.count;
      blocks.powers += is_power_of_two(scales[b]) ? 1 : 0;
      blocks.full += largest[b] == info(matrix.element).max_finite ? 1 : 0;
    }
  }
}

}  // namespace

void check_scale_rounding(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding rounded{.id = "scale-rounded",
                         .severity = Severity::error,
                         .text = {},
                         .known_as = "huggingface/transformers #47030",
                         .modules = {}};
  InspectFinding remade{.id = "scale-powers-of-two",
                        .severity = Severity::note,
                        .text = {},
                        .known_as = "sgl-project/sglang #39193",
                        .modules = {}};
  Blocks all;
  double change = 0;
  for (const Inspected& one : subject.modules) {
    if (!has_block_scales(one)) continue;
    Blocks blocks;
    count_blocks(*one.matrix, blocks);
    if (blocks.count > 0 && blocks.powers == blocks.count) {
      rounded.modules.push_back(one.module->path);
      all.count += blocks.count;
      all.full += blocks.full;
    }
    if (subject.loader.requantizes_to_powers_of_two && blocks.powers < blocks.count) {
      remade.modules.push_back(one.module->path);
      remade.changes.push_back(change_by_powers_of_two(*one.matrix, subject.rows_of(*one.matrix)));
      change = std::max(change, remade.changes.back());
    }
  }
  if (all.count >= kLeastBlocks && static_cast<double>(all.full) >= kNearlyAll * static_cast<double>(all.count)) {
    rounded.text = fmt::format(
        "the scales of {} ({}) are powers of two, and {} of {} blocks hold the largest code all the same, as they do "
        "where codes were made by amax / 448 and the scales alone were rounded later: blocks are off by up to 2 times",
        counted(rounded.modules.size(), "module"), some_of(rounded.modules), all.full, all.count);
    findings.push_back(std::move(rounded));
  }
  if (!remade.modules.empty()) {
    remade.text = fmt::format(
        "where the GPU's products take powers of two alone (Blackwell), {} makes codes and scales of {} ({}) anew: the "
        "weights change by up to {:.2g} % (root mean square); an engine that rounds the scales alone is off by up to 2 "
        "times",
        subject.loader.name, counted(remade.modules.size(), "module"), some_of(remade.modules), 100 * change);
    findings.push_back(std::move(remade));
  }
}

}  // namespace nanscope
