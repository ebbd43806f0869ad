/// Rotary position embedding: with the dumped cosines and sines, else with the base that the numbers show.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "instrument/recompute/attention_rows.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {
namespace {

constexpr std::array kBases = {1e4, 5e5, 1e6, 1e5, 5e6, 1e7, 1.5e5, 8e6, 1e3};  // defaults in transformers 5.24.0

/// OpForm::rounded of a rotation: positions of sequences behind padding count their tokens, or their rows in the frame.
/// Both are in use, and attention is the same: it knows differences alone.
enum Counting : int { kOfTokens = 0, kOfRows = 1 };

/// Rows of padding before a span in its sequence of the batch.
std::int64_t padding_before(const Step& step, const Span& span) {
  const std::int64_t length = std::max<std::int64_t>(1, step.rows / std::max<std::int64_t>(1, step.batch));
  return step.batch > 1 || step.spans.size() == 1 ? span.row % length : 0;
}

/// Channels of a head that are rotated: all, a half, a quarter. Kept in OpForm::scale_power as a divisor.
constexpr std::array kParts = {1, 2, 4};

struct Angles {
  std::shared_ptr<const std::vector<float>> cos, sin;
  std::int64_t width = 0;  ///< columns of the tables
  std::int64_t rows = 0;
};

/// The sines next to other cosines that the op may have used; null where these are not among its inputs.
const Tensor* sines_of(RunView& run, const Op& op, TensorId cosines) {
  for (std::size_t i = 0; i + 1 < op.inputs.size(); ++i) {
    if (op.inputs[i].role == "other_cos" && op.inputs[i].tensor == cosines) return run.tensor(op.inputs[i + 1].tensor);
  }
  return nullptr;
}

/// `other`: cosines that the op may have used as well, OpForm::other; 0: its first.
std::optional<Angles> tables(Values& values, const Op& op, TensorId other = 0) {
  RunView& run = values.run();
  const Tensor* cos = other != 0 ? run.tensor(other) : run.input(op, "cos");
  const Tensor* sin = other != 0 ? sines_of(run, op, other) : run.input(op, "sin");
  if (cos == nullptr || sin == nullptr || cos->count() != sin->count() || cos->channels == 0) return std::nullopt;
  Angles out{run.values(*cos), run.values(*sin), cos->channels, cos->tokens};
  return out.cos && out.sin ? std::optional(out) : std::nullopt;
}

/// The row of the tables for a row of the output.
std::int64_t table_row(const Angles& angles, const Step& step, std::int64_t row, std::int64_t position) {
  if (angles.rows == step.rows) return row;
  const std::int64_t frame = step.batch > 0 ? step.rows / step.batch : step.rows;
  if (angles.rows == frame) return row % std::max<std::int64_t>(1, frame);
  return position >= 0 && position < angles.rows ? position : -1;
}

/// Whether a row of the tables has each angle a second time in its second half, not next to the first. The first row
/// is often that of position 0, which tells no angles apart.
bool holds_again_behind(const Angles& angles) {
  if (angles.rows < 1 || angles.width < 4 || angles.width % 2 != 0) return false;
  const auto row = static_cast<std::size_t>(angles.rows > 1 ? angles.width : 0);
  const auto half = static_cast<std::size_t>(angles.width) / 2;
  for (std::size_t c = 0; c < half; ++c) {
    if ((*angles.cos)[row + c] != (*angles.cos)[row + half + c]) return false;
  }
  return true;
}

/// How far pair `pair` of a row is turned, over all heads, in radians; nothing when it holds zeros.
std::optional<double> turned_by(const std::vector<float>& x, const std::vector<float>& out, std::int64_t width,
                                std::int64_t rotated, int pairing, std::int64_t pair) {
  double along = 0;
  double across = 0;
  for (std::int64_t head = 0; (head + 1) * width <= static_cast<std::int64_t>(x.size()); ++head) {
    const std::int64_t first = head * width + (pairing == kHalves ? pair : 2 * pair);
    const auto a = static_cast<std::size_t>(first);
    const auto b = static_cast<std::size_t>(first + (pairing == kHalves ? rotated / 2 : 1));
    along += double{x[a]} * double{out[a]} + double{x[b]} * double{out[b]};
    across += double{x[a]} * double{out[b]} - double{x[b]} * double{out[a]};
  }
  if (!std::isfinite(along) || !std::isfinite(across) || (along == 0 && across == 0)) return std::nullopt;
  return std::atan2(across, along);
}

/// The base that two rows of consecutive positions, or the row of position 1, are turned by; nothing when they do not
/// agree on one. theta_i = base^(-2 i / d): Su et al., "RoFormer", arXiv:2104.09864.
std::optional<double> base_shown(Values& values, const Op& op, const Tensor& out, std::int64_t heads, int pairing,
                                 int part) {
  RunView& run = values.run();
  const Tensor* x = run.input(op, "x");
  if (x == nullptr || !x->known || !out.known || x->channels != out.channels || x->tokens != out.tokens)
    return std::nullopt;
  const std::int64_t width = heads > 0 ? out.channels / heads : out.heads > 1 ? out.width() : x->width();
  const std::int64_t rotated = width / part - (width / part) % 2;
  if (rotated < 4 || width <= 0) return std::nullopt;
  for (std::int64_t row = 0; row < out.tokens; ++row) {
    const RowToken here = run.token_of(out, row);
    const RowToken before = row > 0 ? run.token_of(out, row - 1) : RowToken{};
    const bool follows = before.span != nullptr && before.span == here.span && here.position == before.position + 1;
    if (here.span == nullptr || (here.position != 1 && !follows)) continue;
    const auto angle = [&](std::int64_t at, std::int64_t pair) -> std::optional<double> {
      const auto a = run.row_values(*x, at);
      const auto b = run.row_values(out, at);
      return a && b && a->size() == b->size() ? turned_by(*a, *b, width, rotated, pairing, pair) : std::nullopt;
    };
    std::vector<double> bases;
    for (std::int64_t pair = 1; pair < rotated / 2; ++pair) {
      const auto now = angle(row, pair);
      const auto then = here.position == 1 ? std::optional(0.0) : angle(row - 1, pair);
      if (!now || !then) continue;
      const double theta = std::remainder(*now - *then, 2 * std::numbers::pi);
      if (theta < 0.05 || theta > 1) continue;
      bases.push_back(std::pow(theta, -static_cast<double>(rotated) / static_cast<double>(2 * pair)));
    }
    if (bases.empty()) continue;
    std::sort(bases.begin(), bases.end());
    const double middle = bases[bases.size() / 2];
    return middle > 10 && middle < 1e12 ? std::optional(middle) : std::nullopt;
  }
  return std::nullopt;
}

/// Heads that what is rotated may have where neither a shape nor a table states them: those that queries and keys can
/// share, widths of 128 and 64 first. Rotated by the width of all heads at once, only the first of them come out.
std::vector<std::int64_t> unstated_heads(Values& values, const Op& op, const Tensor& out) {
  const auto channels_of = [&](std::string_view role) {
    for (const Op& other : values.run().content(op.step).ops) {
      const Tensor* made = other.kind == OpKind::rope && other.layer == op.layer ? values.run().result(other) : nullptr;
      if (made != nullptr && made->role == role) return made->channels;
    }
    return std::int64_t{0};
  };
  const std::int64_t q = channels_of("q_rot");
  const std::int64_t k = channels_of("k_rot");
  if (q <= 0 || k <= 0 || (out.channels != q && out.channels != k)) return {0};
  std::vector<std::int64_t> heads = heads_that_copy(values, op, q, k);
  std::stable_partition(heads.begin(), heads.end(), [q](std::int64_t one) { return q / one == 64; });
  std::stable_partition(heads.begin(), heads.end(), [q](std::int64_t one) { return q / one == 128; });
  for (std::int64_t& one : heads) one = out.channels / (q / one);
  if (heads.empty()) heads.push_back(0);
  return heads;
}

/// Cosine and sine of each pair of a head at a position, which all heads share.
using Turns = std::vector<std::pair<double, double>>;
Turns turns_at(std::int64_t position, double base, std::int64_t rotated) {
  Turns turns;
  for (std::int64_t pair = 0; pair < rotated / 2; ++pair) {
    const double angle =
        static_cast<double>(position) * std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(rotated));
    turns.emplace_back(std::cos(angle), std::sin(angle));
  }
  return turns;
}

