#pragma once
/// The kernel contract's case table: every op over ordinary data, ragged sizes and a zoo of special
/// values. The same table runs on every CPU build, thread count, compiler and GPU; all must leave
/// the same bytes. No test framework here: tests/gpu runs the table too.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/device.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/case_memory.h"

namespace nanscope::kernels::cases {

struct OpCase {
  std::string name;  ///< [a-z0-9_]+, unique; also the filter and the key in tests/golden/op_digests.txt
  OpId op;
  std::function<void(CaseMemory&)> build;  ///< makes the tensors and launches
};

const std::vector<OpCase>& op_cases();

/// The table over other shapes; cases of fixed shapes, with their names, are in it too.
std::vector<OpCase> op_cases_of(std::span<const Shape> shapes);

/// Runs one case; an error is a failed launch or a touched guard.
Result<std::vector<Output>> run_case(const OpCase& op_case, Device& device, const Placement& placement = {});

/// FNV-1a over names, shapes and bytes of the outputs.
std::uint64_t digest(const std::vector<Output>& outputs);

/// First difference between two runs of a case, "" when there is none. `other_kind`: of two kinds of devices, where
/// what tensor cores make may differ within the bound of kernels/tensor_core_bound.h.
std::string first_difference(const std::vector<Output>& expected, const std::vector<Output>& found,
                             bool other_kind = false);

/// Parts of the table, one a file.
void add_norm_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes);
void add_element_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes);
void add_attention_cases(std::vector<OpCase>& cases);
void add_attention_split_cases(std::vector<OpCase>& cases);
void add_kv_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes);
void add_product_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes);
void add_block_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes);
void add_tile_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes);
void add_observer_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes);
void add_gradient_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes);
void add_attention_gradient_cases(std::vector<OpCase>& cases);
void add_optimizer_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes);
void add_recurrent_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes);

}  // namespace nanscope::kernels::cases
