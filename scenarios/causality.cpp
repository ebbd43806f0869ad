#include "scenarios/causality.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "core/numbers/codec.h"
#include "core/run/op_kind.h"
#include "instrument/engine/knobs.h"
#include "scenarios/operand_name.h"

namespace nanscope::scenarios {
namespace {

constexpr std::array<std::string_view, 4> kChangeNames = {"value", "sign", "size", "nan"};
constexpr float kTimes = 8;

/// What an op of attention reads of keys and values; 0: neither.
char operand_read_by(std::string_view op) {
  if (op.starts_with("attn_mix") || op.starts_with("mix_partials")) return 'v';
  return op.starts_with("scores") || op.starts_with("exact_scores") ? 'k' : '\0';
}

struct Kept {
  std::int64_t layer = -1;
  std::string op;
  std::string role;
  Format format = Format::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t keys = 0;  ///< of scores, which nothing masks yet: columns of a head; else 0
  std::vector<std::byte> bytes;

  std::size_t element() const { return static_cast<std::size_t>(info(format).storage_bytes()); }
  float at(std::int64_t row, std::int64_t column) const {
    std::uint32_t code = 0;
    std::memcpy(&code, &bytes[static_cast<std::size_t>(row * columns + column) * element()], element());
    return decode(format, code);
  }
};

bool is_scores(const ProbeOp& op) {
  return op.kind == name(OpKind::attention_scores) || op.name.starts_with("scores_");
}

/// Outputs of the prefill of one request, or what is made of them against those of another run.
class PrefillProbe : public Probe {
 public:
  PrefillProbe(kernels::Device& device, std::int64_t request) : device_(device), request_(request) {}

  Status on_step_begin(const StepRow& step) override {
    listens_ = step.request == request_ && step.kind == StepKind::prefill;
    return {};
  }
  Status on_op(const ProbeOp& op) override {
    if (!listens_) return {};
    for (const ProbeTensor& tensor : op.outputs) {
      const bool table = tensor.axis == Axis::none;
      if (table || !tensor.view.given() || op.kind == name(OpKind::argmax)) continue;
      Kept kept{op.layer,
                std::string(op.name),
                std::string(tensor.role),
                tensor.view.format,
                tensor.view.rows,
                tensor.view.columns,
                is_scores(op) && tensor.heads > 0 ? tensor.view.columns / tensor.heads : 0,
                {}};
      if (Status read = download(tensor.view, kept); !read) return read;
      if (Status taken = take(std::move(kept)); !taken) return taken;
    }
    return {};
  }

 protected:
  virtual Status take(Kept kept) = 0;

 private:
  Status download(const kernels::TensorView& view, Kept& kept) {
    const std::size_t row_bytes = static_cast<std::size_t>(view.columns) * kept.element();
    const std::size_t stride = static_cast<std::size_t>(view.stride) * kept.element();
    kept.bytes.resize(static_cast<std::size_t>(view.rows) * row_bytes);
    if (kept.bytes.empty()) return {};
    if (stride == row_bytes) return device_.download(kept.bytes, view.data);
    for (std::int64_t row = 0; row < view.rows; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const std::span<std::byte> to = std::span(kept.bytes).subspan(at * row_bytes, row_bytes);
      if (Status read = device_.download(to, static_cast<const std::byte*>(view.data) + at * stride); !read)
        return read;
    }
    return {};
  }

  kernels::Device& device_;
  std::int64_t request_;
  bool listens_ = false;
};

class Keeper final : public PrefillProbe {
 public:
  using PrefillProbe::PrefillProbe;
  std::vector<Kept> all;

