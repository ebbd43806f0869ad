#pragma once
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "instrument/engine/config.h"

namespace nanscope {

/// One setting of a deployment, by its dotted name. Scenario files, `--set` and counterfactuals
/// know settings only through this registry.
struct Knob {
  std::string name;
  std::string doc;       ///< one sentence: what it changes
  std::string allowed;   ///< "a|b|c", "1..64", "number", "text", "list"; a leading | allows nothing at all
  bool numerics = true;  ///< false: no bit of the run depends on it
  std::string (*get)(const EngineConfig&) = nullptr;
  bool (*set)(EngineConfig&, std::string_view value, std::string_view allowed) = nullptr;
};

/// All knobs, in the order in which they are printed.
std::span<const Knob> knobs();

/// Null when there is no such knob.
const Knob* find_knob(std::string_view name);

/// Sets one knob from its text. One line says which names or values there are when it is refused;
/// the configuration is then unchanged.
Status set_knob(EngineConfig& config, std::string_view name, std::string_view value);

/// The knob's value as set_knob() would take it; empty for a name that is no knob.
std::string get_knob(const EngineConfig& config, std::string_view name);

/// JSON object of every knob by its dotted name. Numbers and booleans are JSON's own, except
/// infinities and NaN, which JSON lacks and which are texts.
std::string config_to_json(const EngineConfig& config);

/// Reads what config_to_json() wrote. Knobs that are left out keep their default; an unknown name
/// or a refused value is an error.
Result<EngineConfig> config_from_json(std::string_view json);

}  // namespace nanscope