Turns turns_of(std::int64_t position, const RopeAngles& angles) {
  Turns turns;
  for (const float frequency : angles.frequencies) {
    const double angle = static_cast<double>(position) * double{frequency};
    turns.emplace_back(std::cos(angle) * double{angles.amplitude}, std::sin(angle) * double{angles.amplitude});
  }
  return turns;
}

/// As configurations have it, in one or two digits.
double rounded_base(double base, int digits) {
  const double unit = std::pow(10.0, std::floor(std::log10(base)) - digits + 1);
  return std::round(base / unit) * unit;
}

/// Rotations of so many heads by every base that is usual, and by the one that the numbers show.
void add_bases(Values& values, const Op& op, const Tensor& out, std::int64_t heads, std::vector<OpForm>& forms) {
  for (const int pairing : {kHalves, kNeighbours}) {
    for (const int part : kParts) {
      std::vector<double> bases(kBases.begin(), kBases.end());
      const auto* stated = op.get<RopeAttributes>();
      if (stated != nullptr && stated->base && std::find(bases.begin(), bases.end(), *stated->base) == bases.end()) {
        bases.push_back(*stated->base);
      }
      if (const auto shown = base_shown(values, op, out, heads, pairing, part)) {
        for (const double one : {rounded_base(*shown, 1), rounded_base(*shown, 2), *shown}) {
          if (std::find(bases.begin(), bases.end(), one) == bases.end()) bases.push_back(one);
        }
      }
      for (const double base : bases) {
        forms.push_back({.text = "base " + std::to_string(static_cast<long long>(base)) + ", pairs of " +
                                 (pairing == kHalves ? "halves" : "neighbours"),
                         .variant = pairing,
                         .number = base,
                         .scale_power = part,
                         .heads = heads});
      }
    }
  }
}