 private:
  Status take(Kept kept) override {
    constexpr std::size_t kMost = std::size_t{4} << 30;
    bytes_ += kept.bytes.size();
    if (bytes_ > kMost) return fail("the prompt's activations take more than 4 GiB; give a shorter one");
    all.push_back(std::move(kept));
    return {};
  }
  std::size_t bytes_ = 0;
};

double gap_between(float a, float b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  const double gap = std::abs(double{a} - double{b});
  return std::isnan(gap) ? HUGE_VAL : gap;
}

bool same_bits(const Kept& a, const Kept& b, std::int64_t row, std::int64_t column, std::int64_t count) {
  const std::size_t at = static_cast<std::size_t>(row * a.columns + column) * a.element();
  return std::memcmp(&a.bytes[at], &b.bytes[at], static_cast<std::size_t>(count) * a.element()) == 0;
}

/// Whether a row differs; of scores, in keys before `token`.
bool row_differs(const Kept& a, const Kept& b, std::int64_t row, std::int64_t token) {
  if (a.columns == 0) return false;
  if (a.keys == 0) return !same_bits(a, b, row, 0, a.columns);
  for (std::int64_t first = 0; first < a.columns; first += a.keys) {
    const std::int64_t count = std::min(token, a.keys);
    if (count > 0 && !same_bits(a, b, row, first, count)) return true;
  }
  return false;
}

struct RowGap {
  double largest = 0;
  std::int64_t column = 0;
};

/// The largest difference of a row; of scores, in keys before `token`.
RowGap row_gap(const Kept& a, const Kept& b, std::int64_t row, std::int64_t token) {
  RowGap found;
  for (std::int64_t column = 0; column < a.columns; ++column) {
    if (a.keys > 0 && column % a.keys >= token) continue;
    const double gap = gap_between(a.at(row, column), b.at(row, column));
    if (gap > found.largest) found = {gap, column};
  }
  return found;
}

bool is_logits(const Kept& kept) {
  return kept.op == "lm_head" || kept.op == "logits_scale" || kept.op == "logits_softcap";
}

/// Compares as the tensors come.
class Comparer final : public PrefillProbe {
 public:
  Comparer(kernels::Device& device, std::int64_t request, const std::vector<Kept>& base, std::int64_t token, bool map)
      : PrefillProbe(device, request), base_(base), token_(token), map_(map) {}
  std::optional<LeakPlace> born;
  std::vector<ChangedRow> logits;
  std::vector<float> moved;

  /// Keys or values of which rows before the changed token differ and that `born` read.
  std::optional<LeakPlace> operand() const {
    const char read = born ? operand_read_by(born->op) : '\0';
    const std::optional<LeakPlace>& found = read == 'k' ? keys_ : values_;
    return read != '\0' && found && found->layer == born->layer ? found : std::nullopt;
  }

 private:
  Status take(Kept kept) override {
    if (next_ >= base_.size()) return fail("the changed run has other ops");
    const Kept& before = base_[next_++];
    if (before.op != kept.op || before.role != kept.role || before.bytes.size() != kept.bytes.size()) {
      return fail(fmt::format("the changed run has other ops: {} for {}", kept.op, before.op));
    }
    if (is_logits(kept)) take_logits(before, kept);
    if (born) return {};
    std::optional<LeakPlace> place;
    for (std::int64_t row = 0; row < std::min(token_, kept.rows); ++row) {
      if (!row_differs(before, kept, row, token_)) continue;
      if (!place) place = LeakPlace{kept.layer, kept.op, kept.role, row, row, 0, {}};
      place->last = row;
      const RowGap gap = row_gap(before, kept, row, token_);
      place->largest = std::max(place->largest, gap.largest);
      place->rows.push_back({row, gap.column});
    }
    if (!place) return {};
    if (const char operand = operand_of(kept.op, kept.role); operand != '\0') {
      // The first of its layer; in a layer before, where nothing came of it, it was read by nobody.
      std::optional<LeakPlace>& first = operand == 'k' ? keys_ : values_;
      if (!first || first->layer != place->layer) first = std::move(place);
    } else if (kept.keys > 0) {
      // Scores tell no token anything before the softmax reads them, which may read others in their place.
      if (!scores_ || scores_->layer != place->layer) scores_ = std::move(place);
    } else {
      born = scores_ && scores_->layer == place->layer ? std::move(scores_) : std::move(place);
    }
    return {};
  }

