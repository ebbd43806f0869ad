#pragma once
#include <string>

#include "instrument/policies/evaluate.h"

namespace nanscope::report {

/// The section of a page: bytes a token against error of the output as a plot, the table, the claims. HTML and SVG that
/// need no script and no other file, in the colours of html_report().
std::string policies_section(const PolicyReport& made);

}  // namespace nanscope::report
