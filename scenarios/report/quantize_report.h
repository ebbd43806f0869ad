#pragma once
#include <optional>
#include <string>

#include "instrument/engine/compare_models.h"
#include "instrument/quantize/quantize.h"
#include "scenarios/report/text.h"

/// What `nanscope quantize` says.
namespace nanscope::report {

struct QuantizeWords {
  std::string from, to;
  const QuantizeTarget* target = nullptr;
  bool all = false;  ///< a line for each weight, not for the worst alone
  std::optional<LogitsChange> measured;
};

std::string quantize_text(const QuantizeReport& made, const QuantizeWords& words, const Terminal& terminal);
/// `nanscope.quantization/1`, see docs/quantize.md.
std::string quantize_json(const QuantizeReport& made, const QuantizeWords& words);

}  // namespace nanscope::report
