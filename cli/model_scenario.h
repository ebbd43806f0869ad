#pragma once
#include <string>
#include <vector>

#include "core/result.h"
#include "scenarios/scenario.h"

namespace nanscope::cli {

/// The options that replace a scenario file.
struct ModelPrompts {
  std::string model;                       ///< path of the checkpoint's folder
  std::vector<std::string> settings;       ///< SETTING=VALUE
  std::vector<std::string> prompts;        ///< text of a request each
  std::vector<std::string> prompt_tokens;  ///< token ids of a request each, separated by commas
  int tokens = 64;                         ///< most tokens that a request generates
  bool asked_later = false;                ///< requests come while the model runs: there need be no prompt
};

/// A scenario without a file: the checkpoint's model and the prompts; it expects only a clean run. Errors: no
/// checkpoint, a malformed setting or token id, no prompt.
Result<scenarios::Scenario> scenario_of_model(const ModelPrompts& options);

}  // namespace nanscope::cli