  void take_logits(const Kept& before, const Kept& kept) {
    logits.clear();
    moved.assign(map_ ? static_cast<std::size_t>(kept.rows) : 0, 0);
    for (std::int64_t row = 0; row < (map_ ? kept.rows : std::min(token_, kept.rows)); ++row) {
      if (!row_differs(before, kept, row, token_)) continue;
      const double gap = row_gap(before, kept, row, token_).largest;
      if (row < token_) logits.push_back({row, gap});
      if (map_) moved[static_cast<std::size_t>(row)] = static_cast<float>(gap);
    }
  }

  const std::vector<Kept>& base_;
  std::int64_t token_;
  bool map_;
  std::size_t next_ = 0;
  std::optional<LeakPlace> keys_, values_, scores_;
};

/// Changes one row of the embedding in device memory.
Status change_row(kernels::Device& device, const kernels::TensorView& view, std::int64_t row, TokenChange change) {
  const auto element = static_cast<std::size_t>(info(view.format).storage_bytes());
  const std::size_t bytes = static_cast<std::size_t>(view.columns) * element;
  const auto at = [&](std::int64_t r) {
    return static_cast<std::byte*>(view.data) + static_cast<std::size_t>(r * view.stride) * element;
  };
  std::vector<std::byte> own(bytes);
  if (Status read = device.download(own, at(row)); !read) return read;
  if (change == TokenChange::value) {
    std::vector<std::byte> other(bytes);
    for (std::int64_t step = 1; step < view.rows; ++step) {
      if (Status read = device.download(other, at((row + step) % view.rows)); !read) return read;
      if (other != own) break;
    }
    return device.upload(at(row), other);
  }
  for (std::size_t i = 0; i < bytes; i += element) {
    std::uint32_t code = 0;
    std::memcpy(&code, &own[i], element);
    const float value = decode(view.format, code);
    const float made = change == TokenChange::sign   ? -value
                       : change == TokenChange::size ? value * kTimes
                                                     : std::nanf("");
    code = encode(view.format, made, Overflow::saturate);
    std::memcpy(&own[i], &code, element);
  }
  return device.upload(at(row), own);
}

class Check {
 public:
  Check(Workbench& workbench, const RunSpec& spec, const CausalityOptions& options)
      : workbench_(workbench), spec_(spec), options_(options), request_(static_cast<std::int64_t>(options.request)) {}

  Result<CausalityReport> run() {
    if (spec_.config.train.steps > 0) return fail("a run that trains has no prompt whose tokens could be changed");
    if (options_.request >= spec_.requests.size()) {
      return fail(fmt::format("there is no request {}; the run has {}, from 0 on", request_, spec_.requests.size()));
    }
    spec_.requests.resize(options_.request + 1);
    spec_.requests.back().max_tokens = 1;
    // What would come after is refused.
    std::int64_t steps = 0;
    for (const RequestSpec& request : spec_.requests) steps += request.max_tokens;
    std::erase_if(spec_.transients, [steps](const Transient& one) { return one.step > steps; });
    spec_.config.kv.prefix_cache = false;
    const BatchConfig asked = spec_.config.batch;
    spec_.config.batch = {};
    report_.request = spec_.requests.back().name;
    if (spec_.config.attention.blocks.any()) report_.tile = spec_.config.attention.blocks.tile;
    auto engine = workbench_.engine(spec_.config, options_.stop);
    if (!engine) return tl::unexpected(engine.error());
    Keeper base(workbench_.device(), request_);
    if (Status done = pass(**engine, base, {}); !done) return tl::unexpected(done.error());
    const Kept* logits = logits_of(base.all);
    if (logits == nullptr) return fail("the run has no logits to compare");
    report_.prompt = logits->rows;
    std::vector<std::int64_t> tokens = options_.tokens;
    if (tokens.empty()) tokens = default_tokens();
    for (const std::int64_t token : tokens) {
      if (token < 0 || token >= report_.prompt) {
        return fail(fmt::format("there is no token {}; the prompt has {}, from 0 on", token, report_.prompt));
      }
    }
    total_ = static_cast<std::int64_t>(tokens.size() * options_.changes.size()) + 2;
    for (const std::int64_t token : tokens) {
      for (const TokenChange change : options_.changes) {
        if (Status done = influence(**engine, base.all, token, change); !done) return tl::unexpected(done.error());
      }
    }
    if (Status done = step_by_step(*logits, asked); !done) return tl::unexpected(done.error());
    return std::move(report_);
  }

