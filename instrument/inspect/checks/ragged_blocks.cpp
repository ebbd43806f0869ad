#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/inspect/check.h"

/// Weights whose rows or columns are no multiple of the block's.
namespace nanscope {
namespace {

/// Of a side of `size` that is cut into blocks of `block`: what is cut where the height of a block is taken to be size
/// over the number of blocks. 0: that does not come out even, which is refused.
std::int64_t by_counts(std::int64_t size, std::int64_t block) {
  const std::int64_t count = (size + block - 1) / block;
  return size % count == 0 ? size / count : 0;
}

/// Of `size` rows, those that get another block's scale.
std::int64_t misplaced(std::int64_t size, std::int64_t block) {
  const std::int64_t taken = by_counts(size, block);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < size && taken > 0; ++i) wrong += i / taken != i / block ? 1 : 0;
  return wrong;
}

bool has_blocks(const Inspected& one) {
  return one.matrix && one.matrix->quantized() && one.matrix->block_rows > 1 &&
         one.matrix->block_rows < one.matrix->rows;
}

void check_ragged_counts(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding refused{
      .id = "ragged-refused", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  InspectFinding wrong{.id = "ragged-rows", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  std::int64_t rows = 0;
  std::int64_t most = 0;
  for (const Inspected& one : subject.modules) {
    if (!has_blocks(one)) continue;
    const StoredMatrix& matrix = *one.matrix;
    if (by_counts(matrix.rows, matrix.block_rows) == 0 || by_counts(matrix.columns, matrix.block_columns) == 0) {
      refused.modules.push_back(one.module->path);
    } else if (const std::int64_t bad =
                   misplaced(matrix.rows, matrix.block_rows) + misplaced(matrix.columns, matrix.block_columns);
               bad > 0) {
      wrong.modules.push_back(one.module->path);
      if (bad > most) most = bad, rows = matrix.rows;
    }
  }
  if (!refused.modules.empty()) {
    refused.text =
        fmt::format("the sides of {} ({}) are not cut into equal blocks, which {} refuses when it decodes them",
                    counted(refused.modules.size(), "weight"), some_of(refused.modules), subject.loader.name);
    findings.push_back(std::move(refused));
  }
  if (!wrong.modules.empty()) {
    wrong.text = fmt::format(
        "{} takes the number of rows over that of scales for a block's height: in {} ({}) up to {} rows or columns of "
        "{} "
        "get another block's scale, without a word",
        subject.loader.name, counted(wrong.modules.size(), "weight"), some_of(wrong.modules), most, rows);
    findings.push_back(std::move(wrong));
  }
}

void check_ragged_parts(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding refused{.id = "ragged-fused", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  for (const Inspected& one : subject.modules) {
    const auto parts = subject.fused_with(one);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!has_blocks(*parts[i]) || parts[i]->matrix->rows % parts[i]->matrix->block_rows == 0) continue;
      if (subject.loader.fused_last_may_be_ragged && i + 1 == parts.size()) continue;
      refused.modules.push_back(parts[i]->module->path);
    }
  }
  if (refused.modules.empty()) return;
  refused.text = fmt::format(
      "the rows of {} ({}) are no multiple of the block's, and {} runs them as part of one weight: "
      "it refuses to load them",
      counted(refused.modules.size(), "weight"), some_of(refused.modules), subject.loader.name);
  findings.push_back(std::move(refused));
}

}  // namespace

void check_ragged_blocks(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  if (subject.loader.ragged_by_counts && subject.config.method == QuantMethod::fp8)
    check_ragged_counts(subject, findings);
  if (subject.loader.fused_blocks_whole) check_ragged_parts(subject, findings);
}

}  // namespace nanscope
