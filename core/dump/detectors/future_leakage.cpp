#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include "core/dump/detectors/detector.h"
#include "core/dump/quantized.h"

namespace nanscope::dump_detectors {
namespace {

constexpr std::size_t kMostPairs = 256;  ///< of passes: a server's dump may hold thousands of requests

/// Tensors of one place in two runs.
struct Pair {
  TensorIndex a = 0;
  TensorIndex b = 0;
};

std::vector<Pair> pairs_of(const DumpFacts& facts, std::size_t first, std::size_t second) {
  const auto key = [&](TensorIndex i) {
    const TensorName& at = facts.tensor(i).at;
    return fmt::format("{}|{}|{}|{}", at.module, at.role, static_cast<int>(at.port), at.index);
  };
  std::unordered_map<std::string, TensorIndex> partners;
  for (const TensorIndex b : facts.members(second)) partners.emplace(key(b), b);
  std::vector<Pair> pairs;
  for (const TensorIndex a : facts.members(first)) {
    const auto b = partners.find(key(a));
    if (b != partners.end() && facts.tensor(a).shape == facts.tensor(b->second).shape) pairs.push_back({a, b->second});
  }
  return pairs;
}

bool is_list(const DumpTensor& tensor) { return tensor.shape.size() == 1 || tensor.channels() == 1; }

/// Tokens whose elements differ by more than rounding, ascending. For scores the token is the query, and keys from
/// `changed` on do not count: what hides them from a query comes after the product.
std::vector<std::int64_t> differing_tokens(DumpFacts& facts, const Pair& pair, double relative,
                                           std::optional<std::int64_t> changed) {
  const auto a = facts.values(pair.a);
  const auto b = facts.values(pair.b);
  std::vector<std::int64_t> tokens;
  if (!a || !b) return tokens;
  const DumpTensor& tensor = facts.tensor(pair.a);
  const bool list = is_list(tensor);
  const std::int64_t width = list ? 1 : tensor.channels();
  const std::int64_t keys = tensor.at.role == "scores" && changed ? *changed : width;
  const double scale = double{std::max(tensor.health.absmax, facts.tensor(pair.b).health.absmax)};
  for (std::size_t i = 0; i < a->size(); ++i) {
    if (static_cast<std::int64_t>(i) % width >= keys) continue;
    const double difference = std::abs(double{(*a)[i]} - double{(*b)[i]});
    if ((*a)[i] == (*b)[i] || !(difference > relative * scale)) continue;
    const std::int64_t row = static_cast<std::int64_t>(i) / width;
    tokens.push_back(list ? row : tensor.token_of(row));
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

/// A row a token: activations, token ids, codes and caches of one sequence.
bool follows_tokens(const DumpTensor& tensor) {
  const std::string& role = tensor.at.role;
  const bool stored = role.ends_with("_codes") || (role.ends_with("_cache") && tensor.shape.size() <= 3);
  const std::int64_t tokens = is_list(tensor) ? tensor.count() : tensor.tokens();
  return tokens > 1 && ((is_activation(tensor) && role != "sampled") || role == "tokens" || stored);
}

/// Rounding that the order of sums explains: a few units in the last place of what the tensor stores, of the largest.
double noise(const DumpTensor& tensor) {
  const int mantissa = tensor.format ? info(*tensor.format).mantissa_bits : 23;
  return 2 * std::ldexp(1.0, -std::min(mantissa, 16));
}

/// The scale of codes that differ, when it differs itself: what earlier tokens share with later ones.
std::optional<TensorIndex> shared_scale(DumpFacts& facts, const Pair& pair) {
  for (const Quantized& quantized : quantized_tensors(facts)) {
    if (quantized.codes != pair.b || !quantized.scale) continue;
    for (const TensorIndex other : facts.history(*quantized.scale)) {
      if (facts.pass_of(other) != facts.pass_of(pair.a)) continue;
      const auto a = facts.scalar(other);
      const auto b = facts.scalar(*quantized.scale);
      if (a && b && *a != *b) return quantized.scale;
    }
  }
  return std::nullopt;
}

/// Where two runs first part before the token that was changed.
struct Leak {
  Pair pair;
  TensorIndex witness = 0;  ///< up to which token they agree in it
  std::int64_t changed = 0;
  std::vector<std::int64_t> tokens;
};

/// Two runs of one length whose first tensors agree up to a token: what comes later must agree up to it too. The first
/// tensor that does not is the place, once any is further off than the order of sums explains.
std::optional<Leak> find_leak(DumpFacts& facts, std::size_t first, std::size_t second, std::size_t& compared) {
  std::optional<Leak> leak;
  std::optional<std::int64_t> changed;
  TensorIndex witness = 0;
  for (const Pair& pair : pairs_of(facts, first, second)) {
    const DumpTensor& tensor = facts.tensor(pair.a);
    if (!follows_tokens(tensor)) continue;
    std::vector<std::int64_t> tokens = differing_tokens(facts, pair, 0, changed);
    if (!changed) {
      if (tokens.empty()) continue;
      if (tokens.front() == 0) return std::nullopt;  // another prompt from the start
      changed = tokens.front();
      witness = pair.a;
      continue;
    }
    ++compared;
    tokens.erase(std::lower_bound(tokens.begin(), tokens.end(), *changed), tokens.end());
    if (tokens.empty()) continue;
    if (!leak) leak = Leak{pair, witness, *changed, tokens};
    const std::vector<std::int64_t> beyond = differing_tokens(facts, pair, noise(tensor), changed);
    if (!beyond.empty() && beyond.front() < *changed) return leak;
  }
  return std::nullopt;
}

DumpFinding finding_of(DumpFacts& facts, const Leak& leak) {
  DumpFinding finding = finding_at(facts, shared_scale(facts, leak.pair).value_or(leak.pair.b), {leak.pair.b});
  finding.fault.where.tokens = Range{leak.tokens.front(), leak.tokens.back()};
  finding.fault.evidence = {{"changed_token", leak.changed},
                            {"earlier_tokens_that_differ", static_cast<std::int64_t>(leak.tokens.size())},
                            {"first_of_them", leak.tokens.front()},
                            {"last_of_them", leak.tokens.back()}};
  finding.fault.summary = fmt::format(
      "the two runs agree before token {} in {}, but {} differs from {} in {} earlier tokens ({} to {}): they depend "
      "on a later one",
      leak.changed, facts.tensor(leak.witness).name, facts.tensor(leak.pair.b).name, facts.tensor(leak.pair.a).name,
      leak.tokens.size(), leak.tokens.front(), leak.tokens.back());
  finding.fault.fix =
      "do not share a scale or a mask across tokens that may not see each other: keep the diagonal block unquantized";
  return finding;
}

}  // namespace

/// The same prompt twice with only a later token changed: earlier tokens that differ have seen the future, as blocks of
/// values that share a scale along the tokens let them.
DumpReport detect_future_leakage(DumpFacts& facts, const Explained&) {
  DumpReport report;
  std::size_t compared = 0;
  std::size_t runs = 0;
  for (std::size_t first = 0; first < facts.passes(); ++first) {
    for (std::size_t second = first + 1; second < facts.passes() && runs < kMostPairs; ++second) {
      const TensorName& a = facts.tensor(facts.members(first).front()).at;
      const TensorName& b = facts.tensor(facts.members(second).front()).at;
      if (a.rank != b.rank || a.step != b.step || (a.run == b.run && a.request == b.request)) continue;
      ++runs;
      if (const auto leak = find_leak(facts, first, second, compared))
        report.findings.push_back(finding_of(facts, *leak));
    }
  }
  report.figure =
      runs == 0 ? std::string("there is one run in the dump: nothing to compare it with")
                : fmt::format("{} pairs of tensors of two runs compared before the token that was changed: {} differ",
                              compared, report.findings.size());
  return report;
}

}  // namespace nanscope::dump_detectors