 private:
  static const Kept* logits_of(const std::vector<Kept>& all) {
    const auto found = std::find_if(all.rbegin(), all.rend(), is_logits);
    return found == all.rend() ? nullptr : &*found;
  }

  std::vector<std::int64_t> default_tokens() const {
    const std::int64_t tile = options_.every ? 1 : std::max<std::int64_t>(report_.tile, 32);
    std::set<std::int64_t> tokens{report_.prompt - 1};
    for (std::int64_t last = tile - 1; last < report_.prompt; last += tile) tokens.insert(last);
    return {tokens.begin(), tokens.end()};
  }

  using Edit = std::function<Status(kernels::Device&, const kernels::TensorView&, const StepRow&)>;
  Status pass(Engine& engine, Probe& probe, Edit edit) {
    RunControl control;
    control.stop = options_.stop;
    control.edit_embedding = std::move(edit);
    const auto done = engine.run(spec_.requests, spec_.transients, probe, control);
    ++report_.runs;
    if (options_.progress) options_.progress(report_.runs, total_);
    return done ? Status{} : Status(tl::unexpected(done.error()));
  }

  Status influence(Engine& engine, const std::vector<Kept>& base, std::int64_t token, TokenChange change) {
    Comparer compared(workbench_.device(), request_, base, token, options_.map);
    Status done = pass(engine, compared, [&](kernels::Device& device, const auto& view, const StepRow& step) {
      const bool here = step.request == request_ && step.kind == StepKind::prefill && token < view.rows;
      return here ? change_row(device, view, token, change) : Status{};
    });
    if (!done) return done;
    report_.influences.push_back(
        {token, change, std::move(compared.logits), std::move(compared.moved), compared.born, compared.operand()});
    return {};
  }

  /// The prompt one token a step: what is not there cannot leak.
  Status step_by_step(const Kept& parallel, BatchConfig batch) {
    batch.requests = std::max<std::int64_t>(2, batch.requests);
    batch.chunk = 1;
    spec_.config.batch = batch;
    auto engine = workbench_.engine(spec_.config, options_.stop);
    if (!engine) {
      report_.gap.problem = engine.error().message;
      return {};
    }
    Keeper alone(workbench_.device(), request_);
    if (Status done = pass(**engine, alone, {}); !done) return done;
    std::int64_t position = 0;
    for (const Kept& kept : alone.all) {
      const bool last = kept.op == parallel.op && kept.columns == parallel.columns && kept.format == parallel.format;
      if (!last) continue;
      if (position >= parallel.rows || kept.rows != 1) break;
      compare_row(parallel, kept, position++);
    }
    if (position != parallel.rows) {
      report_.gap = {};
      report_.gap.problem = fmt::format("{} of {} tokens had a step of their own", position, parallel.rows);
    }
    return {};
  }

