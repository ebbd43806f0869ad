#include <algorithm>
#include <string>

#include "core/dump/facts.h"

/// Where NaN and Inf come into being in a dump.
namespace nanscope {
namespace {

/// NaN in a cache is harmless until it is read; poison.h looks at those. A cast of the pass's own values is a birth.
bool only_storage(const DumpFacts& facts, TensorIndex index) {
  const DumpTensor& tensor = facts.tensor(index);
  const std::string& role = tensor.at.role;
  if (role == "state" || role == "kv_cache") return true;
  if (!role.ends_with("_cache") && !role.ends_with("_read")) return false;
  const auto fresh = facts.in_layer(index, role.substr(0, 1));
  return !fresh || facts.pass_of(*fresh) != facts.pass_of(index) || facts.tensor(*fresh).count() != tensor.count();
}

/// Modules whose row t depends on row t of their input alone.
bool row_local(ModuleKind kind) {
  return kind == ModuleKind::norm || kind == ModuleKind::linear || kind == ModuleKind::activation ||
         kind == ModuleKind::rotary || kind == ModuleKind::router;
}

}  // namespace

std::optional<Birth> DumpFacts::birth_at(TensorIndex index) {
  Birth birth{index, inputs_of(index), bad_rows(index)};
  if (birth.rows.empty() && symptomatic(index)) birth.rows.push_back(0);
  const DumpTensor& t = tensor(index);
  for (const TensorIndex input : birth.inputs) {
    if (!symptomatic(input)) continue;
    const bool local = row_local(t.at.kind) && tensor(input).rows() == t.rows() && !is_parameter(tensor(input));
    if (!local) return std::nullopt;
    std::vector<std::int64_t> ill = bad_rows(input);
    std::erase_if(birth.rows, [&](std::int64_t row) { return std::binary_search(ill.begin(), ill.end(), row); });
    if (birth.rows.empty()) return std::nullopt;
  }
  return birth;
}

void DumpFacts::collect_births() {
  births_.emplace();
  std::vector<bool> ill(passes_.size(), false);
  for (TensorIndex i = 0; i < size(); ++i) {
    const DumpTensor& t = tensor(i);
    if (!symptomatic(i) || (is_parameter(t) && t.at.role != "mask") || only_storage(*this, i)) continue;
    const std::size_t pass = pass_of_[i];
    // Without its own input at hand, only the first bad tensor of a pass is known to be a birth.
    const bool has_input = t.at.port == Port::output && input_of(i).has_value();
    if (!ill[pass] || has_input) {
      if (std::optional<Birth> birth = birth_at(i)) births_->push_back(std::move(*birth));
    }
    ill[pass] = true;
  }
}

const std::vector<Birth>& DumpFacts::births() {
  if (!births_) collect_births();
  return *births_;
}

}  // namespace nanscope
