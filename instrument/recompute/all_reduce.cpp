/// Sums over ranks: what each put in, added.
#include <fmt/format.h>

#include <cmath>

#include "core/run/ranks.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {
namespace {

/// OpForm::variant; `shift` is the rank that it is about.
enum Sum : int { kAllParts = 0, kPartLeftOut = 1, kPartTwice = 2, kPartAlone = 3 };

struct Part {
  const Tensor* x = nullptr;
  std::int64_t rank = 0;
};

/// What every rank put in, this one first; none where one was not dumped.
std::vector<Part> parts_of(Values& values, const Op& op) {
  RunView& run = values.run();
  const Step* step = run.step(op.step);
  const Tensor* own = run.input(op, "x");
  if (step == nullptr || own == nullptr) return {};
  std::vector<Part> parts{{own, step->rank}};
  const StepsOfRanks& ranks = values.recomputer().ranks();
  for (const Tensor* x : ranks.other_parts(run, op)) {
    if (x->tokens != own->tokens || x->channels != own->channels) return {};
    parts.push_back({x, rank_of(run, x->step)});
  }
  if (parts.size() != ranks.others(*step).size() + 1) return {};
  const auto* stated = op.get<AllReduceAttributes>();
  const bool all = stated == nullptr || !stated->ranks || *stated->ranks == std::ssize(parts);
  return all && parts.size() > 1 ? parts : std::vector<Part>{};
}

/// How often a part counts.
double times_counted(const OpForm& form, std::int64_t rank) {
  const bool meant = form.shift == rank;
  if (form.variant == kPartLeftOut) return meant ? 0 : 1;
  if (form.variant == kPartTwice) return meant ? 2 : 1;
  return form.variant == kPartAlone && !meant ? 0 : 1;
}

}  // namespace

std::vector<OpForm> forms_all_reduce(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = one_form(values, op, out);
  forms.front().text = "the sum of what all ranks put in";
  return forms;
}

std::vector<OpForm> faults_all_reduce(Values& values, const Op& op, const Tensor&) {
  std::vector<OpForm> forms;
  const std::vector<Part> parts = parts_of(values, op);
  for (const Part& part : parts) {
    const int rank = static_cast<int>(part.rank);
    forms.push_back({.text = fmt::format("the part of rank {} left out", rank),
                     .variant = kPartLeftOut,
                     .shift = rank,
                     .fault = true});
    forms.push_back({.text = fmt::format("the part of rank {} added twice", rank),
                     .variant = kPartTwice,
                     .shift = rank,
                     .fault = true});
    if (parts.size() > 2) {
      forms.push_back({.text = fmt::format("the part of rank {} alone", rank),
                       .variant = kPartAlone,
                       .shift = rank,
                       .fault = true});
    }
  }
  return forms;
}

std::int64_t cost_all_reduce(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out); }

/// Each of n - 1 additions may be rounded to the format that is sent (Higham, theorem 4.1: in any order).
bool predict_all_reduce(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                        std::int64_t count, Prediction& into, std::string& why) {
  const std::vector<Part> parts = parts_of(values, op);
  if (parts.empty()) {
    why = "what other ranks put in was not dumped";
    return false;
  }
  std::vector<double> sums;
  std::vector<double> magnitudes;
  std::vector<double> off;
  for (const Part& part : parts) {
    Block x;
    if (!rows_like(values, *part.x, out, first, count, x)) {
      why = "what other ranks put in was not dumped";
      return false;
    }
    if (sums.empty()) {
      into.resize(count, x.columns);
      sums.resize(x.value.size());
      magnitudes.resize(sums.size());
      off.resize(sums.size());
    }
    const double weight = times_counted(form, part.rank);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += weight * double{x.value[i]};
      magnitudes[i] += weight * std::abs(double{x.value[i]});
      if (!x.error.empty()) off[i] += weight * double{x.error[i]};
    }
  }
  const double u = stored_roundoff(values, out);
  const Format kept = stored_format(values, out);
  const auto additions = static_cast<double>(parts.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    into.value[i] = static_cast<float>(sums[i]);
    into.bound[i] =
        static_cast<float>(1.01 * additions * (u + kF32) * magnitudes[i] + additions * least_error(kept) + off[i]);
  }
  return true;
}

}  // namespace nanscope
