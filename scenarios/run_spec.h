#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/engine/request.h"
#include "instrument/engine/transient.h"
#include "scenarios/scenario.h"

namespace nanscope::scenarios {

/// All that a run depends on besides the program: what a recording stores and a replay reads back.
struct RunSpec {
  std::string scenario;  ///< its name, may be empty
  EngineConfig config;
  std::vector<RequestSpec> requests;
  std::vector<Transient> transients;  ///< what happens between its steps
  bool served = false;                ///< its requests come while it goes on, and are not known yet
};

/// The configuration and prompts that a scenario states. File names among its knobs are relative to
/// the scenario's folder. Errors are one line that starts with the knob's file:line:column.
Result<RunSpec> resolve(const Scenario& scenario);

/// Makes every `SETTING=VALUE` in order, then checks the whole. Errors name the knobs or the values that there are.
Status apply_settings(EngineConfig& config, std::span<const std::string> settings);

/// What the run reads: the files and folders that its configuration and its transients name. No output may replace
/// them.
std::vector<std::filesystem::path> files_read(const RunSpec& spec);

/// RunInfo::config: {"schema": "nanscope.run/1", "knobs": {name: value}, "requests": [{"name", "max_tokens",
/// "parts"}], "train_text": {"hash"}, "transients": [...]}, the parts as prompt_to_json() writes them, images with
/// their bytes. Of a served run there is "served": true in place of the requests.
std::string to_json(const RunSpec& spec);

/// Reads it back; `scenario` is RunInfo::scenario. Errors say which part is missing or wrong.
Result<RunSpec> run_spec_from_json(std::string_view json, std::string scenario);

}  // namespace nanscope::scenarios
