/// Ops that move numbers, add them or put them through a function: copies, splits, residual sums, embeddings,
/// activations.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "instrument/recompute/activations.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"
#include "instrument/recompute/terms.h"

namespace nanscope {

namespace {

/// Calls work(begin, end) for ranges of the elements of a prediction.
template <class Work>
void in_elements(Values& values, const Prediction& into, const Work& work) {
  values.in_rows(into.rows, into.columns, [&](std::int64_t first, std::int64_t last) {
    work(static_cast<std::size_t>(first * into.columns), static_cast<std::size_t>(last * into.columns));
  });
}

}  // namespace

std::vector<OpForm> forms_copy(Values& values, const Op& op, const Tensor& out) { return one_form(values, op, out); }
std::vector<OpForm> faults_copy(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  for (const int shift : {-1, 1}) {
    forms.push_back({.text = shift < 0 ? "each row is the one before" : "each row is the one behind",
                     .shift = shift,
                     .fault = true});
  }
  static_cast<void>(values), static_cast<void>(op), static_cast<void>(out);
  return forms;
}
std::int64_t cost_copy(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out); }

bool predict_copy(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                  std::int64_t count, Prediction& into, std::string& why) {
  Block x;
  if (form.shift != 0) {
    const Tensor* in = values.run().input(op, "x");
    const std::int64_t from = first + form.shift;
    auto shifted =
        in != nullptr && from >= 0 && from + count <= in->tokens ? values.rows(*in, from, count) : std::nullopt;
    if (!shifted) return false;
    x = std::move(*shifted);
  } else if (!input_rows(values, op, "x", out, first, count, x, why)) {
    return false;
  }
  if (out.known && x.columns != out.channels) {
    why = "it has another width than what it should be a copy of";
    return false;
  }
  into.resize(count, x.columns);
  const Format kept = stored_format(values, out);
  const Tensor* in = values.run().input(op, "x");
  const double u =
      std::max(roundoff(values.precision(out)), in != nullptr && in->known ? roundoff(values.precision(*in)) : 0.0);
  const double factor = form.number == 0 ? 1 : form.number;
  const bool same_format = factor == 1 && in != nullptr && in->known && in->format == out.format;
  const double rounded = same_format ? 0 : 1.01 * (u + (factor == 1 ? 0 : kF32));
  const double least = same_format ? 0 : least_error(kept);
  in_elements(values, into, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const double value = factor * double{x.value[i]};
      into.value[i] = static_cast<float>(value);
      const double off = x.error.empty() ? 0.0 : factor * double{x.error[i]};
      into.bound[i] = static_cast<float>((same_format ? 0 : rounded * std::abs(value) + least) + off);
    }
  });
  return true;
}

std::vector<OpForm> forms_hadamard(Values& values, const Op& op, const Tensor& out) {
  return one_form(values, op, out);
}
std::vector<OpForm> faults_hadamard(Values& values, const Op& op, const Tensor& out) {
  return no_forms(values, op, out);
}
std::int64_t cost_hadamard(Values& values, const Op& op, const Tensor& out) {
  return unit_cost(values, op, out) * std::max<std::int64_t>(1, out.width());
}

/// out = H x / sqrt(D) of each head: a sum of D terms, one rounding each, in any order.
bool predict_hadamard(Values& values, const Op& op, const Tensor& out, const OpForm&, std::int64_t first,
                      std::int64_t count, Prediction& into, std::string& why) {
  const auto* how = op.get<HadamardAttributes>();
  Block x;
  if (!input_rows(values, op, "x", out, first, count, x, why)) return false;
  const std::int64_t heads = how != nullptr ? how->heads.value_or(out.heads) : out.heads;
  if (heads < 1 || x.columns % heads != 0 || (out.known && x.columns != out.channels)) {
    why = "its heads are not known";
    return false;
  }
  const std::int64_t width = x.columns / heads;
  const double root = std::sqrt(static_cast<double>(width));
  const double u = roundoff(values.precision(out));
  const double sums = static_cast<double>(width + 4) * kF32;
  into.resize(count, x.columns);
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      double sum = 0;
      double magnitudes = 0;
      double off = 0;
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t from = c / width * width + j;
        const bool odd = std::popcount(static_cast<std::uint64_t>(c % width) & static_cast<std::uint64_t>(j)) % 2 == 1;
        const double value = double{x.row(t)[from]};
        sum += odd ? -value : value;
        magnitudes += std::abs(value);
        off += double{x.off(t, from)};
      }
      const auto at = static_cast<std::size_t>(t * x.columns + c);
      into.value[at] = static_cast<float>(sum / root);
      const double bound = (off + sums * magnitudes) / root + 1.01 * u * std::abs(sum / root);
      into.bound[at] =
          std::isfinite(bound) ? static_cast<float>(bound + least_error(stored_format(values, out))) : -1.0F;
    }
  }
  return true;
}

