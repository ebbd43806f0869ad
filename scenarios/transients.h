#pragma once
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/engine/transient.h"
#include "instrument/files/toml_reader.h"

namespace nanscope::scenarios {

/// [[transient]] of a scenario's file, see docs/adding-a-scenario.md. A file that is loaded is named as it stands
/// there. Errors are one line, `file:line:column: what`.
Result<std::vector<Transient>> read_transients(const toml::node& node, const std::string& file);

}  // namespace nanscope::scenarios
