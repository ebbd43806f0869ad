#include "instrument/weights/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace nanscope {
namespace {

constexpr std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
constexpr std::uint32_t high(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

PhiloxCounter block(std::uint64_t seed, std::uint64_t stream, std::uint64_t block_index) {
  return philox4x32({low(block_index), high(block_index), low(stream), high(stream)}, {low(seed), high(seed)});
}

struct Draws {
  std::uint64_t seed;
  std::uint64_t stream;
};

double open_interval(std::uint32_t bits) { return (static_cast<double>(bits) + 0.5) * 0x1p-32; }

/// Polynomial by Horner's rule, highest coefficient first, one rounding per operation.
template <std::size_t n>
double horner(const std::array<double, n>& coefficients, double x) {
  double sum = coefficients[0];
  for (std::size_t i = 1; i < n; ++i) sum = sum * x + coefficients[i];
  return sum;
}

constexpr std::array<double, 8> kCentreTop = {
    2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
    1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0};
constexpr std::array<double, 8> kCentreBottom = {
    5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
    5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0};

constexpr double kCentre = 0.425;  ///< how far from the median the central form goes

/// Of each |q| <= kCentre: the quantile of 0.5 + q. Four at once keep a processor busy that waits for each step of one.
void central_quantiles(const std::array<double, 4>& q, std::array<double, 4>& x) {
  std::array<double, 4> r, top, bottom;
  for (std::size_t k = 0; k < 4; ++k) r[k] = 0.180625 - q[k] * q[k];
  top.fill(kCentreTop[0]);
  bottom.fill(kCentreBottom[0]);
  for (std::size_t i = 1; i < kCentreTop.size(); ++i) {
    for (std::size_t k = 0; k < 4; ++k) top[k] = top[k] * r[k] + kCentreTop[i];
    for (std::size_t k = 0; k < 4; ++k) bottom[k] = bottom[k] * r[k] + kCentreBottom[i];
  }
  for (std::size_t k = 0; k < 4; ++k) x[k] = top[k] * q[k] / bottom[k];
}

/// What normal_quantile() gives for the numbers of a block.
std::array<double, 4> normal_quantiles(const PhiloxCounter& words) {
  std::array<double, 4> q, x;
  for (std::size_t k = 0; k < 4; ++k) q[k] = open_interval(words[k]) - 0.5;
  central_quantiles(q, x);
  for (std::size_t k = 0; k < 4; ++k) {
    if (!(std::abs(q[k]) <= kCentre)) x[k] = normal_quantile(open_interval(words[k]));
  }
  return x;
}

/// Each value depends on its index alone, so that parts can be filled in any order.
void fill_part(std::span<float> values, const Draws& draws, float scale, std::uint64_t first_index) {
  for (std::size_t i = 0; i < values.size();) {
    const std::uint64_t index = first_index + i;
    const std::array<double, 4> quantiles = normal_quantiles(block(draws.seed, draws.stream, index / 4));
    for (std::uint64_t k = index % 4; k < 4 && i < values.size(); ++k, ++i)
      values[i] = static_cast<float>(quantiles[k]) * scale;
  }
}

}  // namespace

PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1), high(product0) ^ counter[3] ^ key[1],
               low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

std::uint32_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return block(seed, stream, index / 4)[index % 4];
}

double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return open_interval(random_bits(seed, stream, index));
}

float gaussian(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return static_cast<float>(normal_quantile(uniform(seed, stream, index)));
}

void fill_gaussian(std::span<float> values, std::uint64_t seed, std::string_view name, float scale,
                   std::uint64_t first_index) {
  constexpr std::size_t kLeastPart = std::size_t{1} << 15;  // less is done before a thread has started
  constexpr std::size_t kMostThreads = 8;
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
  const std::size_t parts = std::clamp<std::size_t>(values.size() / kLeastPart, 1, threads);
  const std::uint64_t stream = stream_of(name);
  const auto fill = [&](std::size_t part) {
    const std::size_t begin = values.size() * part / parts;
    const std::size_t end = values.size() * (part + 1) / parts;
    fill_part(values.subspan(begin, end - begin), {seed, stream}, scale, first_index + begin);
  };
  std::vector<std::jthread> others;
  std::size_t part = 1;
  try {
    for (; part < parts; ++part) others.emplace_back(fill, part);
  } catch (const std::system_error&) {  // no thread is to be had: the rest is done here
    for (; part < parts; ++part) fill(part);
  }
  fill(0);
}

double plain_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000);
  if (mantissa >= 1.4142135623730951) {
    mantissa *= 0.5;
    exponent += 1;
  }
  // log m = 2 atanh(s) = 2s (1 + s^2/3 + s^4/5 + ...), |s| <= 0.1716: the term s^24/25 is below 2^-65.
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double z = s * s;
  constexpr std::array<double, 12> kSeries = {1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15,
                                              1.0 / 13, 1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  const double series = horner(kSeries, z) * z;
  // The high part of ln 2 has 32 significant bits, so its product with an exponent is exact.
  constexpr double kLn2High = 0x1.62e42feep-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double e = exponent;
  return e * kLn2High + (2.0 * s + (2.0 * s * series + e * kLn2Low));
}

double normal_quantile(double p) {
  constexpr std::array<double, 8> kTailTop = {
      7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
      3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0};
  constexpr std::array<double, 8> kTailBottom = {
      1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
      6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0};
  const double q = p - 0.5;
  if (std::abs(q) <= kCentre) {
    const double r = 0.180625 - q * q;
    return horner(kCentreTop, r) * q / horner(kCentreBottom, r);
  }
  const double tail = q < 0.0 ? p : 1.0 - p;
  const double r = std::sqrt(-plain_log(tail)) - 1.6;
  const double x = horner(kTailTop, r) / horner(kTailBottom, r);
  return q < 0.0 ? -x : x;
}

}  // namespace nanscope