std::vector<OpForm> forms_split(Values& values, const Op& op, const Tensor& out) { return one_form(values, op, out); }
std::vector<OpForm> faults_split(Values& values, const Op& op, const Tensor& out) { return no_forms(values, op, out); }
std::int64_t cost_split(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out); }

bool predict_split(Values& values, const Op& op, const Tensor& out, const OpForm&, std::int64_t first,
                   std::int64_t count, Prediction& into, std::string& why) {
  const auto* split = op.get<SplitAttributes>();
  Block x;
  if (split == nullptr || !split->first_channel) return false;
  if (!input_rows(values, op, "x", out, first, count, x, why)) return false;
  const std::int64_t begin = *split->first_channel;
  const std::int64_t heads = std::max<std::int64_t>(1, split->heads.value_or(1));
  const std::int64_t width = out.channels / heads;
  const std::int64_t from = x.columns / heads;
  if (begin < 0 || width <= 0 || width * heads != out.channels || from * heads != x.columns || begin > from - width) {
    why = "its columns of the fused projection are not known";
    return false;
  }
  into.resize(count, out.channels);
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto at = static_cast<std::size_t>(t * out.channels + c);
      const std::int64_t column = whole_channel(*split, c, out.channels, x.columns);
      into.value[at] = x.row(t)[column];
      into.bound[at] = x.off(t, column);
    }
  }
  return true;
}

std::vector<OpForm> forms_join(Values& values, const Op& op, const Tensor& out) { return one_form(values, op, out); }
std::vector<OpForm> faults_join(Values& values, const Op& op, const Tensor& out) { return no_forms(values, op, out); }
std::int64_t cost_join(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out); }

/// Each head is the first channels of its own, and all of what is shared behind them.
bool predict_join(Values& values, const Op& op, const Tensor& out, const OpForm&, std::int64_t first,
                  std::int64_t count, Prediction& into, std::string& why) {
  const auto* join = op.get<JoinAttributes>();
  Block x;
  Block shared;
  if (!input_rows(values, op, "x", out, first, count, x, why) ||
      !input_rows(values, op, "shared", out, first, count, shared, why))
    return false;
  const std::int64_t heads = join != nullptr ? join->heads.value_or(0) : 0;
  const std::int64_t width = heads > 0 ? out.channels / heads : 0;
  const std::int64_t own = width - shared.columns;
  if (own < 0 || width == 0 || width * heads != out.channels || x.columns % heads != 0 || own > x.columns / heads) {
    why = "how its heads are put together is not known";
    return false;
  }
  into.resize(count, out.channels);
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto at = static_cast<std::size_t>(t * out.channels + c);
      const std::int64_t inside = c % width;
      const std::int64_t column = c / width * (x.columns / heads) + inside;
      into.value[at] = inside < own ? x.row(t)[column] : shared.row(t)[inside - own];
      into.bound[at] = inside < own ? x.off(t, column) : shared.off(t, inside - own);
    }
  }
  return true;
}

std::vector<OpForm> forms_scale(Values&, const Op& op, const Tensor&) {
  const auto* stated = op.get<ScaleAttributes>();
  const double factor = stated != nullptr ? stated->factor.value_or(1) : 1;
  return {{.text = fmt::format("its input times {:.6g}", factor), .number = factor}};
}
std::vector<OpForm> faults_scale(Values& values, const Op& op, const Tensor& out) { return no_forms(values, op, out); }
std::int64_t cost_scale(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out); }

bool predict_scale(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                   std::int64_t count, Prediction& into, std::string& why) {
  Block x;
  if (!input_rows(values, op, "x", out, first, count, x, why)) return false;
  into.resize(count, x.columns);
  const double u = stored_roundoff(values, out);
  const double least = least_error(stored_format(values, out));
  in_elements(values, into, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const double value = form.number * double{x.value[i]};
      const double off = x.error.empty() ? 0.0 : std::abs(form.number) * double{x.error[i]};
      into.value[i] = static_cast<float>(value);
      // The factor is rounded to f32 as well.
      into.bound[i] = static_cast<float>(1.01 * u * std::abs(value) + 2 * kF32 * std::abs(value) + least + off);
    }
  });
  return true;
}