/// The same with positions that count padding, where there is any.
void add_counting_rows(Values& values, const Tensor& out, std::vector<OpForm>& forms) {
  const Step* step = values.run().step(out.step);
  if (step == nullptr || std::none_of(step->spans.begin(), step->spans.end(), [step](const Span& span) {
        return span.first_token == 0 && padding_before(*step, span) > 0;
      }))
    return;
  const std::size_t plain = forms.size();
  for (std::size_t i = 0; i < plain; ++i) {
    OpForm form = forms[i];
    form.rounded = kOfRows;
    form.text += ", positions that count padding";
    forms.push_back(std::move(form));
  }
}

}  // namespace

std::vector<TensorId> other_cosines(const Op& op) {
  std::vector<TensorId> found;
  for (const Input& input : op.inputs) {
    if (input.role == "other_cos") found.push_back(input.tensor);
  }
  return found;
}

std::vector<OpForm> forms_rope(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  const auto given = tables(values, op);
  const Tensor* x = values.run().input(op, "x");
  std::vector<std::int64_t> heads = {0};
  if (given && x != nullptr && out.heads <= 1 && x->heads <= 1) {
    // All of a head is rotated, or a half, or a quarter; tables may hold an angle once or twice.
    heads.clear();
    for (const std::int64_t width : {given->width, 2 * given->width, 4 * given->width}) {
      if (width <= x->channels && x->channels % width == 0) heads.push_back(x->channels / width);
    }
  } else if (!given && x != nullptr && out.heads <= 1 && x->heads <= 1) {
    heads = unstated_heads(values, op, out);
  }
  if (!given) {
    for (const std::int64_t one : heads) add_bases(values, op, out, one, forms);
    add_counting_rows(values, out, forms);
    forms.push_back({.text = "no rotation", .variant = kNone});
    return forms;
  }
  std::vector<TensorId> cosines = other_cosines(op);
  cosines.insert(cosines.begin(), 0);
  for (const int pairing : {kHalves, kNeighbours}) {
    const std::string pairs = pairing == kHalves ? "halves" : "neighbours";
    for (const TensorId other : cosines) {
      const std::string text =
          other == 0 ? "the dumped cosines and sines, pairs of " : "other cosines and sines of the step, pairs of ";
      for (const std::int64_t one : heads)
        forms.push_back({.text = text + pairs, .variant = pairing, .other = other, .heads = one});
    }
  }
  if (op.layer && values.recomputer().layer_is_apart(*op.layer))
    forms.push_back({.text = "no rotation in this layer", .variant = kNone});
  return forms;
}

std::vector<OpForm> faults_rope(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  const OpForm chosen = values.recomputer().form_of(op, out);
  const Step* step = values.run().step(out.step);
  for (const int shift : {-1, 1, 2, -2}) {
    if (step == nullptr || !step->placed || chosen.variant == kNone) break;
    OpForm form = chosen;
    form.shift = shift;
    form.text = "positions off by " + std::to_string(shift);
    form.fault = true;
    forms.push_back(form);
  }
  if (chosen.variant == kNone) return forms;
  OpForm none = chosen;
  none.variant = kNone;
  none.text = "not rotated";
  none.fault = true;
  forms.push_back(none);
  OpForm other = chosen;
  other.variant = chosen.variant == kHalves ? kNeighbours : kHalves;
  other.text =
      other.variant == kHalves ? "pairs of halves instead of neighbours" : "pairs of neighbours instead of halves";
  other.fault = true;
  forms.push_back(other);
  return forms;
}

std::int64_t cost_rope(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 16; }

