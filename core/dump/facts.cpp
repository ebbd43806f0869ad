#include "core/dump/facts.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace nanscope {
namespace {

constexpr std::string_view kParameters[] = {
    "weight",       "bias",     "weight_scale", "input_scale", "output_scale", "k_scale",       "v_scale",
    "q_scale",      "kv_scale", "score_scale",  "prob_scale",  "amax_history", "mask",          "block_table",
    "slot_mapping", "seq_lens", "tokens",       "positions",   "router_bias",  "weight_dequant"};

std::string module_key(const TensorName& at, std::string_view role) {
  std::string key = at.tower + '|' + at.module + '|';
  key += role;
  return key + '|' + std::to_string(at.index) + (at.port == Port::input ? "i" : "");
}

std::string role_key(const TensorName& at, std::string_view role) {
  return std::to_string(at.layer.value_or(-1)) + '|' + at.tower + '|' + std::string(role);
}

}  // namespace

bool is_parameter(const DumpTensor& tensor) {
  return std::find(std::begin(kParameters), std::end(kParameters), tensor.at.role) != std::end(kParameters);
}

bool is_activation(const DumpTensor& tensor) { return tensor.at.port != Port::state && !is_parameter(tensor); }

DumpFacts::DumpFacts(const Dump& dump, DumpElements& elements, std::stop_token stop)
    : dump_(&dump), elements_(&elements), stop_(std::move(stop)) {
  std::map<std::string, std::size_t> known;
  for (TensorIndex i = 0; i < size(); ++i) {
    const TensorName& at = tensor(i).at;
    const auto [pass, isnew] = known.emplace(at.pass(), passes_.size());
    if (isnew) passes_.emplace_back();
    passes_[pass->second].push_back(i);
    pass_of_.push_back(pass->second);
    by_role_[role_key(at, at.role)].push_back(i);
    by_module_[module_key(at, at.role)].push_back(i);
  }
}

std::vector<TensorIndex> DumpFacts::all(std::string_view role) const {
  std::vector<TensorIndex> found;
  for (TensorIndex i = 0; i < size(); ++i) {
    if (tensor(i).at.role == role) found.push_back(i);
  }
  return found;
}

std::optional<TensorIndex> DumpFacts::in_layer(TensorIndex beside, std::string_view role) const {
  const auto found = by_role_.find(role_key(tensor(beside).at, role));
  if (found == by_role_.end()) return std::nullopt;
  std::optional<TensorIndex> shared;
  for (const TensorIndex i : found->second) {
    if (pass_of_[i] == pass_of_[beside]) return i;
    const auto others = members(pass_of_[i]);
    if (std::none_of(others.begin(), others.end(),
                     [this](TensorIndex other) { return is_activation(tensor(other)); })) {
      shared = i;
    }
  }
  return shared;
}

std::optional<TensorIndex> DumpFacts::of_module(TensorIndex beside, std::string_view role) const {
  std::optional<TensorIndex> shared;
  for (const Port port : {Port::state, Port::input, Port::output}) {
    TensorName at = tensor(beside).at;
    at.index = 0;
    at.port = port;
    const auto found = by_module_.find(module_key(at, role));
    if (found == by_module_.end()) continue;
    for (const TensorIndex i : found->second) {
      if (pass_of_[i] == pass_of_[beside]) return i;
      if (is_parameter(tensor(i)) && i < beside) shared = i;
      if (is_parameter(tensor(i)) && !shared) shared = i;
    }
  }
  return shared;
}

std::optional<TensorIndex> DumpFacts::input_of(TensorIndex output, int which) const {
  const TensorName& at = tensor(output).at;
  for (const TensorIndex i : members(pass_of_[output])) {
    const TensorName& other = tensor(i).at;
    if (other.port == Port::input && other.module == at.module && other.tower == at.tower && other.index == which)
      return i;
  }
  return std::nullopt;
}

std::vector<TensorIndex> DumpFacts::history(TensorIndex index) const {
  const TensorName& at = tensor(index).at;
  const auto found = by_module_.find(module_key(at, at.role));
  return found == by_module_.end() ? std::vector<TensorIndex>{} : found->second;
}