std::vector<OpForm> forms_residual_add(Values& values, const Op& op, const Tensor& out) {
  if (op.name == "shared_add") return forms_of_block();
  std::vector<OpForm> forms = one_form(values, op, out);
  const auto* stated = op.get<ResidualAttributes>();
  if (stated != nullptr && stated->factor) forms.front().number = *stated->factor;
  return forms;
}

std::vector<OpForm> faults_residual_add(Values&, const Op& op, const Tensor&) {
  return op.name == "shared_add" ? faults_of_block() : faults_of_sum("the residual", "the branch", true);
}

std::int64_t cost_residual_add(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out); }

namespace {

/// The two terms of a sum that was not dumped; empty where the tensor was, or is no sum.
std::vector<Block> terms_of_unseen_sum(Values& values, const Op& op, std::string_view role, const Tensor& out,
                                       std::int64_t first, std::int64_t count) {
  RunView& run = values.run();
  const Tensor* sum = run.input(op, role);
  const Op* maker = sum != nullptr && !sum->known ? run.maker(*sum) : nullptr;
  std::vector<Block> terms;
  if (maker == nullptr || maker->kind != OpKind::residual_add) return terms;
  std::string why;
  for (const std::string_view term : {"a", "b"}) {
    Block block;
    if (!input_rows(values, *maker, term, out, first, count, block, why)) return {};
    terms.push_back(std::move(block));
  }
  return terms;
}

}  // namespace

bool predict_residual_add(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                          std::int64_t count, Prediction& into, std::string& why) {
  Block a;
  Block b;
  if (!input_rows(values, op, "a", out, first, count, a, why) ||
      !input_rows(values, op, "b", out, first, count, b, why))
    return false;
  if (a.columns != b.columns) {
    why = "its two inputs have different widths";
    return false;
  }
  // The model's factor on the branch; of these two variants `number` is the term's own.
  const bool stated = form.number != 0 && form.variant != kFirstTimes && form.variant != kSecondTimes;
  const auto [left, right] = factors_of_sum(form);
  into.resize(count, a.columns);
  const double u = stored_roundoff(values, out);
  const double least = least_error(stored_format(values, out));
  multiply(a, left * (form.alpha != 0 ? form.alpha : 1), u);
  multiply(b, right * (stated ? form.number : 1), u);
  // A model with parallel branches adds these first, and the residual to their sum: which sum was rounded is unknown.
  const std::vector<Block> terms = terms_of_unseen_sum(values, op, "a", out, first, count);
  const bool three = terms.size() == 2 && terms[0].columns == a.columns && terms[1].columns == a.columns;
  in_elements(values, into, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const double value = double{a.value[i]} + double{b.value[i]};
      into.value[i] = static_cast<float>(value);
      double off = (a.error.empty() ? 0.0 : double{a.error[i]}) + (b.error.empty() ? 0.0 : double{b.error[i]});
      if (three) {
        const double other = double{b.value[i]};
        off += 1.01 * (u + kF32) *
               std::max(std::abs(double{terms[0].value[i]} + other), std::abs(double{terms[1].value[i]} + other));
      }
      into.bound[i] = static_cast<float>(1.01 * u * std::abs(value) + kF32 * std::abs(value) + least + off);
    }
  });
  return true;
}

std::vector<OpForm> forms_embedding(Values& values, const Op& op, const Tensor& out) {
  static_cast<void>(values), static_cast<void>(op);
  return {
      {.text = "the token's row"},
      {.text = "the token's row times the root of its width", .number = std::sqrt(static_cast<double>(out.channels))}};
}
std::vector<OpForm> faults_embedding(Values&, const Op&, const Tensor&) {
  return {{.text = "the row of the token before", .shift = -1, .fault = true},
          {.text = "the row of the token behind", .shift = 1, .fault = true}};
}
std::int64_t cost_embedding(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out); }

constexpr double kLargestPositionShift = 2;  ///< of learned positions: RoBERTa, BART and OPT begin at 2

