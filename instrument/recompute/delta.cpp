/// The gated delta rule with the short convolutions before it, in double precision, from the first token of a sequence
/// on: where a step continues one, the rows of earlier steps are gone through first.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <span>

#include "core/numbers/codec.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"
#include "instrument/recompute/variants.h"

namespace nanscope {
namespace {

/// Heads of keys and of values, and where their parts lie in fused inputs.
struct DeltaShape {
  std::int64_t key_heads = 0;
  std::int64_t heads = 0;
  std::int64_t keys = 0;    ///< channels of a key head
  std::int64_t values = 0;  ///< channels of a value head
  std::int64_t taps = 0;
  bool by_heads = false;

  std::int64_t share() const { return heads / key_heads; }
  std::int64_t all_keys() const { return key_heads * keys; }
  std::int64_t channels() const { return 2 * all_keys() + heads * values; }
  /// Of queries, keys and values one behind the other: the column that holds it.
  std::int64_t column(std::int64_t channel) const {
    if (!by_heads) return channel;
    const std::int64_t head = 2 * (keys + share() * values);
    if (channel < 2 * all_keys()) {
      const std::int64_t of_keys = channel % all_keys();
      return of_keys / keys * head + (channel < all_keys() ? 0 : keys) + of_keys % keys;
    }
    const std::int64_t value = channel - 2 * all_keys();
    const std::int64_t group = share() * values;
    return value / group * head + 2 * keys + value % group;
  }
};

struct DeltaWeights {
  std::vector<double> conv;  ///< channels x taps
  std::vector<double> a_log, dt_bias;
};

/// What a sequence has come to, with how far rounding can have moved it: of each channel of values the norm of the
/// error over the channels of keys. A step turns a state by (I - beta k k') and shrinks it by decay, which make no norm
/// larger.
struct DeltaState {
  std::int64_t position = 0;
  std::vector<double> state;  ///< heads x values x keys
  std::vector<double> error;  ///< heads x values
  double faded = 0;           ///< the sum of the logarithms of decays in a chunk, of the head with the largest
  std::deque<std::vector<double>> before;  ///< the last rows that convolutions see
};

/// Of torch_chunk_gated_delta_rule (transformers 5.24) and FLA.
constexpr std::int64_t kChunk = 64;

struct DeltaRow {
  std::vector<double> value, error;
};

/// One step's rows of a sequence.
struct DeltaPart {
  const Op* op = nullptr;
  Span span;
};

double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

class DeltaRows {
 public:
  DeltaRows(Values& values, const Op& op, const Tensor& out, const OpForm& form)
      : values_(values), op_(op), out_(out), form_(form) {}

  /// False, with the reason, where something is not known.
  bool open(std::string& why);
  bool predict(std::int64_t first, std::int64_t count, Prediction& into, std::string& why);

 private:
  bool read_weights(std::string& why);
  bool find_parts(const Span& span, std::string& why);
  bool inputs(const DeltaPart& part, std::int64_t position, DeltaRow& qkv, DeltaRow& b, DeltaRow& a, std::string& why);
  bool row(const DeltaPart& part, std::string_view role, std::int64_t position, DeltaRow& into, std::string& why);
  /// A head's part of a token, with how far rounding may have moved it.
  struct HeadStep {
    std::vector<double> q, k;
    double dq = 0;
    double dk = 0;
    double decay = 1;
    double d_decay = 0;
    double beta = 0;
    double d_beta = 0;
  };
  DeltaRow convolved(const DeltaState& state, const DeltaRow& qkv) const;
  HeadStep head_step(std::int64_t h, const DeltaRow& mixed, const DeltaRow& b, const DeltaRow& a) const;
  void advance(DeltaState& state, const DeltaRow& qkv, const DeltaRow& b, const DeltaRow& a, float* value,
               float* bound);
  std::shared_ptr<DeltaState> state_before(const Span& span, std::int64_t position);