  void compare_row(const Kept& parallel, const Kept& alone, std::int64_t position) {
    double largest = 0;
    const std::size_t bytes = static_cast<std::size_t>(parallel.columns) * parallel.element();
    const bool same =
        std::memcmp(&parallel.bytes[static_cast<std::size_t>(position) * bytes], alone.bytes.data(), bytes) == 0;
    for (std::int64_t column = 0; !same && column < parallel.columns; ++column) {
      largest = std::max(largest, gap_between(parallel.at(position, column), alone.at(0, column)));
    }
    report_.gap.rows.push_back(largest);
    report_.gap.largest = std::max(report_.gap.largest, largest);
    if (!same) report_.gap.differ.push_back(position);
  }

  Workbench& workbench_;
  RunSpec spec_;
  const CausalityOptions& options_;
  std::int64_t request_;
  std::int64_t total_ = 0;
  CausalityReport report_;
};

}  // namespace

std::string_view name(TokenChange change) { return kChangeNames[static_cast<std::size_t>(change)]; }

std::int64_t CausalityReport::leaks() const {
  return std::count_if(influences.begin(), influences.end(), [](const Influence& one) { return one.leaks(); });
}

std::int64_t InfluenceMap::leaks() const {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < tokens; ++row) {
    for (std::int64_t column = row + 1; column < tokens; ++column) count += at(row, column) > 0 ? 1 : 0;
  }
  return count;
}

InfluenceMap influence_map(const CausalityReport& report) {
  InfluenceMap map;
  map.tokens = report.prompt;
  map.moved.assign(static_cast<std::size_t>(map.tokens * map.tokens), std::nanf(""));
  for (const Influence& one : report.influences) {
    for (std::size_t row = 0; row < one.moved.size(); ++row) {
      float& cell = map.moved[row * static_cast<std::size_t>(map.tokens) + static_cast<std::size_t>(one.token)];
      cell = std::isnan(cell) ? one.moved[row] : std::max(cell, one.moved[row]);
    }
  }
  return map;
}

std::int64_t leaking_block(const CausalityReport& report, const Influence& influence) {
  return influence.operand && report.tile > 0 ? influence.token / report.tile : -1;
}

std::string CausalForm::text() const { return fmt::format("{}", fmt::join(settings, " ")); }

std::vector<CausalForm> causal_forms(const EngineConfig& config) {
  CausalForm shared;  // with what the blocks of attention are no part of
  const auto set = [&shared](bool needed, const char* setting) {
    if (needed) shared.settings.emplace_back(setting);
  };
  set(config.attention.causal != CausalMask::exact, "attention.causal=exact");
  const bool schemes = !(config.kv.scheme.empty() && config.kv.scheme_k.empty() && config.kv.scheme_v.empty());
  set(schemes && config.kv.scheme != "bf16", "kv.scheme=bf16");
  set(!config.kv.scheme_k.empty(), "kv.scheme_k=");
  set(!config.kv.scheme_v.empty(), "kv.scheme_v=");
  // One scale for all tokens of a prefill.
  set(!schemes && (config.kv.policy == "locked" || config.kv.policy == "per_request" || config.kv.policy == "per_step"),
      "kv.policy=per_token");
  set(config.scores.format != Format::f32, "scores.format=f32");
  set(config.scores.qk_format != Format::f32, "scores.qk_format=f32");
  std::vector<CausalForm> forms;
  const AttentionBlocks& blocks = config.attention.blocks;
  if (!blocks.any()) {
    if (!shared.settings.empty()) forms.push_back(std::move(shared));
    return forms;
  }
  if (blocks.diagonal == kernels::Diagonal::quantized) {
    forms.push_back(shared);
    forms.back().settings.emplace_back("attention.diagonal=exact");
  }
  forms.push_back(std::move(shared));
  for (const std::string_view operand : {"q", "k", "v", "p"}) {
    const std::string knob = fmt::format("attention.blocks_{}", operand);
    if (!get_knob(config, knob).empty()) forms.back().settings.push_back(knob + "=");
  }
  return forms;
}

Result<CausalityReport> check_causality(Workbench& workbench, const RunSpec& spec, const CausalityOptions& options) {
  return Check(workbench, spec, options).run();
}

}  // namespace nanscope::scenarios
