#!/usr/bin/env python3
"""Prints the constants of kernels/math that are not a line of arithmetic: needs mpmath.

- pi/2 and ln 2 cut into parts of few bits (Cody and Waite 1980), so that products with an integer are exact.
- 2/pi in words of 32 bits, for the reduction of large arguments (Payne and Hanek 1983).
- erfcx(x) = exp(x^2) erfc(x) on [1, 4] as a polynomial in t = (x - 2) / (x + 2): Chebyshev interpolation,
  rewritten in powers of t, which stays well conditioned because |t| <= 1/3.
"""
import mpmath as mp

mp.mp.dps = 110


def parts(value, bits):
    """Splits value into truncated parts of the given bit widths; the last one is a rounded double."""
    result = []
    for width in bits:
        exponent = int(mp.floor(mp.log(value, 2)))
        unit = mp.mpf(2) ** (exponent - width + 1)
        part = mp.floor(value / unit) * unit
        result.append(part)
        value -= part
    result.append(value)
    return [float(part).hex() for part in result]


def erfcx_polynomial(degree):
    nodes = [mp.cos(mp.pi * (mp.mpf(2 * i + 1) / (2 * (degree + 1)))) / 3 for i in range(degree + 1)]

    def f(t):
        x = 2 * (1 + t) / (1 - t)
        return mp.exp(x * x) * mp.erfc(x)

    matrix = mp.matrix(degree + 1, degree + 1)
    right = mp.matrix(degree + 1, 1)
    for i, t in enumerate(nodes):
        right[i] = f(t)
        for j in range(degree + 1):
            matrix[i, j] = t**j
    solution = mp.lu_solve(matrix, right)
    coefficients = [float(c) for c in solution]
    worst = mp.mpf(0)
    for i in range(2001):
        t = (mp.mpf(i) / 1000 - 1) / 3
        value = mp.polyval([mp.mpf(c) for c in reversed(coefficients)], t)
        worst = max(worst, abs(value / f(t) - 1))
    return coefficients, worst


print("pi/2", parts(mp.pi / 2, [27, 27, 27]))
print("ln 2", parts(mp.log(2), [32]))
two_over_pi = 2 / mp.pi
words = []
for _ in range(8):
    two_over_pi *= 2**32
    word = int(mp.floor(two_over_pi))
    words.append(f"0x{word:08x}")
    two_over_pi -= word
print("2/pi", words)
for degree in (14, 16, 18):
    coefficients, worst = erfcx_polynomial(degree)
    print(f"erfcx degree {degree}, relative error {mp.nstr(worst, 3)}, highest power first")
    for c in reversed(coefficients):
        print("   ", c.hex())
print("2/sqrt(pi)", float(2 / mp.sqrt(mp.pi)).hex())
