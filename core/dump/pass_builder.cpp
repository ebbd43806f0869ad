#include "core/dump/pass_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/dump/name_words.h"

namespace nanscope {
namespace {

constexpr std::int64_t kCompared = std::int64_t{1} << 16;  ///< elements that tell two tensors apart

std::string name_in(const Scope& scope, std::string_view op) {
  std::string name = scope.tower.empty() ? std::string() : scope.tower + '_';
  if (scope.expert) name += fmt::format("expert{}_", *scope.expert);
  return name + std::string(op);
}

/// Of a step on whichever rank.
std::string step_key(const TensorName& at) {
  return fmt::format("{}|{}|{}", at.run, at.step.value_or(-1), at.request.value_or(-1));
}

}  // namespace

std::string parameter_key(const TensorName& at, std::string_view op, std::string_view role, Form form) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}", at.run, at.rank.value_or(-1), at.tower, at.layer.value_or(-1),
                     at.expert.value_or(-1), op, role, static_cast<int>(form));
}

PassBuilder::PassBuilder(DumpRun& run) : run_(run) {
  settle_names();
  constexpr std::string_view kWritten =
      "tokens positions mask seq_lens query_start_loc query_lens past_length slot_mapping block_table";
  for (Index index = 0; index < run_.dump_.tensors.size(); ++index) {
    const TensorName& at = tensor(index).at;
    if (at.rank && !at.layer && at.port != Port::input && listed(kWritten, at.role))
      written_once_[step_key(at)].push_back(index);
  }
  settle_geometry();
}

bool PassBuilder::seen_any(std::span<const std::string_view> ops) const {
  return std::any_of(ops.begin(), ops.end(), [this](std::string_view op) { return seen(op); });
}

std::vector<PassBuilder::Index> PassBuilder::find(std::string_view op, Port port, Form form, int index) const {
  std::vector<Index> found;
  const auto members = members_.find(scope_);
  if (members == members_.end()) return found;
  const auto [begin, end] = members->second.equal_range({std::string(op), port, index, form});
  for (auto at = begin; at != end; ++at) {
    if (!placed_.contains(at->second)) found.push_back(at->second);
  }
  return found;
}

std::vector<PassBuilder::Index> PassBuilder::find_role(std::string_view role, Form form) const {
  std::vector<Index> found;
  const auto roles = roles_.find(scope_);
  if (roles == roles_.end()) return found;
  const auto [begin, end] = roles->second.equal_range({std::string(role), form});
  for (auto at = begin; at != end; ++at) {
    if (!placed_.contains(at->second)) found.push_back(at->second);
  }
  return found;
}

/// Those of the module, then those that are called by what it makes.
std::vector<PassBuilder::Index> PassBuilder::outputs_of(std::string_view op, std::string_view role) const {
  std::vector<Index> found = find(op, Port::output);
  std::set<Index> known(found.begin(), found.end());
  for (const Index index : find_role(role)) {
    const bool output = tensor(index).at.port != Port::input;
    if (output && known.insert(index).second) found.push_back(index);
  }
  return found;
}

/// Of this pass, else of what lies outside of passes.
std::optional<PassBuilder::Index> PassBuilder::parameter(std::string_view op, std::string_view role, Form form) {
  if (const auto own = shortcuts_.find(scope_); own != shortcuts_.end()) {
    const auto [begin, end] = own->second.parameters.equal_range({std::string(op), form, std::string(role)});
    for (auto one = begin; one != end; ++one) {
      if (tensor(one->second).at.role == role) return one->second;
    }
  }
  TensorName at;
  at.tower = scope_.tower;
  at.layer = scope_.layer;
  at.expert = scope_.expert;
  const auto shared = [&]() -> std::optional<Index> {
    const auto found = shared_.find(parameter_key(at, op, role, form));
    return found == shared_.end() ? std::nullopt : std::optional(found->second);
  };
  if (const auto one = shared(); one || run_.steps_.empty()) return one;
  // A rank's own: it may be a part of the whole, so that no other rank's can stand for it.
  const Step& step = run_.steps_.back();
  for (const std::string& run : {step.run, std::string()}) {
    at.run = run;
    for (const auto rank : {std::optional(step.rank), std::optional<std::int64_t>()}) {
      at.rank = rank;
      if (const auto one = shared()) return one;
    }
  }
  return std::nullopt;
}