bool DumpFacts::same_content(const DumpTensor& a, const DumpTensor& b) {
  const Health& one = a.health;
  const Health& other = b.health;
  if (one.absmax != other.absmax || one.min != other.min || one.max != other.max || one.nan != other.nan ||
      one.zero != other.zero || one.first_bad != other.first_bad) {
    return false;
  }
  // Of statistics the sums are known, and nothing else.
  if (a.stated || b.stated) return a.stated && b.stated && one.sum == other.sum && one.sum_sq == other.sum_sq;
  // The scan takes no sums of activations; that many equal numbers after an equal range are no chance.
  constexpr std::int64_t kCompared = std::int64_t{1} << 16;
  const std::int64_t count = std::min(kCompared, a.count());
  const Result<std::vector<float>> x = elements_->values(a, 0, count);
  const Result<std::vector<float>> y = x ? elements_->values(b, 0, count) : fail("not compared");
  return x && y && std::equal(x->begin(), x->end(), y->begin(), [](float left, float right) {
           return left == right || (std::isnan(left) && std::isnan(right));
         });
}

std::optional<TensorIndex> DumpFacts::same_content_before(TensorIndex index) {
  const DumpTensor& t = tensor(index);
  const auto pass = members(pass_of_[index]);
  auto before = std::lower_bound(pass.begin(), pass.end(), index);
  while (before != pass.begin()) {
    const DumpTensor& other = tensor(*--before);
    if (!is_activation(other) || other.at.port == Port::input || other.count() != t.count()) continue;
    if (same_content(other, t)) return *before;
  }
  return std::nullopt;
}

