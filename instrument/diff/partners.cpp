#include "instrument/diff/partners.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>
#include <tuple>

#include "instrument/diff/sample.h"
#include "instrument/files/near_names.h"

namespace nanscope::align {
namespace {

/// Fused projections, and what they are made of.
struct Fused {
  std::string_view op;
  std::vector<std::pair<std::string_view, std::string_view>> parts;  ///< op and role
};
const std::vector<Fused>& fused_projections() {
  static const std::vector<Fused> all{{"qkv_proj", {{"q_proj", "q"}, {"k_proj", "k"}, {"v_proj", "v"}}},
                                      {"gate_up_proj", {{"gate_proj", "gate"}, {"up_proj", "up"}}}};
  return all;
}

std::optional<Join> parse_join(std::string_view word) {
  for (const Join join : {Join::alone, Join::columns, Join::replicated, Join::sum}) {
    if (name(join) == word) return join;
  }
  return std::nullopt;
}

/// What `*` of a pattern stands for in a name; nothing when they do not match.
std::optional<std::string> matched(const std::string& pattern, const std::string& text) {
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == text ? std::optional<std::string>("") : std::nullopt;
  const std::string after = pattern.substr(star + 1);
  const bool fits =
      text.size() + 1 >= pattern.size() && text.starts_with(pattern.substr(0, star)) && text.ends_with(after);
  return fits ? std::optional(text.substr(star, text.size() + 1 - pattern.size())) : std::nullopt;
}

/// What describes the rows and not the model's numbers: the sequences were aligned by it.
bool says_where(const Group& group) {
  const bool given = group.kind == OpKind::parameter && group.is_integer();
  return given || group.meeting() == Meeting::layout || group.meeting() == Meeting::mask || group.role == "mask" ||
         group.role == "tokens" || group.role == "positions";
}

class Matchmaker {
 public:
  Matchmaker(Side& a, Side& b, const NameMap& map)
      : a_(a), b_(b), map_(map), of_a_(a.groups.all().size()), of_b_(b.groups.all().size()) {}

  PairedGroups run() {
    by_map();
    by_name();
    by_op();
    by_parts(a_, b_, true);
    by_parts(b_, a_, false);
    // The only tensor of each run, as of two files, is meant whatever it is called.
    if (of_a_.size() == 1 && of_b_.size() == 1 && !of_a_.front()) try_pair(0, 0);
    by_content();
    std::stable_sort(made_.partners.begin(), made_.partners.end(), [](const Partner& x, const Partner& y) {
      return std::tie(x.a, x.part_a.first) < std::tie(y.a, y.part_a.first);
    });
    list_alone(a_, b_, of_a_, true);
    list_alone(b_, a_, of_b_, false);
    return std::move(made_);
  }

 private:
  bool try_pair(std::size_t a, std::size_t b, std::optional<Join> stated = {}) {
    const Group& left = a_.group(a);
    const Group& right = b_.group(b);
    if (left.meeting() == Meeting::layout || left.meeting() != right.meeting()) return false;
    if (left.is_stated() != right.is_stated()) return false;
    auto joined = join_of(a_, a, b_, b, stated);
    // Of recordings, another shape is a difference like any other.
    const bool recorded = left.sheets.front().tensor->hash && right.sheets.front().tensor->hash;
    if (!joined && recorded && left.ranks == right.ranks) joined.emplace();
    if (!joined) return false;
    // Rows that nothing places among sequences, such as those that experts sort, may be in any order.
    const bool sequences = !a_.places.all().empty() && !b_.places.all().empty();
    if (sequences && left.is_unplaced() && !(distance(a_, a, joined->first, b_, b, joined->second) < kSameContent))
      return false;
    made_.partners.push_back({a, b, joined->first, joined->second});
    of_a_[a] = of_b_[b] = true;
    return true;
  }