Tensor* PassBuilder::tensor_of(TensorId id) {
  numbers_.touched.push_back(id);
  return const_cast<Tensor*>(run_.tensor(id));  // NOLINT: its own run's
}

std::vector<PassBuilder::Index> PassBuilder::of_sequence(const std::vector<Index>& all,
                                                         std::optional<std::int64_t> sequence) const {
  std::vector<Index> own;
  std::copy_if(all.begin(), all.end(), std::back_inserter(own),
               [&](Index index) { return tensor(index).at.sequence == sequence; });
  return own;
}

/// The span that a tensor of one sequence is of.
const Span* PassBuilder::span_of(Index index) const {
  const auto& sequence = tensor(index).at.sequence;
  if (!sequence || *sequence >= static_cast<std::int64_t>(frame_.spans.size())) return nullptr;
  return &frame_.spans[static_cast<std::size_t>(*sequence)];
}

Layout PassBuilder::layout_of(Index index, int half) {
  if (const auto pool = pools_.find(index); pool != pools_.end())
    return half == 0 ? pool->second.keys : pool->second.values;
  const Geometry& geometry = geometry_[tensor(index).at.tower];
  const Span* span = span_of(index);
  if (span == nullptr) return nanscope::layout_of(tensor(index), frame_, geometry, half);
  Frame own;
  own.rows = span->rows;
  own.spans = {*span};
  own.spans.front().row = 0;
  Layout layout = nanscope::layout_of(tensor(index), own, geometry, half);
  if (layout.axis == Axis::rows || layout.axis == Axis::live || layout.axis == Axis::ends) layout.axis = Axis::part;
  if (layout.axis == Axis::slots) layout.axis = Axis::keys;
  return layout;
}

/// Of a tensor that is taken as a whole: a cache of K and V that no attention reads is no half of itself.
Layout PassBuilder::whole_layout_of(Index index) {
  const Layout layout = layout_of(index);
  const DumpTensor& dumped = tensor(index);
  if (layout.rows * layout.channels() == dumped.count()) return layout;
  return matrix_of(dumped);
}

Tensor PassBuilder::describe(Index index, std::string_view role, int half) {
  return describe(index, role, layout_of(index, half));
}

Tensor PassBuilder::describe(Index index, std::string_view role, const Layout& layout) {
  const DumpTensor& dumped = tensor(index);
  Tensor out;
  out.role = role;
  out.name = dumped.name;
  out.format = run_format(dumped);
  out.tokens = layout.rows;
  out.channels = layout.channels();
  out.heads = layout.heads;
  out.axis = layout.axis;
  if (const Span* span = span_of(index)) {
    out.sequence = *dumped.at.sequence;
    if (layout.axis == Axis::part) out.first_token = span->first_token;
  }
  out.health = dumped.health;
  out.stated = dumped.stated;
  out.guessed = dumped.guessed;
  return out;
}

/// Where the first NaN or Inf is in the matrix, of a tensor that is stored in another order.
void PassBuilder::settle_first_bad(TensorId id, const Layout& layout) {
  Tensor* made = tensor_of(id);
  if (made == nullptr || made->stated || made->health.first_bad < 0 || layout.plain()) return;
  Health all = empty_health();
  for (const Health& row : run_.rows_by_elements(*made)) merge(all, row);
  made->health.first_bad = all.first_bad;
}

TensorId PassBuilder::emit_parameter(Index index) {
  const auto known = emitted_.find(index);
  if (known != emitted_.end()) return known->second;
  const TensorName& at = tensor(index).at;
  Op op;
  op.layer = at.layer;
  op.name = name_in({at.tower, at.layer, at.expert}, at.op);
  if (at.op != at.role) op.name += '_' + (at.port == Port::input ? "input" : at.role);
  constexpr auto kForms =
      std::to_array<std::string_view>({"", "_codes", "_dequantised", "_raw", "_scale", "_second_scale", "_zeros",
                                       "_amax", "_amax_history", "_masked", "_partial"});
  static_assert(kForms.size() == static_cast<std::size_t>(Form::partial) + 1);
  op.name += kForms[static_cast<std::size_t>(at.form)];
  op.kind = OpKind::parameter;
  run_.add(std::move(op));
  const Layout layout = whole_layout_of(index);
  const Tensor& added = run_.add(describe(index, at.role, layout));
  run_.sources_[added.id] = {index, layout, 0};
  settle_first_bad(added.id, layout);
  run_.by_dumped_[index] = added.id;
  placed_.insert(index);
  return emitted_[index] = added.id;
}