bool predict_embedding(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                       std::int64_t count, Prediction& into, std::string& why) {
  const Tensor* weight = values.run().input(op, "weight");
  const Tensor* tokens = values.run().input(op, "tokens");
  const bool of_positions = op.name == "pos_embed";
  if (weight == nullptr || tokens == nullptr || weight->channels != out.channels || tokens->count() == 0 ||
      out.tokens % tokens->count() != 0) {
    why = weight == nullptr ? "its weight was not dumped" : "its token ids were not dumped";
    return false;
  }
  const auto ids = values.run().values(*tokens);
  if (!ids) return false;
  into.resize(count, out.channels);
  const double factor = form.number == 0 ? 1 : form.number;
  const double u = factor == 1 ? (weight->format == out.format ? 0 : roundoff(values.precision(out)))
                               : 2 * std::max(roundoff(values.precision(out)), roundoff(weight->format));
  const Format kept = stored_format(values, out);
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t at = first + row + form.shift;
    const double id = at >= 0 && at < out.tokens ? double{(*ids)[static_cast<std::size_t>(at) % ids->size()]} +
                                                       static_cast<double>(form.ids_off)
                                                 : -1;
    // Modules of positions may be given token ids or a mask, and count by themselves: BART, OPT.
    const RowToken token = of_positions ? values.run().token_of(out, first + row) : RowToken{};
    const double shift = token.span != nullptr ? id - static_cast<double>(token.position) : 0;
    if (shift < 0 || shift > kLargestPositionShift) {
      for (std::int64_t c = 0; c < out.channels; ++c) into.bound[static_cast<std::size_t>(row * out.channels + c)] = -1;
      continue;
    }
    const auto embedded = id >= 0 && id < static_cast<double>(weight->tokens)
                              ? values.run().row_values(*weight, static_cast<std::int64_t>(id))
                              : nullptr;
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto i = static_cast<std::size_t>(row * out.channels + c);
      if (!embedded) {
        into.bound[i] = -1;  // an image's, or nobody's
        continue;
      }
      const double value = factor * double{(*embedded)[static_cast<std::size_t>(c)]};
      into.value[i] = static_cast<float>(value);
      into.bound[i] = static_cast<float>(1.01 * u * std::abs(value) + (u > 0 ? least_error(kept) : 0));
    }
  }
  return true;
}

std::vector<OpForm> forms_activation(Values& values, const Op& op, const Tensor&) {
  std::vector<OpForm> forms;
  const bool halves = values.run().input(op, "gate_up") != nullptr || values.run().input(op, "half_of") != nullptr;
  const bool product = values.run().input(op, "product") != nullptr;
  const bool maybe_up = values.run().input(op, "maybe_up") != nullptr;
  const bool gated = values.run().input(op, "gate") != nullptr || values.run().input(op, "gate_up") != nullptr;
  const auto* stated = op.get<ActivationAttributes>();
  const std::span<const Activation> all = activations();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool none = i + 1 == all.size();
    if (none && !product && op.by_name) continue;
    if (product && !none) continue;
    // Of gates that multiply what attention puts out, and of no MLP.
    if ((all[i].name == "sigmoid") != (op.name == "attn_gated") && (all[i].name == "sigmoid" || !none)) continue;
    const bool clamped = is_clamped(all[i]);
    if (clamped && (maybe_up || !gated)) continue;
    for (const int lie : {kGateFirst, kUpFirst, kInterleaved}) {
      if (lie != kGateFirst && !halves) continue;
      forms.push_back({.text = std::string(all[i].name) + (lie == kUpFirst       ? ", up first"
                                                           : lie == kInterleaved ? ", gate and up in turns"
                                                                                 : ""),
                       .variant = static_cast<int>(i),
                       .shift = lie});
      if (clamped && stated != nullptr) {
        forms.back().alpha = stated->alpha.value_or(0);
        forms.back().limit = stated->limit.value_or(0);
      }
      if (maybe_up) {
        forms.push_back(forms.back());
        forms.back().number = kTimesUp;
        forms.back().text += " times up";
      }
      const std::size_t made = maybe_up ? 2 : 1;
      for (std::size_t k = 0; k < made && all[i].name == "gelu_tanh"; ++k) {
        OpForm rounded = forms[forms.size() - made];
        rounded.rounded = 1;
        rounded.text += ", each step rounded";
        forms.push_back(std::move(rounded));
      }
    }
  }
  return forms;
}

std::vector<OpForm> faults_activation(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  if (values.run().input(op, "product") == nullptr) {
    forms.push_back({.text = "no activation", .variant = static_cast<int>(activations().size()) - 1, .fault = true});
  }
  const auto reads = [&](std::string_view role) { return values.run().input(op, role) != nullptr; };
  // Where the activation is dumped before the product, a copy of it may be all that there is.
  if (!reads("maybe_up") && !reads("product") && (reads("gate") || reads("gate_up"))) {
    OpForm alone = values.recomputer().form_of(op, out);
    alone.text = "the gate alone";
    alone.number = kGateAlone;
    alone.fault = true;
    forms.push_back(std::move(alone));
  }
  return forms;
}

