#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/analysis.h"
#include "scenarios/counterfactuals.h"

/// One page for a pull request or an incident, with all that it shows inside it: no script, no other file.
namespace nanscope::report {

/// A picture of a view, with what is to be seen on it.
struct Picture {
  std::string title;
  std::string caption;
  std::vector<std::byte> png;
  std::vector<std::byte> narrow = {};  ///< the same for a phone; empty: there is none
};

/// The page. `changes` is null when no counterfactuals were run; `left_out` says why, where they were wanted.
/// `section` is HTML that stands before what was looked for, such as policies_section().
/// Everything that comes from the recording is escaped: a recording cannot bring markup into the page.
std::string html_report(const scenarios::Analysis& analysis, const scenarios::Counterfactuals* changes,
                        std::span<const Picture> pictures, std::string_view left_out = {},
                        std::string_view section = {});

}  // namespace nanscope::report
