#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "instrument/diff/groups.h"
#include "instrument/diff/rows.h"

namespace nanscope::align {

/// What the user says of names: a line is a name in A, one in B and, if wanted, how ranks are joined. One '*' in a name
/// stands for the same text in both.
struct NameMap {
  struct Line {
    std::string a;
    std::string b;
    std::optional<Join> join;
  };
  std::vector<Line> lines;
};
/// Errors: the line, and what it lacks.
Result<NameMap> parse_name_map(std::string_view text);

/// One of the two runs of a comparison.
struct Side {
  Side(RunView& view, std::string letter) : run(view), name(std::move(letter)), places(view), groups(view, places) {}

  RunView& run;
  std::string name;
  Sequences places;
  Groups groups;
  std::vector<std::int64_t> sequences;  ///< what both call each of its sequences

  const Group& group(std::size_t at) const { return groups.all()[at]; }
  const RowIndex& index(std::size_t group);

 private:
  std::map<std::string, RowIndex> indices_;  ///< by index_key()
  std::map<std::size_t, const RowIndex*> by_group_;
};

/// A group of A, or a part of it, and the same of B.
struct Partner {
  std::size_t a = 0;
  std::size_t b = 0;
  Part part_a;
  Part part_b;
};

/// A group that has none.
struct Lone {
  bool of_a = true;
  std::size_t group = 0;
  std::string reason;
  std::string candidate;  ///< the nearest of the other run; may be empty
  bool layout = false;    ///< it says where rows lie; no difference
  bool shape = false;     ///< there is one of its name, of other extents
};

struct PairedGroups {
  std::vector<Partner> partners;  ///< in A's order
  std::vector<Lone> alone;        ///< A's, then B's
};

/// By the user's map, names, ops, parts of fused projections, content.
PairedGroups pair_groups(Side& a, Side& b, const NameMap& map);

}  // namespace nanscope::align