  void by_map() {
    for (const NameMap::Line& line : map_.lines) {
      for (std::size_t a = 0; a < of_a_.size(); ++a) {
        const auto stands_for = matched(line.a, a_.group(a).name);
        if (!stands_for || of_a_[a]) continue;
        std::string wanted = line.b;
        if (const std::size_t star = wanted.find('*'); star != std::string::npos) wanted.replace(star, 1, *stands_for);
        for (std::size_t b = 0; b < of_b_.size() && !of_a_[a]; ++b) {
          if (!of_b_[b] && b_.group(b).name == wanted) try_pair(a, b, line.join);
        }
      }
    }
  }

  void by_name() {
    std::map<std::string, std::vector<std::size_t>> names;
    std::map<std::string, int> times;  // in A
    std::size_t named = 0;
    for (std::size_t b = 0; b < of_b_.size(); ++b) {
      if (b_.group(b).name.empty()) continue;
      names[b_.group(b).name].push_back(b);
      ++named;
    }
    for (std::size_t a = 0; a < of_a_.size(); ++a) ++times[a_.group(a).name];
    std::vector<std::pair<std::size_t, std::size_t>> common;
    for (std::size_t a = 0; a < of_a_.size(); ++a) {
      const auto found = names.find(a_.group(a).name);
      if (found == names.end()) continue;
      // A name without the number of its expert is that of several ops.
      const bool alone = found->second.size() == 1 && times[found->first] == 1;
      for (const std::size_t b : found->second) {
        if (alone || is_same_op(a_.group(a), b_.group(b))) common.emplace_back(a, b);
      }
    }
    // A name means the same in both runs if all names of the one are names of the other.
    const bool same_engine = common.size() >= std::min(of_a_.size(), named);
    for (const auto& [a, b] : common) {
      const Group& left = a_.group(a);
      const Group& right = b_.group(b);
      const bool same = left.op == right.op && left.role == right.role && left.turns == right.turns;
      if (of_a_[a] || of_b_[b] || (!same && !same_engine)) continue;
      if (same_engine || !names_mislead(a, b)) try_pair(a, b);
    }
  }

  static bool is_same_op(const Group& left, const Group& right) {
    return left.op == right.op && left.role == right.role && left.turn == right.turn;
  }

  void by_op() {
    using Key = std::tuple<std::int64_t, std::string, std::string, int, int>;
    const auto key = [](const Group& one) {
      return Key{one.layer.value_or(-1), one.op, one.role, one.turn, one.turns};
    };
    std::map<Key, std::size_t> of_b;
    for (std::size_t b = 0; b < of_b_.size(); ++b) {
      if (!of_b_[b]) of_b.emplace(key(b_.group(b)), b);
    }
    for (std::size_t a = 0; a < of_a_.size(); ++a) {
      const auto found = of_a_[a] ? of_b.end() : of_b.find(key(a_.group(a)));
      if (found == of_b.end() || of_b_[found->second]) continue;
      const bool named = !a_.group(a).name.empty() && !b_.group(found->second).name.empty();
      if (!named || !names_mislead(a, found->second)) try_pair(a, found->second);
    }
  }

  /// Parts of `parts` against columns of a fused projection of `fused`.
  void by_parts(Side& parts, Side& fused, bool parts_are_a) {
    std::vector<bool>& taken_parts = parts_are_a ? of_a_ : of_b_;
    std::vector<bool>& taken_fused = parts_are_a ? of_b_ : of_a_;
    for (const Fused& kind : fused_projections()) {
      for (std::size_t whole = 0; whole < taken_fused.size(); ++whole) {
        const Group& group = fused.group(whole);
        if (taken_fused[whole] || group.op != kind.op || group.meeting() != Meeting::rows) continue;
        const std::vector<std::size_t> found = parts_of(parts, taken_parts, kind, group);
        if (found.size() != kind.parts.size() || !add_parts(parts, found, whole, group, parts_are_a)) continue;
        taken_fused[whole] = true;
        for (const std::size_t at : found) taken_parts[at] = true;
      }
    }
  }

