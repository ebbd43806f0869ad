#pragma once
#include <string>
#include <vector>

#include "core/result.h"
#include "scenarios/scenario.h"

namespace nanscope::cli {

/// What a command was told in place of a scenario file.
struct ModelPrompts {
  std::string model;                       ///< folder of a checkpoint
  std::vector<std::string> settings;       ///< KNOB=VALUE
  std::vector<std::string> prompts;        ///< texts
  std::vector<std::string> prompt_tokens;  ///< lists of ids
  int tokens = 64;                         ///< that a request may generate
};

/// A run without a scenario file: a checkpoint's model, prompts, and nothing that is expected but health.
Result<scenarios::Scenario> scenario_of_model(const ModelPrompts& options);

}  // namespace nanscope::cli