void PassBuilder::give_parameter(Inputs& inputs, std::string_view role, std::optional<Index> index) {
  if (index) inputs.push_back({std::string(role), emit_parameter(*index), {}});
}

TensorId PassBuilder::add_output(const Output& output, std::int64_t channels) {
  if (output.dumped.empty()) {
    Tensor made;
    made.role = output.role;
    made.known = false;
    made.axis = output.axis;
    made.tokens = frame_.rows;
    made.channels = channels;
    made.health = empty_health();
    return run_.add(std::move(made)).id;
  }
  const Index index = output.dumped.front();
  const Layout layout = whole_layout_of(index);
  const Tensor& added = run_.add(describe(index, output.role, layout));
  run_.sources_[added.id] = {index, layout, 0};
  settle_first_bad(added.id, layout);
  run_.by_dumped_[index] = added.id;
  placed_.insert(index);
  return emitted_[index] = last_ = added.id;
}

TensorId PassBuilder::emit(const std::string& name, OpKind kind, Inputs inputs, Output output,
                           OpAttributes attributes) {
  Op op;
  op.layer = scope_.layer;
  op.name = name_in(scope_, name);
  op.kind = kind;
  op.attributes = std::holds_alternative<NoAttributes>(attributes) ? attributes_of(kind) : std::move(attributes);
  std::erase_if(inputs, [](const Input& one) { return one.tensor == 0; });
  op.inputs = std::move(inputs);
  std::int64_t channels = 0;
  for (const Input& one : op.inputs) {
    const Tensor* in = run_.tensor(one.tensor);
    if (one.role == "x" && in != nullptr) channels = in->channels;
  }
  run_.add(std::move(op));
  const TensorId out = add_output(output, kind == OpKind::gemm ? 0 : channels);
  for (std::size_t i = 1; i < output.dumped.size(); ++i) copy(out, output.dumped[i], name);
  return out;
}

/// A tensor that holds the same numbers again, as far as anybody says.
TensorId PassBuilder::copy(TensorId expected, Index index, std::string_view name) {
  if (placed_.contains(index)) return emitted_[index];
  const Tensor* from = run_.tensor(expected);
  Inputs inputs{{"x", expected, {}}};
  if (from == nullptr || (from->known && !same_bytes(*from, index))) {
    // Not what it should be: perhaps another's, which its bytes tell.
    if (const auto other = same_bytes_before(index, expected)) inputs.front().tensor = *other;
  }
  const TensorName& at = tensor(index).at;
  const std::string side = at.port == Port::input ? "_input" : at.op == name ? "_again" : "_as_" + at.op;
  return emit(std::string(name) + side, OpKind::copy, std::move(inputs), {at.role, {index}});
}

/// Makes known what was not dumped under its own name.
void PassBuilder::bind(TensorId virtual_tensor, Index index) {
  Tensor& target = *tensor_of(virtual_tensor);
  const Tensor described = describe(index, target.role);
  const TensorId id = target.id;
  const OpId op = target.op;
  const StepId step = target.step;
  target = described;
  target.id = id;
  target.op = op;
  target.step = step;
  const Layout layout = layout_of(index);
  run_.sources_[id] = {index, layout, 0};
  settle_first_bad(id, layout);
  run_.by_dumped_[index] = id;
  placed_.insert(index);
  emitted_[index] = id;
}

/// Whether `part` is the branch that a residual sum adds: no op goes on with a branch alone, so that what looks like it
/// is the sum, gone wrong.
bool PassBuilder::is_branch(TensorId part, const Tensor& sum) const {
  const auto source = [this](TensorId id) {
    const Tensor* at = run_.tensor(id);
    const Op* op = at != nullptr ? run_.maker(*at) : nullptr;
    while (op != nullptr && op->kind == OpKind::copy && op->input("x") != 0) {
      id = op->input("x");
      op = run_.maker(*run_.tensor(id));
    }
    return id;
  };
  const Op* op = run_.maker(sum);
  return op != nullptr && op->kind == OpKind::residual_add && source(op->input("b")) == source(part);
}

