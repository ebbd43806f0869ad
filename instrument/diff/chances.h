#pragma once
#include <span>
#include <vector>

/// The statistics of what stands out.
namespace nanscope::align {

/// Something stands out if chance gives it in less than one of 10^6 cases, as an explanation of the diagnosis counts.
inline constexpr double kChance = 1e-6;

/// The chance that a number of Student's distribution with `freedom` degrees lies above `t`.
double student_tail(double t, double freedom);

/// Where robust estimates of a sample say that its numbers lie.
struct Robust {
  double median = 0;
  double deviation = 0;  ///< 1.4826 times the median absolute deviation: that of a normal distribution
  double freedom = 1;    ///< what the estimate of the deviation is worth
};
/// The MAD of a normal sample is worth 37 % of its numbers (Rousseeuw and Croux, J. Amer. Statist. Assoc. 88, 1993).
Robust robust(std::vector<double> numbers);

}  // namespace nanscope::align