bool predict_rope(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                  std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  Block x;
  const Step* step = run.step(out.step);
  if (step == nullptr || !input_rows(values, op, "x", out, first, count, x, why)) return false;
  const auto given = form.angles == nullptr ? tables(values, op, form.other) : std::nullopt;
  if (!given && form.angles == nullptr && form.number == 0 && form.variant != kNone) {
    why = "neither its base nor its cosines and sines are known";
    return false;
  }
  const Tensor* in = run.input(op, "x");
  const bool halves = form.variant == kHalves || form.variant == kBackwards;
  std::int64_t width = form.heads > 0  ? x.columns / form.heads
                       : out.heads > 1 ? out.width()
                       : in->heads > 1 ? in->width()
                                       : x.columns;
  if (width <= 0 || x.columns % width != 0) width = x.columns;
  std::int64_t rotated = width;
  if (given) rotated = std::min(width, given->width <= width / 2 && halves ? 2 * given->width : given->width);
  if (given && form.rotated > 0) rotated = std::min(width, form.rotated);
  const bool again_behind = given && holds_again_behind(*given);
  if (!given && form.scale_power > 1) rotated = width / form.scale_power;
  if (form.angles != nullptr) rotated = std::min(width, 2 * static_cast<std::int64_t>(form.angles->frequencies.size()));
  if (form.variant == kNone) rotated = 0;
  rotated = std::min(rotated, width - form.rotated_from);
  rotated -= rotated % 2;
  into.resize(count, x.columns);
  const double u = stored_roundoff(values, out);
  const Format kept = stored_format(values, out);
  const double inner = std::max(u, roundoff(values.activation_format(out.step)));
  std::vector<RowToken> tokens;
  for (std::int64_t row = first; row < first + count; ++row) tokens.push_back(run.token_of(out, row));
  values.in_rows(count, 4 * x.columns, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t t = from; t < to; ++t) {
      const RowToken& token = tokens[static_cast<std::size_t>(t)];
      const std::int64_t padding =
          form.rounded == kOfRows && token.span != nullptr ? padding_before(*step, *token.span) : 0;
      const std::int64_t position = token.span != nullptr ? token.position + form.shift + padding : -1;
      const std::int64_t row =
          given ? table_row(*given, *step, first + t + (form.shift != 0 && given->rows == step->rows ? form.shift : 0),
                            position)
                : 0;
      const auto turns = given || token.span == nullptr ? Turns{}
                         : form.angles != nullptr       ? turns_of(position, *form.angles)
                                                        : turns_at(position, form.number, rotated);
      const bool judged = (given ? row >= 0 && row < given->rows : token.span != nullptr) || form.variant == kNone;
      for (std::int64_t c = 0; c < x.columns; ++c) {
        const auto at = static_cast<std::size_t>(t * x.columns + c);
        const std::int64_t inside = c % width - form.rotated_from;
        const double own = double{x.row(t)[c]};
        if (!judged) {
          into.bound[at] = -1;
          continue;
        }
        double value = own;
        double magnitude = 0;
        double off = double{x.off(t, c)};
        const bool copied = inside < 0 || inside >= rotated;
        if (!copied) {
          const std::int64_t half = rotated / 2;
          const std::int64_t pair = halves ? inside % half : inside / 2;
          const bool low = halves ? inside < half : inside % 2 == 0;
          const std::int64_t partner = c + (halves ? (low ? half : -half) : (low ? 1 : -1));
          double cosine = 0;
          double sine = 0;
          if (given) {
            const std::int64_t column = given->width >= rotated && halves          ? inside
                                        : given->width >= rotated && !again_behind ? inside
                                                                                   : pair;
            const auto cell = static_cast<std::size_t>(row * given->width + std::min(column, given->width - 1));
            cosine = double{(*given->cos)[cell]};
            sine = double{(*given->sin)[cell]};
          } else {
            cosine = turns[static_cast<std::size_t>(pair)].first;
            sine = turns[static_cast<std::size_t>(pair)].second;
          }
          const double other = double{x.row(t)[partner]};
          if (form.variant == kBackwards) sine = -sine;
          value = own * cosine + (low ? -other : other) * sine;
          magnitude = std::abs(own * cosine) + std::abs(other * sine);
          // An angle in f32 is off by its own size; a cosine may have been rounded to the model's format.
          const double angle_off =
              given ? 0
                    : (static_cast<double>(std::abs(position)) * kF32 * 2 + inner) * (std::abs(own) + std::abs(other));
          off = off * std::abs(cosine) + double{x.off(t, partner)} * std::abs(sine) + angle_off;
        }
        into.value[at] = static_cast<float>(value);
        const double rounding =
            copied ? 1.01 * u * std::abs(value) : 1.01 * u * std::abs(value) + 1.01 * inner * magnitude;
        into.bound[at] = static_cast<float>(rounding + off + least_error(kept));
      }
    }
  });
  return true;
}

}  // namespace nanscope