std::int64_t cost_activation(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 8; }

namespace {

struct ActivationRows {
  const OpForm& form;
  const Block& gate;
  const Block* up = nullptr;  ///< that it is multiplied with
  double u = 0;
  double inner = 0;  ///< roundoff of what is between
  double least = 0;
  double inner_least = 0;  ///< of what is between, where it is subnormal
};

void put_activation(const ActivationRows& rows, std::size_t begin, std::size_t end, Prediction& into) {
  const Block& gate = rows.gate;
  for (std::size_t i = begin; i < end; ++i) {
    const double x = double{gate.value[i]};
    const auto made =
        gated_element(rows.form, x, rows.up != nullptr ? std::optional(double{rows.up->value[i]}) : std::nullopt);
    const double other = made.other;
    const double value = made.active * other;
    into.value[i] = static_cast<float>(value);
    const double x_off = gate.error.empty() ? 0.0 : double{gate.error[i]} * made.slope;
    const double up_off = rows.up != nullptr && !rows.up->error.empty() ? double{rows.up->error[i]} : 0.0;
    // The function is rounded before it is multiplied, and inside it a sigmoid is rounded before that.
    const double steps = rows.form.rounded == 1 ? 1.01 * gelu_tanh_error(x, rows.inner) * std::abs(other) : 0.0;
    const double roundings = 1.01 * (rows.u + (2 + made.roundings) * rows.inner) * std::abs(value) +
                             4 * kF32 * std::abs(made.gate * other) + steps;
    into.bound[i] = static_cast<float>(roundings + std::abs(other) * (x_off + rows.inner_least) +
                                       std::abs(made.active) * up_off + rows.least);
  }
}

}  // namespace

bool predict_activation(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                        std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  Block gate;
  Block up;
  const bool fused = run.input(op, "gate_up") != nullptr;
  const bool half = run.input(op, "half_of") != nullptr;
  const bool product = run.input(op, "product") != nullptr;
  const bool gated = fused || run.input(op, "gate") != nullptr || product;
  const bool maybe_up = run.input(op, "maybe_up") != nullptr;
  const bool asks_up = maybe_up && form.number == kTimesUp;
  const auto take_half = [&](const Block& whole, bool gate_half) {
    Block part{whole.rows, whole.columns / 2, {}, {}};
    for (std::int64_t t = 0; t < whole.rows; ++t) {
      for (std::int64_t c = 0; c < part.columns; ++c) {
        const std::int64_t at = place_in_halves(form.shift, gate_half, c, part.columns);
        part.value.push_back(whole.row(t)[at]);
        if (!whole.error.empty()) part.error.push_back(whole.off(t, at));
      }
    }
    return part;
  };
  if (fused || half) {
    Block whole;
    if (!input_rows(values, op, fused ? "gate_up" : "half_of", out, first, count, whole, why)) return false;
    gate = take_half(whole, true);
    up = take_half(whole, false);
    if (product && !input_rows(values, op, "product", out, first, count, gate, why)) return false;
  } else if (product || maybe_up) {
    if (!input_rows(values, op, product ? "product" : "x", out, first, count, gate, why)) return false;
    const std::string_view role = maybe_up ? "maybe_up" : "up";
    if ((asks_up || !maybe_up) && !input_rows(values, op, role, out, first, count, up, why)) return false;
  } else if (gated) {
    if (!input_rows(values, op, "gate", out, first, count, gate, why) ||
        !input_rows(values, op, "up", out, first, count, up, why))
      return false;
  } else if (!input_rows(values, op, "x", out, first, count, gate, why)) {
    return false;
  }
  const bool times_up = maybe_up ? asks_up : gated && form.number != kGateAlone && !(half && !product);
  if (times_up && gate.columns != up.columns) {
    why = "gate and up have different widths";
    return false;
  }
  into.resize(count, gate.columns);
  const double u = stored_roundoff(values, out);
  const double inner = std::max(u, roundoff(values.activation_format(out.step)));
  const double least = least_error(stored_format(values, out));
  const double inner_least = std::max(least, least_error(values.activation_format(out.step)));
  const ActivationRows rows{form, gate, times_up ? &up : nullptr, u, inner, least, inner_least};
  in_elements(values, into, [&](std::size_t begin, std::size_t end) { put_activation(rows, begin, end, into); });
  return true;
}

}  // namespace nanscope
