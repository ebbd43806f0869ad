#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/numbers/format.h"
#include "core/run/run_view.h"

namespace nanscope::gui {

/// Stored codes that are held by a scale which was not made for them: there, headroom tells. A scale that is made of
/// the values themselves has them reach the largest code by design.
class ForeignScales {
 public:
  explicit ForeignScales(RunView& run);

  /// The largest finite value over the largest |x|; 0 where it means nothing.
  double headroom(OpId op, std::string_view role, Format format, float absmax) const;
  /// The largest |x| that is meant, and how it compares with the largest that can be stored.
  struct Reach {
    double magnitude = 0;  ///< 0 where nobody knows what the codes stand for
    double headroom = 0;   ///< 0 where it means nothing
  };
  /// By the ledger where it has an entry: codes that were clipped end at the largest finite value, and what they were
  /// made of says by how much it lay beyond.
  Reach reach(OpId op, std::string_view role, Format format, float absmax) const;

 private:
  struct Entry {
    double absmax = 0;
    double headroom = 0;
  };
  const Entry* find(OpId op, std::string_view role) const;

  std::map<std::pair<OpId, std::string>, Entry, std::less<>> found_;
};

}  // namespace nanscope::gui
