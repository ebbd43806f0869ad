#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

/// Counter-based random numbers: every element of every tensor has its own address
/// (seed, stream, index), so weights can be drawn in any order, in parts, on any machine, and the
/// bits are the same. Integer arithmetic, then double + - * / and the correctly rounded square root
/// only: no call into a math library, no fma.
namespace nanscope {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Philox4x32 with 10 rounds: one block of four random words.
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key);

/// The stream of a name: 64-bit FNV-1a of its bytes.
std::uint64_t stream_of(std::string_view name);

/// The 32 random bits at (seed, stream, index): word index % 4 of the block with counter
/// (index / 4, stream) and key seed, low words first.
std::uint32_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

/// Uniform in the open interval (0, 1): (bits + 0.5) * 2^-32, exact in double.
double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

/// Standard normal: the quantile of uniform(), rounded to f32 once. |value| <= 6.34.
float gaussian(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

/// values[i] = gaussian(seed, stream_of(name), first_index + i) * scale, the product in f32. Many are filled by several
/// threads, with the same bits.
void fill_gaussian(std::span<float> values, std::uint64_t seed, std::string_view name, float scale,
                   std::uint64_t first_index = 0);

/// Standard normal quantile for 2^-33 <= p <= 1 - 2^-33.
/// Source: Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied
/// Statistics 37(3), 1988, PPND16 without its far-tail branch (which starts at p < 1.4e-11).
/// Relative error at most 1e-15: 7.2e-16 is the largest of 20,000 draws compared with 30-digit
/// values. Its f32 rounding was the correct one in 10,000 of 10,000 draws.
double normal_quantile(double p);

/// Natural logarithm of a positive normal number, relative error at most 4e-16 away from 1:
/// atanh series on [sqrt(1/2), sqrt(2)), exponent times ln 2 in two parts.
double plain_log(double x);

}  // namespace nanscope
