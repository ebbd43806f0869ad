#pragma once
// Made by tiles_oracle.py.

namespace nanscope::kernels::tiles_oracle {

/// `changed`: the largest difference of rows 32 to 39 after V[40] times 8 and K[40] plus 1, of quantized tiles on
/// the diagonal. `last_scaled`: of rows 32 to 62 after V[63] times 1.5, 2, 4, 16. `rms`: of the output, then of its
/// error against unquantized attention for each kind of diagonal. `decoded`: rows that a decode, whose last block holds
/// the past alone, gives otherwise than the prefill.
struct Expected {
  unsigned seed;
  bool online;
  double changed;
  double last_scaled[4];
  double rms, quantized, exact, past;
  int decoded;
};

inline constexpr Expected kExpected[] = {
    {11,
     true,
     0.026336802,
     {0.0373430813, 0.0817267684, 0.0817267684, 0.188993152},
     0.180520398,
     0.0514557862,
     0.0438686625,
     0.051535698,
     24},
    {11,
     false,
     0.0278320312,
     {0.03515625, 0.0859375, 0.09375, 0.22265625},
     0.180520398,
     0.0524239289,
     0.0445353312,
     0.0525185897,
     24},
    {12,
     true,
     0.0465060825,
     {0.103654771, 0.103654771, 0.129568464, 0.220266388},
     0.172683005,
     0.0513937106,
     0.0451718841,
     0.0514805393,
     27},
    {12,
     false,
     0.0390625,
     {0.09375, 0.09375, 0.1171875, 0.1875},
     0.172683005,
     0.0550671132,
     0.0460735519,
     0.0551542841,
     27},
};

}  // namespace nanscope::kernels::tiles_oracle