std::vector<TensorIndex> DumpFacts::inputs_of(TensorIndex index) {
  const TensorName& at = tensor(index).at;
  std::vector<TensorIndex> inputs;
  const auto add = [&](std::optional<TensorIndex> found) {
    if (found && *found != index && std::find(inputs.begin(), inputs.end(), *found) == inputs.end())
      inputs.push_back(*found);
  };
  if (at.port == Port::output && at.kind != ModuleKind::block) {
    for (int which = 0; which < 4; ++which) add(input_of(index, which));
    for (const std::string_view role : {"weight", "bias", "weight_scale", "input_scale"}) add(of_module(index, role));
  }
  const auto from_layer = [&](std::initializer_list<std::string_view> roles) {
    for (const std::string_view role : roles) add(in_layer(index, role));
  };
  if (at.role == "k_cache") from_layer({"k", "k_scale", "kv_scale"});
  if (at.role == "v_cache") from_layer({"v", "v_scale", "kv_scale"});
  if (at.role == "k_read") from_layer({"k_cache", "k_scale"});
  if (at.role == "v_read") from_layer({"v_cache", "v_scale"});
  if (at.role == "scores") from_layer({"q", "k", "k_cache", "k_read"});
  if (at.role == "probs") from_layer({"scores", "mask"});
  if (at.role == "attn_out" && at.port == Port::output)
    from_layer({"probs", "q", "k", "v", "k_cache", "v_cache", "k_read", "v_read"});
  if (at.role == "router_weights") from_layer({"router_scores", "router_logits", "router_bias"});
  if (at.role == "sampled") from_layer({"logits"});
  if (at.port == Port::input) add(same_content_before(index));
  const bool fed = std::any_of(inputs.begin(), inputs.end(), [&](TensorIndex i) { return !is_parameter(tensor(i)); });
  if (!fed && is_activation(tensor(index))) {
    const auto pass = members(pass_of_[index]);
    auto before = std::lower_bound(pass.begin(), pass.end(), index);
    while (before != pass.begin()) {
      --before;
      if (!is_activation(tensor(*before)) || tensor(*before).count() == 0) continue;
      add(*before);
      break;
    }
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

std::shared_ptr<const std::vector<float>> DumpFacts::values(TensorIndex index) {
  return values_.get(index, [&]() -> std::shared_ptr<const std::vector<float>> {
    if (tensor(index).count() > kMostElements || stop_.stop_requested()) return nullptr;
    Result<std::vector<float>> read = elements_->values(tensor(index), 0, tensor(index).count());
    return read ? std::make_shared<const std::vector<float>>(std::move(*read)) : nullptr;
  });
}

std::shared_ptr<const std::vector<std::uint32_t>> DumpFacts::codes(TensorIndex index) {
  return codes_.get(index, [&]() -> std::shared_ptr<const std::vector<std::uint32_t>> {
    if (tensor(index).count() > kMostElements || stop_.stop_requested()) return nullptr;
    Result<std::vector<std::uint32_t>> read = elements_->codes(tensor(index), 0, tensor(index).count());
    return read ? std::make_shared<const std::vector<std::uint32_t>>(std::move(*read)) : nullptr;
  });
}

std::optional<float> DumpFacts::scalar(TensorIndex index) {
  if (tensor(index).count() != 1) return std::nullopt;
  const auto read = values(index);
  return read && !read->empty() ? std::optional(read->front()) : std::nullopt;
}

const std::vector<Health>& DumpFacts::rows(TensorIndex index) {
  const auto known = rows_.find(index);
  if (known != rows_.end()) return known->second;
  if (tensor(index).rows() > kMostRows || stop_.stop_requested()) return rows_[index];
  Result<std::vector<Health>> read = elements_->row_health(tensor(index));
  return rows_[index] = read ? std::move(*read) : std::vector<Health>{};
}

std::vector<std::int64_t> DumpFacts::bad_rows(TensorIndex index) {
  std::vector<std::int64_t> bad;
  const std::vector<Health>& health = rows(index);
  for (std::size_t row = 0; row < health.size(); ++row) {
    if (health[row].bad() > 0) bad.push_back(static_cast<std::int64_t>(row));
  }
  return bad;
}

bool DumpFacts::symptomatic(TensorIndex index) {
  const auto known = symptomatic_.find(index);
  if (known != symptomatic_.end()) return known->second;
  const DumpTensor& t = tensor(index);
  bool bad = t.bad();
  if (t.at.role == "mask") bad = t.health.nan + t.health.pos_inf > 0;
  // -inf hides keys from a query, tokens from a sampler. One that it leaves nothing is the softmax detector's to judge.
  const bool hides = t.at.role == "scores" || t.at.role == "logits" || t.at.role == "router_scores" ||
                     t.at.role == "row_max" || t.at.role == "lse" || t.at.role == "router_logits";
  if (hides) bad = t.health.nan + t.health.pos_inf > 0;
  if (bad && is_activation(t) && t.tokens() > 1 && t.health.pos_inf + t.health.neg_inf == 0) bad = !only_padding(index);
  return symptomatic_[index] = bad;
}

bool DumpFacts::only_padding(TensorIndex index) {
  const std::size_t pass = pass_of(index);
  const auto known = padding_.find(pass);
  const Padding& padding =
      known != padding_.end() ? known->second : padding_.emplace(pass, padding_of(*this, pass)).first->second;
  std::set<std::int64_t> tokens;
  for (const std::int64_t row : bad_rows(index)) tokens.insert(tensor(index).token_of(row));
  if (tokens.empty()) return false;
  if (padding.any()) {
    return std::all_of(tokens.begin(), tokens.end(), [&](std::int64_t token) { return padding.has(token); });
  }
  // Without a mask in the dump: a run of tokens at an end that nothing read, since every logit is a number.
  const std::int64_t count = tensor(index).tokens();
  const bool at_an_end = *tokens.begin() == 0 || *tokens.rbegin() == count - 1;
  const bool in_a_row = *tokens.rbegin() - *tokens.begin() + 1 == static_cast<std::int64_t>(tokens.size());
  const bool some_left = static_cast<std::int64_t>(tokens.size()) < count;
  return at_an_end && in_a_row && some_left && logits_are_numbers(pass);
}

bool DumpFacts::logits_are_numbers(std::size_t pass) const {
  bool found = false;
  for (const TensorIndex i : members(pass)) {
    if (tensor(i).at.role != "logits") continue;
    if (tensor(i).health.nan + tensor(i).health.pos_inf > 0) return false;
    found = true;
  }
  return found;
}

Where DumpFacts::where(TensorIndex index) const {
  const TensorName& at = tensor(index).at;
  Where where;
  where.request = at.request;
  where.step = at.step;
  where.layer = at.layer;
  where.op = at.op;
  where.role = at.role;
  return where;
}

Where DumpFacts::where(TensorIndex index, const std::vector<std::int64_t>& rows) const {
  Where where = this->where(index);
  if (tensor(index).stated) return where;  // which rows is not known
  for (const std::int64_t row : rows) {
    const std::int64_t token = tensor(index).token_of(row);
    if (!where.tokens) where.tokens = Range{token, token};
    where.tokens->first = std::min(where.tokens->first, token);
    where.tokens->last = std::max(where.tokens->last, token);
  }
  return where;
}

}  // namespace nanscope
