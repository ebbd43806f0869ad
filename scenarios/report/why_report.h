#pragma once
#include <cstdint>
#include <string>

#include "instrument/diagnosis/why.h"
#include "scenarios/report/text.h"

namespace nanscope::report {

enum class Hops : std::uint8_t { all, that_matter };

/// The walk back from an element: one hop a paragraph, with its value, its bits and its numbers.
std::string why_text(const WhyPath& path, const Terminal& terminal, Hops hops = Hops::all);

/// "nan 0x7F", "11.2 0x41333333": a value and its stored bits in the width of its format.
std::string value_and_bits(Format format, float value, std::uint32_t code);

}  // namespace nanscope::report