  static std::vector<std::size_t> parts_of(Side& side, const std::vector<bool>& taken, const Fused& kind,
                                           const Group& group) {
    std::vector<std::size_t> found;
    for (const auto& [op, role] : kind.parts) {
      for (std::size_t at = 0; at < taken.size(); ++at) {
        const Group& part = side.group(at);
        if (taken[at] || part.op != op || part.role != role || part.layer != group.layer) continue;
        if (part.kind == OpKind::copy || part.meeting() != Meeting::rows) continue;
        found.push_back(at);
        break;
      }
    }
    return found;
  }

  /// Ranks may share the heads of all parts but the first: of those, so many ranks have the same.
  bool add_parts(Side& parts, const std::vector<std::size_t>& found, std::size_t whole, const Group& group,
                 bool parts_are_a) {
    const std::int64_t all = group.channels() * group.ranks;
    const std::int64_t ranks = parts.group(found.front()).ranks;
    for (std::int64_t of_parts = 1; of_parts <= ranks; of_parts *= 2) {
      for (std::int64_t of_fused = 1; of_fused <= group.ranks; of_fused *= 2) {
        std::vector<Partner> made;
        std::int64_t first = 0;
        for (const std::size_t at : found) {
          const Group& part = parts.group(at);
          const bool shared = at != found.front();
          const std::int64_t width =
              part.channels() * part.ranks / (shared ? of_parts : 1) * (shared ? of_fused : 1) / group.ranks;
          const Join join_parts = part.ranks > 1 ? Join::columns : Join::alone;
          const Join join_fused = group.ranks > 1 ? Join::columns : Join::alone;
          const Part of_part{join_parts, shared ? of_parts : 1, 0, 0, 0};
          const Part of_whole{join_fused, shared ? of_fused : 1, first, width, 0};
          made.push_back(parts_are_a ? Partner{at, whole, of_part, of_whole} : Partner{whole, at, of_whole, of_part});
          first += width;
        }
        if (first * group.ranks != all) continue;
        made_.partners.insert(made_.partners.end(), made.begin(), made.end());
        return true;
      }
    }
    return false;
  }

  /// What has the same values: first what has no partner, then what has one.
  void by_content() {
    for (std::size_t a = 0; a < of_a_.size(); ++a) {
      if (!of_a_[a]) look_alike(a, true);
    }
    for (std::size_t b = 0; b < of_b_.size(); ++b) {
      if (!of_b_[b]) look_alike(b, false);
    }
  }

  void look_alike(std::size_t lone, bool of_a) {
    const std::optional<std::size_t> found = alike(lone, of_a, true);
    if (found) try_pair(of_a ? lone : *found, of_a ? *found : lone);
  }

  bool may_be_alike(const Group& group, const Group& one) const {
    const bool near = !group.layer || !one.layer || std::abs(*group.layer - *one.layer) <= 1;
    return near && one.meeting() == Meeting::rows && !one.is_stated() && one.is_integer() == group.is_integer();
  }

  /// The group of the other run that holds the same as one; of those that have no partner, or else of the others.
  std::optional<std::size_t> alike(std::size_t wanted, bool of_a, bool also_taken) {
    const std::vector<bool>& taken = of_a ? of_b_ : of_a_;
    const Group& group = (of_a ? a_ : b_).group(wanted);
    if (group.meeting() != Meeting::rows || group.is_stated()) return std::nullopt;
    std::optional<std::size_t> best;
    double nearest = group.is_integer() ? std::numeric_limits<double>::min() : kSameContent;
    for (const bool want_taken : {false, true}) {
      for (std::size_t at = 0; at < taken.size() && (also_taken || !want_taken); ++at) {
        if (taken[at] != want_taken || !may_be_alike(group, (of_a ? b_ : a_).group(at))) continue;
        const double apart = apart_of(of_a ? wanted : at, of_a ? at : wanted);
        if (!(apart < nearest)) continue;
        nearest = apart;
        best = at;
      }
      if (best) break;
    }
    return best;
  }

  double apart_of(std::size_t a, std::size_t b) {
    const auto joined = join_of(a_, a, b_, b, {});
    return joined ? distance(a_, a, joined->first, b_, b, joined->second) : std::numeric_limits<double>::infinity();
  }