/// An integer input of a module is a position, an id or a length, not the output of an op in the dump.
bool PassBuilder::is_given_integer(Index index) const {
  const DumpTensor& given = tensor(index);
  return given.at.port == Port::input && given.dtype->kind == DtypeKind::integer && !given.format;
}

TensorId PassBuilder::input_of(std::string_view op, TensorId expected, int index) {
  std::vector<Index> dumped = find(op, Port::input, Form::value, index);
  std::erase_if(dumped, [this](Index one) { return is_given_integer(one); });
  if (dumped.empty()) return expected;
  Tensor* want = tensor_of(expected);
  if (want != nullptr && !want->known && run_.maker(*want)->kind != OpKind::dumped) {
    const auto other = same_bytes_before(dumped.front(), 0);
    if (other && !is_branch(*other, *want)) {
      return emit(std::string(op) + "_input", OpKind::copy, {{"x", *other, {}}},
                  {tensor(dumped.front()).at.role, dumped});
    }
    const Tensor described = describe(dumped.front(), want->role);
    if (described.axis == want->axis && (want->channels == 0 || want->channels == described.channels)) {
      bind(expected, dumped.front());
      for (std::size_t i = 1; i < dumped.size(); ++i) copy(expected, dumped[i], op);
      return expected;
    }
  }
  TensorId first = 0;
  for (const Index one : dumped) {
    const TensorId made = copy(expected, one, op);
    if (first == 0) first = made;
  }
  return first;
}

/// The history of largest values beside a cast.
std::optional<PassBuilder::Index> PassBuilder::history_of(std::string_view op) {
  const auto own = shortcuts_.find(scope_);
  if (own == shortcuts_.end()) return std::nullopt;
  const auto found = own->second.forms.find({std::string(op), Form::amax_history});
  if (found != own->second.forms.end()) return found->second;
  // What attention casts without a name of its own are its scores.
  return op == "scores" ? history_of("attention") : std::nullopt;
}

PassBuilder::Operand PassBuilder::with_forms(std::string_view op, Port port, TensorId value, int index) {
  Operand out{value, 0, 0, 0};
  const std::vector<Index> raw = find(op, port, Form::raw, index);
  const TensorId source = raw.empty() ? value : copy(value, raw.front(), op);
  std::optional<Index> scale;
  if (const auto own = shortcuts_.find(scope_); own != shortcuts_.end()) {
    const auto [begin, end] = own->second.forms.equal_range({std::string(op), Form::scale});
    for (auto at = begin; at != end; ++at) {
      if (tensor(at->second).at.role != "weight") scale = at->second;
    }
  }
  if (!scale) scale = parameter(op, run_.tensor(value) != nullptr ? run_.tensor(value)->role : "x", Form::scale);
  const std::vector<Index> codes = find(op, port, Form::codes, index);
  if (!codes.empty()) {
    Inputs inputs{{"x", source, {}}};
    give_parameter(inputs, "scale", scale);
    give_parameter(inputs, "amax_history", history_of(op));
    if (const std::vector<Index> zero = find(op, port, Form::zero_point, index); !zero.empty()) {
      give_parameter(inputs, "zero_point", zero.front());
      out.zero_point = emitted_[zero.front()];
    }
    out.scale = scale ? emitted_[*scale] : 0;
    out.codes = emit(std::string(op) + "_quantise", OpKind::quantise, std::move(inputs), {"codes", codes});
  }
  const std::vector<Index> back = find(op, port, Form::dequantised, index);
  if (!back.empty()) {
    Inputs inputs{{"codes", out.codes != 0 ? out.codes : source, {}}};
    give_parameter(inputs, "scale", scale);
    out = {emit(std::string(op) + "_dequantise", OpKind::dequantise, std::move(inputs), {"out", back}), 0, 0, 0};
  } else if (!raw.empty()) {
    out.x = source;
  }
  return out;
}

std::int64_t PassBuilder::rows_compared(const Tensor& one) {
  return std::clamp<std::int64_t>(kCompared / one.channels, 1, one.tokens);
}

std::optional<std::vector<float>> PassBuilder::first_rows(const Described& one, std::int64_t rows) {
  Fact<TensorData> read = absent("");
  if (one.tensor.id != 0) {
    read = run_.read(one.tensor, 0, rows);
  } else {
    // By its index: files of one folder may give two tensors one name.
    run_.sources_[0] = {one.index, layout_of(one.index), 0};
    read = run_.read_elements(one.tensor, 0, rows);
  }
  if (!read) return std::nullopt;
  std::vector<float> values;
  read->decode_into(values);
  return values;
}

