#pragma once
#include <set>
#include <string>
#include <vector>

#include "gui/prepare/policies.h"
#include "gui/views/view.h"

namespace nanscope::gui {

/// A line of the ledger under every policy: what each would have clipped. A click on a policy draws its limit into the
/// line's chart.
class PolicyTable {
 public:
  static float height(const ViewContext& context, const PolicyComparison& compared);
  void draw(const ViewContext& context, const ViewActions& actions, const Ledger& ledger,
            const PolicyComparison& compared, Area area);

  /// Those whose limits are drawn, as indices in PolicyComparison::policies.
  std::vector<std::size_t> shown(const PolicyComparison& compared) const;

 private:
  void draw_row(const ViewContext& context, const ViewActions& actions, const Ledger& ledger,
                const PolicyComparison& compared, const PolicyLine& policy, Area row);

  std::set<std::string> shown_;
};

/// What the policies would have made of one entry, a line each; empty when the comparison is of another line.
std::vector<std::string> words_of_policies(const PolicyComparison& compared, std::size_t entry);

}  // namespace nanscope::gui