  /// Names of two engines mean the same, unless the values do not agree and those of another tensor do.
  bool names_mislead(std::size_t a, std::size_t b) {
    if (a_.group(a).meeting() != Meeting::rows || a_.group(a).is_stated()) return false;
    if (apart_of(a, b) < kSameContent) return false;
    return alike(a, true, true).has_value() || alike(b, false, true).has_value();
  }

  void list_alone(Side& own, Side& other, const std::vector<bool>& taken, bool of_a) {
    std::map<std::string, const Group*> names;
    for (const Group& group : other.groups.all()) names.emplace(group.text(), &group);
    std::vector<std::string> words;
    words.reserve(names.size());
    for (const auto& [text, group] : names) words.push_back(text);
    std::set<std::string> met;
    const auto file_name = [&](std::size_t at) { return own.group(at).sheets.front().tensor->name; };
    for (std::size_t at = 0; at < taken.size(); ++at) {
      if (taken[at] && !file_name(at).empty()) met.insert(file_name(at));
    }
    for (std::size_t at = 0; at < taken.size(); ++at) {
      const Group& group = own.group(at);
      // A tensor that met in parts, or of which a part stands in the graph by itself.
      if (taken[at] || met.contains(file_name(at))) continue;
      Lone lone{of_a, at, {}, {}, says_where(group), false};
      const auto same = names.find(group.text());
      if (lone.layout) {
        lone.reason = "it says where rows lie, not what they hold";
      } else if (same != names.end()) {
        explain(lone, group, *same->second, own.name, other.name);
        if (lone.shape && !of_a && listed_.contains(group.text())) continue;
        if (lone.shape) listed_.insert(group.text());
      } else {
        lone.reason = fmt::format("{} has no tensor of its name or op, and none with its values", other.name);
        if (const std::string* near = nearest(group.text(), words)) lone.candidate = *near;
      }
      made_.alone.push_back(std::move(lone));
    }
  }

  static void explain(Lone& lone, const Group& own, const Group& other, const std::string& here,
                      const std::string& there) {
    lone.candidate = other.text();
    if (own.is_stated() != other.is_stated()) {
      lone.reason = fmt::format("only its statistics were dumped in {}", own.is_stated() ? here : there);
    } else if (own.is_unplaced()) {
      lone.reason = "nothing says whose rows its rows are, and their values do not show it";
    } else if (own.channels() * own.ranks != other.channels() * other.ranks) {
      lone.shape = true;
      lone.reason = fmt::format("it has {} channels in {} and {} in {}", own.channels(), here, other.channels(), there);
    } else {
      lone.reason = fmt::format("the tensor of its name in {} is another op's, with other values", there);
    }
  }

  Side& a_;
  Side& b_;
  const NameMap& map_;
  std::vector<bool> of_a_;  ///< groups that have a partner
  std::vector<bool> of_b_;
  PairedGroups made_;
  std::set<std::string> listed_;  ///< names whose shapes differ
};

}  // namespace

const RowIndex& Side::index(std::size_t group) {
  const RowIndex*& known = by_group_[group];
  if (known != nullptr) return *known;
  const Group& wanted = groups.all()[group];
  const std::string key = index_key(wanted);
  auto found = indices_.find(key);
  if (found == indices_.end()) found = indices_.emplace(key, index_rows(wanted, places, sequences)).first;
  known = &found->second;
  return *known;
}

Result<NameMap> parse_name_map(std::string_view text) {
  NameMap map;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    NameMap::Line one;
    std::string join;
    if (!(words >> one.a)) continue;
    if (!(words >> one.b)) return fail(fmt::format("line {}: a name in B is missing", number));
    if (words >> join) {
      one.join = parse_join(join);
      if (!one.join) {
        return fail(fmt::format("line {}: '{}' is no join; give columns, replicated or sum", number, join));
      }
    }
    map.lines.push_back(std::move(one));
  }
  return map;
}

PairedGroups pair_groups(Side& a, Side& b, const NameMap& map) { return Matchmaker(a, b, map).run(); }

}  // namespace nanscope::align