  Values& values_;
  const Op& op_;
  const Tensor& out_;
  const OpForm& form_;
  DeltaShape shape_;
  DeltaWeights weights_;
  std::vector<DeltaPart> parts_;
  double u_ = 0;       ///< of what is between the projections and the rule
  double stored_ = 0;  ///< and of what is stored
  double least_ = 0;
};

bool DeltaRows::read_weights(std::string& why) {
  const auto read = [&](std::string_view role, std::int64_t count, std::vector<double>& into) {
    const Tensor* weight = values_.run().input(op_, role);
    const auto numbers = weight != nullptr ? values_.run().values(*weight) : nullptr;
    if (!numbers || static_cast<std::int64_t>(numbers->size()) != count) {
      why = fmt::format("its {} was not dumped", role);
      return false;
    }
    for (const float one : *numbers) {
      into.push_back(
          double{form_.weight_as ? decode(*form_.weight_as, encode(*form_.weight_as, one, Overflow::saturate)) : one});
    }
    return true;
  };
  const Tensor* conv = values_.run().input(op_, "conv");
  shape_.taps = conv != nullptr && shape_.channels() > 0 ? conv->count() / shape_.channels() : 0;
  return read("conv", shape_.channels() * std::max<std::int64_t>(1, shape_.taps), weights_.conv) &&
         read("a_log", shape_.heads, weights_.a_log) && read("dt_bias", shape_.heads, weights_.dt_bias);
}

bool DeltaRows::open(std::string& why) {
  const auto* stated = op_.get<DeltaAttributes>();
  const bool known = stated != nullptr && stated->key_heads && stated->value_heads && stated->key_width &&
                     stated->value_width && *stated->key_heads > 0 && op_.input("qkv") != 0;
  if (!known || *stated->value_heads % *stated->key_heads != 0) {
    why = "the heads of its delta rule are not known";
    return false;
  }
  shape_ = {*stated->key_heads,
            *stated->value_heads,
            *stated->key_width,
            *stated->value_width,
            0,
            stated->by_heads.value_or(false)};
  const Tensor* qkv = values_.run().input(op_, "qkv");
  const std::int64_t fused = shape_.channels() + (shape_.by_heads ? shape_.heads * shape_.values : 0);
  if (qkv == nullptr || qkv->channels != fused || (out_.known && out_.channels != shape_.heads * shape_.values)) {
    why = "its inputs are not as wide as the model's heads";
    return false;
  }
  u_ = std::max(kF32, roundoff(values_.activation_format(op_.step)));
  stored_ = 1.01 * stored_roundoff(values_, out_);
  least_ = least_error(stored_format(values_, out_));
  return read_weights(why);
}

/// The steps whose rows lead up to a span, in the order of its tokens.
bool DeltaRows::find_parts(const Span& span, std::string& why) {
  parts_.clear();
  RunView& run = values_.run();
  const Step* own = run.step(op_.step);
  for (const Step& step : run.steps()) {
    if (own == nullptr || step.id > op_.step || step.rank != own->rank || step.run != own->run) continue;
    for (const Span& other : step.spans) {
      const Op* one = other.request == span.request ? run.find_op(step.id, op_.layer, op_.name) : nullptr;
      if (one == nullptr) continue;
      if (other.first_token == 0) parts_.clear();
      parts_.push_back({one, other});
    }
  }
  std::int64_t next = 0;
  for (const DeltaPart& part : parts_) {
    if (part.span.first_token != next) break;
    next = part.span.context;
  }
  if (!parts_.empty() && next == span.context) return true;
  why = "it continues the state of earlier steps, and not all of them were dumped";
  return false;
}

bool DeltaRows::row(const DeltaPart& part, std::string_view role, std::int64_t position, DeltaRow& into,
                    std::string& why) {
  const Tensor* tensor = values_.run().input(*part.op, role);
  const auto at = tensor != nullptr ? values_.run().row_at(*tensor, part.span, position) : std::nullopt;
  const auto block = at ? values_.rows(*tensor, *at, 1) : std::nullopt;
  if (!block) {
    why = fmt::format("what it reads as {} was not dumped", role);
    return false;
  }
  into.value.assign(block->value.begin(), block->value.end());
  into.error.assign(into.value.size(), 0.0);
  for (std::size_t i = 0; i < block->error.size(); ++i) into.error[i] = double{block->error[i]};
  return true;
}

bool DeltaRows::inputs(const DeltaPart& part, std::int64_t position, DeltaRow& qkv, DeltaRow& b, DeltaRow& a,
                       std::string& why) {
  DeltaRow fused;
  if (!row(part, "qkv", position, fused, why)) return false;
  qkv.value.clear();
  qkv.error.clear();
  for (std::int64_t c = 0; c < shape_.channels(); ++c) {
    qkv.value.push_back(fused.value[static_cast<std::size_t>(shape_.column(c))]);
    qkv.error.push_back(fused.error[static_cast<std::size_t>(shape_.column(c))]);
  }
  const auto heads = static_cast<std::size_t>(shape_.heads);
  if (!shape_.by_heads) {
    return row(part, "b", position, b, why) && row(part, "a", position, a, why) && b.value.size() == heads &&
           a.value.size() == heads;
  }
  DeltaRow gates;
  if (!row(part, "gates", position, gates, why) || gates.value.size() != 2 * heads) return false;
  for (auto [into, first] : {std::pair{&b, std::int64_t{0}}, std::pair{&a, shape_.share()}}) {
    into->value.clear();
    into->error.clear();
    for (std::int64_t h = 0; h < shape_.heads; ++h) {
      const auto at = static_cast<std::size_t>(h / shape_.share() * 2 * shape_.share() + first + h % shape_.share());
      into->value.push_back(gates.value[at]);
      into->error.push_back(gates.error[at]);
    }
  }
  return true;
}

/// The convolution and its SiLU are each rounded to the activations' format; SiLU is at most 1.1 steep.
DeltaRow DeltaRows::convolved(const DeltaState& state, const DeltaRow& qkv) const {
  DeltaRow made;
  for (std::int64_t c = 0; c < shape_.channels(); ++c) {
    const auto at = static_cast<std::size_t>(c);
    double sum = 0;
    double sizes = 0;
    double off = 0;
    for (std::int64_t tap = 0; tap < shape_.taps; ++tap) {
      const double weight = weights_.conv[static_cast<std::size_t>(c * shape_.taps + tap)];
      const std::int64_t back = shape_.taps - 1 - tap;
      const auto kept = static_cast<std::int64_t>(state.before.size());
      if (back > kept) continue;
      const double x = back == 0 ? qkv.value[at] : state.before[static_cast<std::size_t>(kept - back)][at];
      sum += weight * x;
      sizes += std::abs(weight * x);
      off += back == 0 ? std::abs(weight) * qkv.error[at] : 0.0;
    }
    const double active = sum / (1 + std::exp(-sum));
    const double of_sum = u_ * std::abs(sum) + static_cast<double>(shape_.taps) * kF32 * sizes + off;
    made.value.push_back(active);
    made.error.push_back(1.1 * of_sum + (u_ + 4 * kF32) * std::abs(active) + least_error(Format::f32));
  }
  return made;
}

double norm_of(std::span<const double> all) {
  double squares = 0;
  for (const double one : all) squares += one * one;
  return std::sqrt(squares);
}

/// Of one head at a token: unit queries and keys with the norm of their error, and how the state fades and takes in.
DeltaRows::HeadStep DeltaRows::head_step(std::int64_t h, const DeltaRow& mixed, const DeltaRow& b,
                                         const DeltaRow& a) const {
  const auto head = static_cast<std::size_t>(h);
  const auto keys = static_cast<std::size_t>(shape_.keys);
  const auto shrink = [&](std::span<const double> x) {
    return form_.variant == kNoLength ? 1.0 : 1 / std::sqrt(std::pow(norm_of(x), 2) + 1e-6);
  };
  const auto unit = [&](std::int64_t first, double factor, std::vector<double>& into) {
    const auto at = static_cast<std::size_t>(first + h / shape_.share() * shape_.keys);
    const auto x = std::span(mixed.value).subspan(at, keys);
    const double scale = shrink(x) * factor;
    for (const double one : x) into.push_back(one * scale);
    return norm_of(std::span(mixed.error).subspan(at, keys)) * scale + 8 * kF32 * norm_of(into);
  };
  HeadStep made;
  made.dq = unit(0, 1 / std::sqrt(static_cast<double>(shape_.keys)), made.q);
  made.dk = unit(shape_.all_keys(), 1, made.k);
  const double rate = std::exp(weights_.a_log[head]);
  const double g = rate * softplus(a.value[head] + weights_.dt_bias[head]);
  made.decay = form_.variant == kNoDecay ? 1 : std::exp(-g);
  made.d_decay = made.decay * (8 * kF32 * (g + 1) + rate * a.error[head]);
  made.beta = 1 / (1 + std::exp(-b.value[head]));
  made.d_beta = (u_ + 4 * kF32) * made.beta + 0.25 * b.error[head];
  return made;
}

/// One token. Rounding of sums in f32 is taken of products of norms (bounds.h); a chunk's decays are differences of
/// sums of logarithms, each off by as much of the largest.
void DeltaRows::advance(DeltaState& state, const DeltaRow& qkv, const DeltaRow& b, const DeltaRow& a, float* value,
                        float* bound) {
  const DeltaRow mixed = convolved(state, qkv);
  const auto keys = static_cast<std::size_t>(shape_.keys);
  const auto width = static_cast<std::size_t>(shape_.values);
  if (state.position % kChunk == 0) state.faded = 0;
  std::vector<HeadStep> steps;
  double most = 0;
  for (std::int64_t h = 0; h < shape_.heads; ++h) {
    const auto head = static_cast<std::size_t>(h);
    steps.push_back(head_step(h, mixed, b, a));
    most = std::max(most, std::exp(weights_.a_log[head]) * softplus(a.value[head] + weights_.dt_bias[head]));
  }
  state.faded += most;
  const double sums = sum_error(shape_.keys + kChunk, kF32) + 4 * kF32 * state.faded;
  for (std::size_t at = 0; at < steps.size() * width; ++at) {
    const HeadStep& step = steps[at / width];
    const std::size_t of_v = static_cast<std::size_t>(2 * shape_.all_keys()) + at;
    const double k_norm = norm_of(step.k);
    const double q_norm = norm_of(step.q);
    double* s = state.state.data() + at * keys;
    double& e = state.error[at];
    const double size = norm_of(std::span(s, keys));
    double held = 0;
    for (std::size_t i = 0; i < keys; ++i) {
      s[i] *= step.decay;
      held += s[i] * step.k[i];
    }
    const double missing = mixed.value[of_v] - held;
    const double delta = step.beta * missing;
    const double faded = step.decay * size;
    e = step.decay * e + step.d_decay * size + step.dk * (std::abs(delta) + step.beta * faded) +
        k_norm * step.beta * mixed.error[of_v] + k_norm * step.d_beta * std::abs(missing) +
        sum_error(shape_.keys, kF32) * (faded + k_norm * std::abs(delta));
    double out = 0;
    for (std::size_t i = 0; i < keys; ++i) {
      s[i] += step.k[i] * delta;
      out += s[i] * step.q[i];
    }
    if (value == nullptr) continue;
    const double after = norm_of(std::span(s, keys));
    value[at] = static_cast<float>(out);
    bound[at] = static_cast<float>(e * q_norm + step.dq * after + sums * q_norm * (after + k_norm * std::abs(delta)) +
                                   stored_ * std::abs(out) + least_);
  }
  state.before.push_back(qkv.value);
  while (static_cast<std::int64_t>(state.before.size()) >= shape_.taps && !state.before.empty())
    state.before.pop_front();
  ++state.position;
}

/// The last one that was come to, where it does not lie behind the position; else that of no token.
std::shared_ptr<DeltaState> DeltaRows::state_before(const Span& span, std::int64_t position) {
  const std::string key =
      fmt::format("delta|{}|{}|{}|{}|{}|{}", form_.weight_as ? name(*form_.weight_as) : "", op_.name,
                  op_.layer.value_or(-1), span.request, form_.text, values_.run().step(op_.step)->rank);
  std::shared_ptr<void>& kept = values_.kept(key);
  auto state = std::static_pointer_cast<DeltaState>(kept);
  if (state == nullptr || state->position > position) {
    state = std::make_shared<DeltaState>();
    state->state.assign(static_cast<std::size_t>(shape_.heads * shape_.values * shape_.keys), 0.0);
    state->error.assign(static_cast<std::size_t>(shape_.heads * shape_.values), 0.0);
    kept = state;
  }
  return state;
}

bool DeltaRows::predict(std::int64_t first, std::int64_t count, Prediction& into, std::string& why) {
  const std::int64_t columns = shape_.heads * shape_.values;
  into.resize(count, columns, -1);
  const std::int64_t last = first + count;
  for (std::int64_t at = first; at < last; ++at) {
    const RowToken token = values_.run().token_of(out_, at);
    if (token.span == nullptr) continue;
    const Span span = *token.span;
    if (!find_parts(span, why)) return false;
    const auto state = state_before(span, token.position);
    while (state->position <= token.position) {
      const std::int64_t position = state->position;
      const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const DeltaPart& one) {
        return one.span.first_token <= position && position < one.span.context;
      });
      DeltaRow qkv;
      DeltaRow b;
      DeltaRow a;
      if (part == parts_.end() || !inputs(*part, position, qkv, b, a, why)) return false;
      if (form_.variant == kFreshState && position == part->span.first_token) {
        std::fill(state->state.begin(), state->state.end(), 0.0);
        std::fill(state->error.begin(), state->error.end(), 0.0);
      }
      const bool wanted = position == token.position;
      const auto offset = static_cast<std::size_t>((at - first) * columns);
      advance(*state, qkv, b, a, wanted ? into.value.data() + offset : nullptr,
              wanted ? into.bound.data() + offset : nullptr);
    }
  }
  return true;
}

}  // namespace

std::vector<OpForm> forms_delta_rule(Values& values, const Op& op, const Tensor&) {
  std::vector<OpForm> forms{{.text = "the gated delta rule"}};
  if (const auto served = values.served_format(op, "conv")) {
    forms.push_back(forms.front());
    forms.back().weight_as = *served;
    forms.back().text += fmt::format(", its weights rounded to {} when they were loaded", name(*served));
  }
  return forms;
}

std::vector<OpForm> faults_delta_rule(Values&, const Op&, const Tensor&) {
  return {{.text = "the state of the tokens before left out", .variant = kFreshState, .fault = true}};
}

std::int64_t cost_delta_rule(Values&, const Op& op, const Tensor&) {
  const auto* stated = op.get<DeltaAttributes>();
  return stated != nullptr ? 8 * std::max<std::int64_t>(1, stated->key_width.value_or(128)) : 1;
}

bool predict_delta_rule(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                        std::int64_t count, Prediction& into, std::string& why) {
  DeltaRows rows(values, op, out, form);
  return rows.open(why) && rows.predict(first, count, into, why);
}

}  // namespace nanscope
