#include "instrument/recompute/formats.h"

#include <algorithm>
#include <array>
#include <map>

namespace nanscope {
namespace {

constexpr std::array kFlavours = {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz};
constexpr std::int64_t kRows = 8;
constexpr std::size_t kOps = 4;  ///< of a group that are tried

/// Codes of one kind, and what was made of them.
struct Group {
  std::vector<TensorId> codes;
  std::vector<TensorId> read;
};

/// The share of an op's elements that its plain form explains.
std::optional<double> share_of(Recomputer& recomputer, TensorId id) {
  RunView& run = recomputer.facts().run;
  const Tensor* tensor = run.tensor(id);
  const Op* op = tensor != nullptr ? run.maker(*tensor) : nullptr;
  if (op == nullptr || recipe_of(op->kind) == nullptr) return std::nullopt;
  double best = -1;
  for (const OpForm& form : recipe_of(op->kind)->forms(recomputer.values(), *op, *tensor)) {
    const auto judged = recomputer.judge(*op, *tensor, form, {}, kRows);
    if (judged && judged->elements > 0) best = std::max(best, judged->share());
  }
  return best >= 0 ? std::optional(best) : std::nullopt;
}

void settle(Recomputer& recomputer, const Group& group) {
  RunView& run = recomputer.facts().run;
  const Format before = run.tensor(group.codes.front())->format;
  Format chosen = before;
  const auto choose_by = [&](const std::vector<TensorId>& shown) {
    double best = kMostly;
    bool found = false;
    for (const Format format : kFlavours) {
      for (const TensorId id : group.codes) run.read_as(id, format);
      double sum = 0;
      int tried = 0;
      for (std::size_t i = 0; i < shown.size() && tried < static_cast<int>(kOps); ++i) {
        const auto share = share_of(recomputer, shown[i]);
        if (share) sum += *share, ++tried;
      }
      // The usual one first: only a better one replaces it.
      if (tried == 0 || sum / tried <= best + 1e-9) continue;
      best = sum / tried;
      chosen = format;
      found = true;
    }
    return found;
  };
  if (!choose_by(group.codes)) choose_by(group.read);
  for (const TensorId id : group.codes) run.read_as(id, chosen);
  recomputer.values().forget();
}

}  // namespace

void settle_formats(Recomputer& recomputer) {
  RunView& run = recomputer.facts().run;
  std::map<std::string, Group> groups;
  for (const Step& step : run.steps()) {
    for (const Op& op : run.content(step.id).ops) {
      for (const TensorId id : op.outputs) {
        const Tensor* codes = run.tensor(id);
        const bool bytes = codes != nullptr && codes->guessed && info(codes->format).bits == 8;
        if (!bytes || (op.kind != OpKind::kv_store && op.kind != OpKind::quantise)) continue;
        Group& group = groups[op.kind == OpKind::kv_store ? codes->role : op.name];
        group.codes.push_back(id);
        for (const Op* reader : run.readers(*codes)) {
          const Tensor* made = run.result(*reader);
          if (made != nullptr && made->known) group.read.push_back(made->id);
        }
      }
    }
  }
  for (const auto& [name, group] : groups) settle(recomputer, group);
}

}  // namespace nanscope
