#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "core/recording/rows.h"
#include "core/run/tensor_source.h"
#include "scenarios/analysis.h"
#include "scenarios/replay.h"
#include "scenarios/report/text.h"

namespace nanscope::report {

/// Whether the replay was the recorded run, and where it first was not.
std::string replay_text(const scenarios::ReplayReport& report, const std::string& recording, const Terminal& terminal);
nlohmann::ordered_json to_json(const scenarios::ReplayReport& report);

/// The elements around one of a tensor, with their bits, and the tensor's health. `row` and
/// `channel` are inside it; `place` names it in full.
std::string neighbourhood_text(const TensorRow& tensor, const TensorData& data, std::int64_t row, std::int64_t channel,
                               const std::string& place, const Terminal& terminal);
nlohmann::ordered_json neighbourhood_json(const TensorRow& tensor, const TensorData& data, std::int64_t row,
                                          std::int64_t channel, const std::string& place);

/// What changed settings did: the requests before and after, and the first event that is gone.
std::string change_text(const scenarios::Analysis& before, const scenarios::Analysis& after,
                        std::span<const std::string> settings, const Terminal& terminal);

}  // namespace nanscope::report