/// Whether two numbers are one, to what the narrower of two formats keeps.
struct Alike {
  Alike(Format a, Format b)
      : slack(a == b ? 0.0F : std::ldexp(1.0F, -std::min(info(a).mantissa_bits, info(b).mantissa_bits))) {}
  bool operator()(float p, float q) const {
    if (p == q || (std::isnan(p) && std::isnan(q))) return true;
    return std::isfinite(p) && std::isfinite(q) && std::abs(p - q) <= slack * std::abs(p);
  }
  float slack;
};

bool PassBuilder::same_bytes(const Described& one, const Described& other) {
  const Tensor& a = one.tensor;
  const Tensor& b = other.tensor;
  if (!a.known || !b.known || a.tokens != b.tokens || a.channels != b.channels) return false;
  const Health& x = a.health;
  const Health& y = b.health;
  if (a.format == b.format && (x.absmax != y.absmax || x.min != y.min || x.max != y.max || x.nan != y.nan))
    return false;
  if (a.stated || b.stated) return a.stated && b.stated && x.sum == y.sum && x.sum_sq == y.sum_sq;
  if (a.tokens == 0 || a.channels == 0) return true;
  const std::int64_t rows = rows_compared(a);
  const auto left = first_rows(one, rows);
  const auto right = first_rows(other, rows);
  return left && right &&
         std::equal(left->begin(), left->end(), right->begin(), right->end(), Alike(a.format, b.format));
}

/// Whether columns of `whole` from `first` on are the numbers of a tensor.
bool PassBuilder::same_columns(const Tensor& whole, std::int64_t first, Index index) {
  const Tensor part = describe(index, whole.role);
  if (!part.known || part.stated) return true;  // nothing says that they are not
  if (part.tokens != whole.tokens || part.channels == 0) return false;
  const std::int64_t rows = rows_compared(part);
  const auto wide = first_rows({whole, 0}, rows);
  const auto narrow = first_rows({part, index}, rows);
  if (!wide || !narrow || first + part.channels > whole.channels) return false;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = wide->begin() + static_cast<std::ptrdiff_t>(row * whole.channels + first);
    const auto own = narrow->begin() + static_cast<std::ptrdiff_t>(row * part.channels);
    if (!std::equal(own, own + static_cast<std::ptrdiff_t>(part.channels), begin, Alike(part.format, whole.format)))
      return false;
  }
  return true;
}

/// A tensor of this pass that holds the same numbers, the latest first.
std::optional<TensorId> PassBuilder::same_bytes_before(Index index, TensorId except) {
  const Tensor described = describe(index, tensor(index).at.role);
  const Described wanted{described, index};
  const std::vector<Tensor>& all = run_.contents_.rbegin()->second.tensors;
  for (const std::size_t place : with_numbers_of(wanted)) {
    const Tensor& at = all[place];
    if (at.id == except || !at.known || at.axis == Axis::none || at.count() < 8) continue;
    // Codes are no copy of the values that they were cast from, however close they are.
    if (info(at.format).bits <= 8 && info(described.format).bits > 8) continue;
    // Zeros, and what is constant, tell nothing.
    if (at.health.min == at.health.max || at.health.count == 0) continue;
    if (same_bytes({at, 0}, wanted)) return at.id;
  }
  return std::nullopt;
}

void PassBuilder::add_parameters(const std::vector<std::size_t>& tensors) {
  frame_ = {};
  for (const Index index : tensors) {
    const TensorName& at = tensor(index).at;
    emit_parameter(index);
    TensorName key = at;
    // Of an input, one role for all ops, whatever is known of the input by.
    const bool of_input = at.port == Port::input && (at.form == Form::scale || at.form == Form::zero_point);
    const std::string_view role = of_input ? std::string_view("x") : at.role;
    shared_.emplace(parameter_key(key, at.known ? at.op : at.module, role, at.form), index);
    // A checkpoint in a folder of its own is no run's.
    key.run.clear();
    shared_.emplace(parameter_key(key, at.known ? at.op : at.module, role, at.form), index);
  }
}

