#include "instrument/diff/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/dump/tensor_name.h"
#include "core/run/mask.h"
#include "core/run/ranks.h"

namespace nanscope::align {
namespace {

/// What a server keeps beside the numbers: where rows and blocks lie.
bool is_layout(std::string_view role) {
  constexpr std::string_view kRoles[] = {"block_table", "slot_mapping", "seq_lens",    "query_start_loc",
                                         "query_lens",  "past_length",  "request_ids", "block_size"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

/// A mask that is added, whatever it is called.
bool looks_like_mask(const Sheet& sheet) {
  return sheet.meeting == Meeting::rows && sheet.channels > 1 && sheet.tensor->health.max == 0 &&
         hidden_by_mask(double{sheet.tensor->health.min});
}

/// In a step that sees all keys, a mask holds nothing that shows its columns.
void settle_masks(Group& group) {
  if (std::none_of(group.sheets.begin(), group.sheets.end(), looks_like_mask)) return;
  for (Sheet& sheet : group.sheets) {
    if (sheet.meeting == Meeting::rows) sheet.meeting = Meeting::mask;
  }
}

bool is_of_scores(const Op& op, const Tensor& tensor) {
  const bool kind = op.kind == OpKind::attention_scores || op.kind == OpKind::softmax;
  return kind && (tensor.role == "scores" || tensor.role == "scores_raw" || tensor.role == "probs");
}

}  // namespace

std::string name_without_pass(const std::string& name) {
  if (name.empty()) return {};
  const TensorName at = parse_tensor_name(name);
  // Folders that say where are left out, and so are those that tell runs apart.
  const std::size_t slash = name.rfind('/');
  std::string text = slash == std::string::npos ? name : name.substr(slash + 1);
  const auto says = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  if (!at.module.empty() && !says(at.module)) text = at.module + "." + text;
  if (at.layer && !says(std::to_string(*at.layer))) text = fmt::format("layers.{}.{}", *at.layer, text);
  return text;
}

bool Group::is_stated() const {
  return std::any_of(sheets.begin(), sheets.end(), [](const Sheet& one) { return one.tensor->stated; });
}

bool Group::is_integer() const {
  return std::all_of(sheets.begin(), sheets.end(), [](const Sheet& one) { return one.tensor->format == Format::i32; });
}

bool Group::is_unplaced() const {
  return meeting() == Meeting::whole && kind != OpKind::parameter && sheets.front().tensor->step != kBeforeSteps &&
         sheets.front().rows > 1;
}

std::string Group::text() const {
  if (!name.empty()) return name;
  return fmt::format("{}{}.{}", layer ? fmt::format("layer {} ", *layer) : "", op, role);
}

Groups::Groups(RunView& run, const Sequences& sequences) : run_(run), sequences_(sequences) {
  add_step(kBeforeSteps);
  for (const Step& step : run.steps()) add_step(step.id);
  for (Group& group : all_) {
    std::set<std::int64_t> ranks;
    for (const Sheet& sheet : group.sheets) ranks.insert(sheet.rank);
    group.ranks = static_cast<std::int64_t>(ranks.size());
    ranks_ = std::max(ranks_, group.ranks);
    settle_masks(group);
  }
}

std::optional<std::size_t> Groups::of(TensorId tensor) const {
  const auto found = by_tensor_.find(tensor);
  return found == by_tensor_.end() ? std::nullopt : std::optional(found->second);
}

void Groups::add_step(StepId step) {
  std::map<Key, int> turns;
  std::map<OpId, std::int64_t> depths;
  for (const Op& op : run_.content(step).ops) {
    if (op.kind != OpKind::parameter && op.kind != OpKind::copy) depths.emplace(op.id, std::ssize(depths));
  }
  for (const Tensor& tensor : run_.content(step).tensors) {
    const Op* op = tensor.known ? run_.maker(tensor) : nullptr;
    if (op == nullptr) continue;
    const std::string name = name_without_pass(tensor.name);
    Key key{op->layer.value_or(-1), op->name, tensor.role, "", 0};
    const int turn = turns[key]++;
    // Names tell more turns of one op and role apart than their order does.
    std::get<3>(key) = name;
    std::get<4>(key) = name.empty() ? turn : turns[key]++;
    const auto [at, is_new] = by_key_.emplace(key, same_name_elsewhere(name, step).value_or(all_.size()));
    if (is_new && at->second == all_.size()) {
      Group made{name, op->layer, op->name, tensor.role, op->kind, turn, 1, 0, {}, 1};
      const auto depth = depths.upper_bound(op->id);
      made.depth = std::distance(depths.begin(), depth);
      all_.push_back(std::move(made));
    }
    all_[at->second].sheets.push_back(sheet_of(tensor, *op));
    by_tensor_.emplace(tensor.id, at->second);
  }
  for (Group& group : all_) {
    const auto all = turns.find({group.layer.value_or(-1), group.op, group.role, "", 0});
    if (all != turns.end()) group.turns = std::max(group.turns, all->second);
  }
}

/// A step of few rows can leave open what a tensor is; its name tells.
std::optional<std::size_t> Groups::same_name_elsewhere(const std::string& name, StepId step) const {
  if (name.empty()) return std::nullopt;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const bool is_here = std::any_of(all_[i].sheets.begin(), all_[i].sheets.end(),
                                     [&](const Sheet& sheet) { return sheet.tensor->step == step; });
    if (all_[i].name == name && !is_here) return i;
  }
  return std::nullopt;
}

Sheet Groups::sheet_of(const Tensor& tensor, const Op& op) const {
  Sheet sheet{&tensor, Meeting::whole, tensor.tokens, tensor.channels, rank_of(run_, tensor.step)};
  const Step* step = sequences_.step(tensor.step);
  if (step == nullptr) return sheet;
  const std::int64_t rows = std::max<std::int64_t>(1, step->rows);
  const std::int64_t frame = rows / std::max<std::int64_t>(1, step->batch);
  if (is_layout(tensor.role)) {
    sheet.meeting = Meeting::layout;
  } else if (tensor.role == "mask") {
    sheet.meeting = tensor.tokens == rows && tensor.channels > 1 ? Meeting::mask : Meeting::layout;
  } else if (is_of_scores(op, tensor)) {
    sheet.meeting = Meeting::scores;
  } else if (tensor.axis == Axis::keys) {
    sheet.meeting = Meeting::keys;
  } else if (tensor.format == Format::i32 && tensor.count() == rows && tensor.axis != Axis::live &&
             (rows > 1 || tensor.axis != Axis::none || tensor.role == "tokens" || tensor.role == "positions")) {
    sheet.meeting = Meeting::rows;
    sheet.rows = rows;
    sheet.channels = 1;
  } else if (const bool table = tensor.role == "cos" || tensor.role == "sin";
             tensor.axis == Axis::slots || (op.kind == OpKind::parameter && tensor.axis == Axis::none && !table)) {
    sheet.meeting = Meeting::whole;
  } else if (tensor.axis != Axis::none || tensor.tokens == rows || (step->batch > 1 && tensor.tokens == frame)) {
    sheet.meeting = Meeting::rows;
  }
  return sheet;
}

}  // namespace nanscope::align
