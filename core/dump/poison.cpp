#include "core/dump/poison.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "core/dump/attention_shape.h"

namespace nanscope {
namespace {

bool is_cache(const DumpTensor& tensor) {
  const std::string& role = tensor.at.role;
  return role == "k_cache" || role == "v_cache" || role == "k_read" || role == "v_read" || role == "kv_cache";
}

/// Positions of bad rows. Of (positions, heads, width) and (heads, positions, width) by the number of keys, where
/// that is known; blocks of slots lie one after another.
std::vector<std::int64_t> bad_keys(DumpFacts& facts, TensorIndex cache, std::int64_t keys) {
  const DumpTensor& tensor = facts.tensor(cache);
  const std::int64_t rows = tensor.rows();
  std::set<std::int64_t> found;
  const auto& shape = tensor.shape;
  const bool heads_first =
      keys > 0 && shape.size() >= 3 && shape[shape.size() - 2] == keys && shape[shape.size() - 3] != keys;
  const std::int64_t heads = shape.size() >= 3 ? shape[shape.size() - 2] : 1;
  for (const std::int64_t row : facts.bad_rows(cache)) {
    found.insert(heads_first ? row % keys : row / std::max<std::int64_t>(1, heads));
  }
  if (rows == 0) return {};
  return {found.begin(), found.end()};
}

/// How many of the keys have a probability above zero for any query.
std::int64_t attended_keys(DumpFacts& facts, TensorIndex probs, const std::vector<std::int64_t>& keys) {
  const auto values = facts.values(probs);
  if (!values) return 0;
  const std::int64_t width = facts.tensor(probs).channels();
  std::int64_t count = 0;
  for (const std::int64_t key : keys) {
    if (key >= width) continue;
    bool attended = false;
    for (std::size_t i = static_cast<std::size_t>(key); i < values->size() && !attended;
         i += static_cast<std::size_t>(width)) {
      attended = (*values)[i] != 0;
    }
    count += attended ? 1 : 0;
  }
  return count;
}

/// The first bad tensor of the pass that attention of this layer makes, after the cache.
std::optional<TensorIndex> harmed(DumpFacts& facts, TensorIndex cache) {
  const bool keys = facts.tensor(cache).at.role.starts_with('k');
  for (const TensorIndex i : facts.members(facts.pass_of(cache))) {
    if (i <= cache || is_parameter(facts.tensor(i)) || is_cache(facts.tensor(i))) continue;
    const std::string& role = facts.tensor(i).at.role;
    if (!facts.symptomatic(i)) {
      // Healthy scores: the keys did no harm. Healthy attention: nor did the values.
      if ((keys && (role == "probs" || role == "scores")) || role == "attn_out") return std::nullopt;
      continue;
    }
    return i;
  }
  return std::nullopt;
}

std::optional<TensorIndex> earlier_bad(DumpFacts& facts, TensorIndex cache) {
  const TensorName& at = facts.tensor(cache).at;
  const std::string fresh = at.role.substr(0, 1);
  for (TensorIndex i = 0; i < cache; ++i) {
    const DumpTensor& other = facts.tensor(i);
    if (facts.pass_of(i) == facts.pass_of(cache) || other.at.layer != at.layer || other.at.tower != at.tower ||
        !other.bad())
      continue;
    if (other.at.role == fresh || other.at.role == fresh + "_cache" || other.at.role == fresh + "_read") return i;
  }
  return std::nullopt;
}

}  // namespace

std::vector<PoisonedCache> poisoned_caches(DumpFacts& facts) {
  std::vector<PoisonedCache> out;
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    const DumpTensor& tensor = facts.tensor(i);
    if (!is_cache(tensor) || !tensor.bad()) continue;
    const std::string fresh_role = tensor.at.role.substr(0, 1);
    const auto fresh = facts.in_layer(i, fresh_role);
    const auto own_bad = [&](const std::optional<TensorIndex>& own) {
      return own && facts.pass_of(*own) == facts.pass_of(i) && facts.tensor(*own).bad();
    };
    // Codes of as many elements as this pass computed are its own, whatever the cache around them holds.
    const auto codes = facts.in_layer(i, fresh_role + "_cache");
    const bool own_codes = fresh && codes && facts.tensor(*codes).count() == facts.tensor(*fresh).count();
    const bool own_is_bad = own_bad(fresh) || (own_codes && own_bad(codes));
    // What was bad in this pass before the cache explains it; a cast that makes NaN is another class.
    if (own_is_bad ||
        (fresh && facts.tensor(*fresh).count() == tensor.count() && facts.pass_of(*fresh) == facts.pass_of(i)))
      continue;
    const auto shown = harmed(facts, i);
    if (!shown) continue;
    PoisonedCache found;
    found.cache = i;
    found.shown = *shown;
    const auto probs = facts.in_layer(i, "probs");
    const bool known = probs && facts.pass_of(*probs) == facts.pass_of(i) && !facts.tensor(*probs).bad();
    found.keys = bad_keys(facts, i, probs ? facts.tensor(*probs).channels() : 0);
    found.probabilities = known;
    if (known) found.attended = attended_keys(facts, *probs, found.keys);
    if (fresh) found.written = facts.tensor(*fresh).tokens();
    // Without probabilities, a length tells what is behind the end: a dumped one, or that of a prefill.
    std::int64_t length = padding_of(facts, facts.pass_of(i)).length;
    if (found.written > 1) length = std::min(length, found.written);
    found.behind_the_end = !found.keys.empty() && found.keys.front() >= length;
    found.source = earlier_bad(facts, i);
    out.push_back(std::move(found));
  }
  return out;
}

}  // namespace nanscope