/// Where the rows of a pass stand is often written by one rank alone: what the others lack of it, of the same step.
std::vector<PassBuilder::Index> PassBuilder::shared_by_ranks(const std::vector<std::size_t>& tensors) const {
  std::vector<Index> found;
  const TensorName& own = tensor(tensors.front()).at;
  if (!own.rank) return found;
  const auto has = [&](const std::string& role) {
    return std::any_of(tensors.begin(), tensors.end(), [&](Index index) { return tensor(index).at.role == role; });
  };
  std::optional<std::int64_t> from;
  const auto of_step = written_once_.find(step_key(own));
  if (of_step == written_once_.end()) return found;
  for (const Index index : of_step->second) {
    const TensorName& at = tensor(index).at;
    const bool same_step = at.rank != own.rank && at.run == own.run && at.step == own.step && at.request == own.request;
    if (!same_step || !emitted_.contains(index)) continue;
    if ((from && from != at.rank) || has(at.role)) continue;
    from = at.rank;
    found.push_back(index);
  }
  return found;
}

/// Integers, or reals that are whole.
std::optional<std::vector<std::int64_t>> PassBuilder::integers_of(const DumpTensor& one) const {
  if (one.dtype->kind == DtypeKind::real) {
    const auto values = run_.elements_.values(one, 0, one.count());
    const bool whole =
        values && std::all_of(values->begin(), values->end(), [](float x) { return x == std::floor(x); });
    if (!whole) return std::nullopt;
    static constexpr float kExact = 0x1p53F;
    std::vector<std::int64_t> integers(values->size());
    std::transform(values->begin(), values->end(), integers.begin(),
                   [](float x) { return static_cast<std::int64_t>(std::clamp(x, -kExact, kExact)); });
    return integers;
  }
  auto values = run_.elements_.integers(one);
  return values ? std::optional(std::move(*values)) : std::nullopt;
}

void PassBuilder::add_pass(const std::vector<std::size_t>& tensors) {
  members_.clear();
  roles_.clear();
  numbers_ = {};
  std::vector<const DumpTensor*> pass;
  for (const Index index : tensors) {
    const TensorName& at = tensor(index).at;
    const Scope scope{at.tower, at.layer, at.expert};
    members_[scope].insert({{at.op, at.port, at.index, at.form}, index});
    roles_[scope].insert({{at.role, at.form}, index});
    pass.push_back(&tensor(index));
  }
  for (const Index index : shared_by_ranks(tensors)) {
    const TensorName& at = tensor(index).at;
    const Scope scope{at.tower, at.layer, at.expert};
    members_[scope].insert({{at.op, at.port, at.index, at.form}, index});
    roles_[scope].insert({{at.role, at.form}, index});
    pass.push_back(&tensor(index));
  }
  index_members();
  frame_ = frame_of(
      pass, [this](const DumpTensor& one) { return integers_of(one); },
      [this](const DumpTensor& one, std::int64_t count) -> std::optional<std::vector<float>> {
        auto values = run_.elements_.values(one, 0, count);
        return values ? std::optional(std::move(*values)) : std::nullopt;
      });
  run_.not_understood_.insert(run_.not_understood_.end(), frame_.notes.begin(), frame_.notes.end());
  settle_pools();
  const TensorName& at = tensor(tensors.front()).at;
  Step step;
  step.id = static_cast<StepId>(run_.steps_.size()) + 1;
  step.rank = at.rank.value_or(0);
  step.run = at.run;
  step.pass = at.pass();
  continue_requests(step.rank, tensors.front());
  step.rows = frame_.rows;
  step.batch = frame_.batch;
  step.spans = frame_.spans;
  step.placed = frame_.placed;
  const bool prefill =
      std::any_of(step.spans.begin(), step.spans.end(), [](const Span& span) { return span.rows > 1; });
  step.kind = prefill ? StepKind::prefill : StepKind::decode;
  run_.begin(step.id);
  run_.steps_.push_back(std::move(step));
  last_ = cos_ = sin_ = positions_ = 0;
  other_tables_.clear();
  std::set<std::string> towers;
  for (const auto& [scope, members] : members_) towers.insert(scope.tower);
  for (const std::string& tower : towers) {
    if (!tower.empty() && tower != "mtp") build_tower(tower);
  }
  build_tower("");
  if (towers.contains("mtp")) build_tower("mtp");
}

}  // namespace nanscope
