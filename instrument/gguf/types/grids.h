#pragma once
#include <array>
#include <cstdint>

/// The grids of the IQ types: points of eight or four numbers that codes stand for, as llama.cpp publishes them
/// (ggml-common.h). A point is a word: two bits a number, or three where a number has eight values, the first lowest.
namespace nanscope::gguf {

extern const std::array<std::uint16_t, 256> kGridIq2Xxs;
extern const std::array<std::uint16_t, 512> kGridIq2Xs;
extern const std::array<std::uint16_t, 1024> kGridIq2S;
extern const std::array<std::uint16_t, 256> kGridIq3Xxs;
extern const std::array<std::uint16_t, 512> kGridIq3S;
extern const std::array<std::uint16_t, 2048> kGridIq1;

}  // namespace nanscope::gguf
