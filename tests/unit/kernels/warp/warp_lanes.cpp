#include "tests/unit/kernels/warp/warp_lanes.h"

#include "kernels/warp/tensor_access.h"

namespace nanscope::kernels::NANSCOPE_ISA {
namespace {

F32 in(const float* p) { return load_f32(p, kLanes, 0.0F); }
U32 in(const std::uint32_t* p) { return load_u32(p, kLanes); }
void put(std::uint32_t* out, int slot, const F32& value) { store_u32(out + slot * kLanes, bits(value), kLanes); }
void put(std::uint32_t* out, int slot, const U32& value) { store_u32(out + slot * kLanes, value, kLanes); }
void put(std::uint32_t* out, int slot, const Mask& mask) { put(out, slot, select(mask, splat_u32(1), splat_u32(0))); }

void f32_arithmetic(const F32& a, const F32& b, const F32& c, std::uint32_t* out) {
  put(out, kAdd, a + b);
  put(out, kSub, a - b);
  put(out, kMul, a * b);
  put(out, kDiv, a / b);
  put(out, kFma, fma(a, b, c));
  put(out, kSqrt, sqrt(a));
  put(out, kNeg, raw_bits(-a));
  put(out, kAbs, raw_bits(abs(a)));
  put(out, kCopySign, raw_bits(copy_sign(a, b)));
  put(out, kThroughF64, to_f32(to_f64(a) * to_f64(b)));
  put(out, kBits, bits(a));
}

void f32(const float* pa, const float* pb, const float* pc, std::uint32_t* out) {
  const F32 a = in(pa);
  const F32 b = in(pb);
  const F32 c = in(pc);
  f32_arithmetic(a, b, c, out);
  put(out, kLess, a < b);
  put(out, kLessEqual, a <= b);
  put(out, kGreater, a > b);
  put(out, kGreaterEqual, a >= b);
  put(out, kEqual, a == b);
  put(out, kNotEqual, a != b);
  put(out, kIsNan, is_nan(a));
  put(out, kIsInf, is_inf(a));
  put(out, kIsFinite, is_finite(a));
  put(out, kSelect, raw_bits(select(a < b, a, c)));
  put(out, kMaxPropagate, max_propagate(a, b));
  put(out, kMinPropagate, min_propagate(a, b));
  put(out, kMaxIgnore, max_ignore(a, b));
  put(out, kMinIgnore, min_ignore(a, b));
}

void u32(const std::uint32_t* pa, const std::uint32_t* pb, std::uint32_t* out) {
  const U32 a = in(pa);
  const U32 b = in(pb);
  const U32 count = b & splat_u32(31);
  put(out, kUAdd, a + b);
  put(out, kUSub, a - b);
  put(out, kUMul, a * b);
  put(out, kUAnd, a & b);
  put(out, kUOr, a | b);
  put(out, kUXor, a ^ b);
  put(out, kUNot, ~a);
  put(out, kUShl3, a << 3);
  put(out, kUShr3, a >> 3);
  put(out, kUShlLanes, a << count);
  put(out, kUShrLanes, a >> count);
  put(out, kULess, a < b);
  put(out, kUGreater, a > b);
  put(out, kIShr3, to_u32(to_i32(a) >> 3));
  put(out, kILess, to_i32(a) < to_i32(b));
  put(out, kUToF32, to_f32(a));
  put(out, kIToF32, to_f32(to_i32(a)));
  const U64 product = mul_low(to_u64(a), to_u64(b));
  put(out, kMulLow, low_u32(product));
  put(out, kMulHigh, low_u32(swap_halves(product)));
  put(out, kUSelect, select(a == b, a, high_u32(product)));
  put(out, kLaneId, lane_id());
}

void reduce(const float* p, float* out) {
  const F32 a = in(p);
  out[kSumF32] = sum(a);
  out[kMaxPropagateAcross] = max_propagate_across(a);
  out[kMinPropagateAcross] = min_propagate_across(a);
  out[kMaxIgnoreAcross] = max_ignore_across(a);
  out[kMinIgnoreAcross] = min_ignore_across(a);
}

void reduce_u32(const std::uint32_t* p, std::uint64_t* out) {
  const U32 a = in(p);
  out[0] = sum_u32(a);
  out[1] = min_u32_across(a);
  out[2] = max_u32_across(a);
  out[3] = sum_u64(mul_low(to_u64(a), to_u64(a)));
  out[4] = static_cast<std::uint64_t>(static_cast<std::int64_t>(min_i32_across(to_i32(a))));
  out[5] = static_cast<std::uint64_t>(static_cast<std::int64_t>(max_i32_across(to_i32(a))));
}

double sum_f64(const float* p) { return sum(to_f64(in(p))); }

void masks(const float* a, const float* b, std::uint64_t* out) {
  const Mask less = in(a) < in(b);
  out[0] = ballot(less);
  out[1] = any(less) ? 1 : 0;
  out[2] = all(less) ? 1 : 0;
  out[3] = static_cast<std::uint64_t>(count(less));
}

void xor_lanes(const std::uint32_t* a, int m, std::uint32_t* out) { store_u32(out, xor_lane(in(a), m), kLanes); }

std::uint32_t broadcast_lane(const std::uint32_t* a, int lane) { return broadcast(in(a), lane); }

void to_integers(const double* p, std::int32_t* nearest, double* down) {
  F64 a;
  std::memcpy(&a, p, sizeof(a));
  store_i32(nearest, to_i32_rne(a), kLanes);
  const F64 lower = floor(a);
  std::memcpy(down, &lower, sizeof(lower));
}

void load_store_f32(const float* from, std::int64_t n, float fill, float* whole, float* to) {
  const F32 value = load_f32(from, n, fill);
  store_raw_f32(whole, value, kLanes);
  store_f32(to, value, n);
}
void load_store_u16(const std::uint16_t* from, std::int64_t n, std::uint32_t* whole, std::uint16_t* to) {
  const U32 value = load_u16(from, n);
  store_u32(whole, value, kLanes);
  store_u16(to, value | splat_u32(0xabc0000U), n);  // higher bits must not matter
}
void load_store_u8(const std::uint8_t* from, std::int64_t n, std::uint32_t* whole, std::uint8_t* to) {
  const U32 value = load_u8(from, n);
  store_u32(whole, value, kLanes);
  store_u8(to, value | splat_u32(0xabcdef00U), n);
}

void load_stream(const std::uint8_t* base, std::int64_t offset, std::int64_t total, std::int64_t row_bytes,
                 std::int64_t stride_bytes, std::uint64_t* out) {
  store_u64(out, load_bytes(base, offset, total, row_bytes, stride_bytes), kLanes);
}

void gather(const float* base, const std::int32_t* index, const float* wanted, float* out) {
  store_f32(out, gather_f32(base, load_i32(index, kLanes), in(wanted) > splat_f32(0.0F)), kLanes);
}

void load_view(const TensorView& view, std::int64_t row, std::int64_t column, float fill, float* out) {
  store_raw_f32(out, load(view, row, column, fill), kLanes);
}
void store_view(const TensorView& view, std::int64_t row, std::int64_t column, const float* values) {
  store(view, row, column, in(values));
}
void encode(Format format, const float* values, Overflow overflow, std::uint32_t* codes) {
  store_u32(codes, encode_lanes(format, in(values), overflow), kLanes);
}

}  // namespace

const WarpTable warp_table = {f32,
                              u32,
                              reduce,
                              reduce_u32,
                              sum_f64,
                              masks,
                              xor_lanes,
                              broadcast_lane,
                              to_integers,
                              load_store_f32,
                              load_store_u16,
                              load_store_u8,
                              load_stream,
                              gather,
                              load_view,
                              store_view,
                              encode};

}  // namespace nanscope::kernels::NANSCOPE_ISA
