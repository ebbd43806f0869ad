#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/dump/detectors/detector.h"

namespace nanscope::dump_detectors {
namespace {

constexpr std::size_t kMostPairs = 256;  ///< of passes: a server's dump may hold thousands of requests

/// Tensors of one place in two runs.
struct Pair {
  TensorIndex a = 0;
  TensorIndex b = 0;
};

std::vector<Pair> pairs_of(const DumpFacts& facts, std::size_t first, std::size_t second) {
  std::vector<Pair> pairs;
  for (const TensorIndex a : facts.members(first)) {
    const TensorName& at = facts.tensor(a).at;
    for (const TensorIndex b : facts.members(second)) {
      const TensorName& other = facts.tensor(b).at;
      if (other.module != at.module || other.role != at.role || other.port != at.port || other.index != at.index)
        continue;
      if (facts.tensor(a).shape == facts.tensor(b).shape) pairs.push_back({a, b});
      break;
    }
  }
  return pairs;
}

/// Tokens whose elements differ by more than rounding, ascending. For scores the token is the query.
std::vector<std::int64_t> differing_tokens(DumpFacts& facts, const Pair& pair, double relative) {
  const auto a = facts.values(pair.a);
  const auto b = facts.values(pair.b);
  std::vector<std::int64_t> tokens;
  if (!a || !b) return tokens;
  const DumpTensor& tensor = facts.tensor(pair.a);
  const bool list = tensor.shape.size() == 1 || tensor.channels() == 1;
  const std::int64_t width = list ? 1 : tensor.channels();
  const double scale = double{std::max(tensor.health.absmax, facts.tensor(pair.b).health.absmax)};
  for (std::size_t i = 0; i < a->size(); ++i) {
    const double difference = std::abs(double{(*a)[i]} - double{(*b)[i]});
    if ((*a)[i] == (*b)[i] || !(difference > relative * scale)) continue;
    const std::int64_t row = static_cast<std::int64_t>(i) / width;
    tokens.push_back(list ? row : tensor.token_of(row));
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

bool follows_tokens(const DumpTensor& tensor) {
  return (is_activation(tensor) && tensor.at.role != "sampled") || tensor.at.role == "tokens";
}

/// Rounding that the order of sums explains: a few units in the last place of what the tensor stores, of the largest.
double noise(const DumpTensor& tensor) {
  const int mantissa = tensor.format ? info(*tensor.format).mantissa_bits : 23;
  return 2 * std::ldexp(1.0, -std::min(mantissa, 16));
}

/// Two runs of one length whose first tensors agree up to a token: what comes later must agree up to it too.
std::optional<DumpFinding> compare_runs(DumpFacts& facts, std::size_t first, std::size_t second,
                                        std::size_t& compared) {
  std::optional<std::int64_t> changed;
  TensorIndex witness = 0;
  for (const Pair& pair : pairs_of(facts, first, second)) {
    const DumpTensor& tensor = facts.tensor(pair.a);
    if (!follows_tokens(tensor) || tensor.tokens() < 2) continue;
    const std::vector<std::int64_t> tokens = differing_tokens(facts, pair, changed ? noise(tensor) : 0);
    if (!changed) {
      if (tokens.empty()) continue;
      if (tokens.front() == 0) return std::nullopt;  // another prompt from the start
      changed = tokens.front();
      witness = pair.a;
      continue;
    }
    ++compared;
    if (tokens.empty() || tokens.front() >= *changed) continue;
    std::vector<std::int64_t> early(tokens.begin(), std::lower_bound(tokens.begin(), tokens.end(), *changed));
    DumpFinding finding = finding_at(facts, pair.b, {pair.b});
    finding.fault.where.tokens = Range{early.front(), early.back()};
    finding.fault.evidence = {{"changed_token", *changed},
                              {"earlier_tokens_that_differ", static_cast<std::int64_t>(early.size())},
                              {"first_of_them", early.front()},
                              {"last_of_them", early.back()}};
    finding.fault.summary = fmt::format(
        "the two runs agree before token {} in {}, but {} differs from {} in {} earlier tokens ({} to {}): they depend "
        "on a later one",
        *changed, facts.tensor(witness).name, facts.tensor(pair.b).name, facts.tensor(pair.a).name, early.size(),
        early.front(), early.back());
    finding.fault.fix =
        "do not share a scale across tokens that may not see each other: keep the diagonal block unquantized";
    return finding;
  }
  return std::nullopt;
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
      if (auto finding = compare_runs(facts, first, second, compared)) report.findings.push_back(std::move(*finding));
    }
  }
  report.figure =
      runs == 0 ? std::string("there is one run in the dump: nothing to compare it with")
                : fmt::format("{} pairs of tensors of two runs compared before the token that was changed: {} differ",
                              compared, report.findings.size());
  return report;
}

}  // namespace nanscope::dump_detectors
