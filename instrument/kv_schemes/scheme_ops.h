#pragma once
#include <cstdint>

#include "instrument/kv_schemes/kv_scheme.h"
#include "kernels/ops/kv_read.h"
#include "kernels/ops/kv_store.h"

/// What a scheme is to the ops, and when its rows are quantized: shared by the engine and SchemeCache.
namespace nanscope {

/// Codes of integers, as they are stored. Asymmetric ones of eight bits are -128 to 127, of fewer 0 to 2^bits - 1.
struct CodeRange {
  std::int32_t low = 0;
  std::int32_t high = 0;  ///< both 0: no integers
  float largest = 0;      ///< magnitude of a code's value, of any format
};
CodeRange code_range(const KvScheme& scheme);

/// Whether rows are multiplied by the reciprocals of scales.
bool multiplies(const KvScheme& scheme);

/// Sets what the scheme says of how codes are made; views are the caller's.
void describe(const KvScheme& scheme, std::int64_t scale_group, std::int64_t zero_group, kernels::KvStoreArgs& args);
void describe(const KvScheme& scheme, std::int64_t scale_group, std::int64_t zero_group, kernels::KvReadArgs& args);

/// Of a sequence whose rows are kept beside its codes, the positions that have codes: [keep_first, end). `end` before
/// the step, `context` behind it; `first_step`: nothing was stored before.
std::int64_t coded_end(const KvScheme& scheme, std::int64_t end, std::int64_t context, bool first_step);
/// Whether rows of a step are quantized behind its attention, not before.
bool quantizes_behind(const KvScheme& scheme, bool first_step);

}  // namespace nanscope
