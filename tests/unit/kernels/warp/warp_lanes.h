#pragma once
#include <cstdint>
#include <vector>

#include "kernels/tensor_view.h"

/// The warp's operations of each build, as functions over arrays of 32, for the tests to compare with
/// plain scalar code.
namespace nanscope::kernels {

/// Results of every f32 operation on lanes a, b, c: raw bits with NaN canonical; masks as 1 and 0.
enum F32Result : int {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFma,
  kSqrt,
  kNeg,
  kAbs,
  kCopySign,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kIsNan,
  kIsInf,
  kIsFinite,
  kSelect,
  kMaxPropagate,
  kMinPropagate,
  kMaxIgnore,
  kMinIgnore,
  kThroughF64,
  kBits,
  kF32Results
};
enum U32Result : int {
  kUAdd,
  kUSub,
  kUMul,
  kUAnd,
  kUOr,
  kUXor,
  kUNot,
  kUShl3,
  kUShr3,
  kUShlLanes,
  kUShrLanes,
  kULess,
  kUGreater,
  kIShr3,
  kILess,
  kUToF32,
  kIToF32,
  kMulLow,
  kMulHigh,
  kUSelect,
  kLaneId,
  kU32Results
};
enum Reduction : int {
  kSumF32,
  kMaxPropagateAcross,
  kMinPropagateAcross,
  kMaxIgnoreAcross,
  kMinIgnoreAcross,
  kReductions
};

struct WarpTable {
  void (*f32)(const float* a, const float* b, const float* c, std::uint32_t* out);  ///< out[kF32Results * 32]
  void (*u32)(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* out);  ///< out[kU32Results * 32]
  void (*reduce)(const float* a, float* out);                                       ///< out[kReductions]
  void (*reduce_u32)(const std::uint32_t* a, std::uint64_t* out);  ///< sum, min, max, sum_u64 of squares, i32 min, max
  double (*sum_f64)(const float* a);
  void (*masks)(const float* a, const float* b, std::uint64_t* out);  ///< of a < b: ballot, any, all, count
  void (*xor_lane)(const std::uint32_t* a, int m, std::uint32_t* out);
  std::uint32_t (*broadcast)(const std::uint32_t* a, int lane);
  void (*to_i32)(const double* a, std::int32_t* nearest, double* floor);
  void (*load_store_f32)(const float* from, std::int64_t n, float fill, float* all, float* to);
  void (*load_store_u16)(const std::uint16_t* from, std::int64_t n, std::uint32_t* all, std::uint16_t* to);
  void (*load_store_u8)(const std::uint8_t* from, std::int64_t n, std::uint32_t* all, std::uint8_t* to);
  void (*load_bytes)(const std::uint8_t* base, std::int64_t offset, std::int64_t total, std::int64_t row_bytes,
                     std::int64_t stride_bytes, std::uint64_t* out);
  void (*gather)(const float* base, const std::int32_t* index, const float* wanted, float* out);  ///< wanted > 0
  void (*load_view)(const TensorView& view, std::int64_t row, std::int64_t column, float fill, float* out);
  void (*store_view)(const TensorView& view, std::int64_t row, std::int64_t column, const float* values);
  void (*encode)(Format format, const float* values, Overflow overflow, std::uint32_t* codes);
};

namespace baseline {
extern const WarpTable warp_table;
}
namespace avx2 {
extern const WarpTable warp_table;
}
namespace avx512 {
extern const WarpTable warp_table;
}

struct WarpBuild {
  const char* name;
  const WarpTable* table;
};

/// The builds that this CPU runs, baseline first.
std::vector<WarpBuild> warp_builds();

}  // namespace nanscope::kernels
