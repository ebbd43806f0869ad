#include "scenarios/policy_source.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/run/recording_view.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/dump/open_dump.h"
#include "instrument/model/model_spec.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "instrument/recompute/recompute.h"
#include "scenarios/library.h"
#include "scenarios/open_run.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/run_spec.h"
#include "scenarios/scenario.h"
#include "scenarios/target_kind.h"

namespace nanscope::scenarios {

/// In the order in which they are built on each other.
struct PolicySource::Parts {
  std::optional<ModelSpec> model;
  std::int64_t heads = 0;
  std::vector<RunNote> unread;

  std::optional<RunSpec> spec;

  std::unique_ptr<OpenRun> run;

  std::unique_ptr<OpenDump> dump;
  std::optional<DumpRun> dump_run;

  std::optional<Recording> recording;
  std::optional<RecordingRun> rows;
  std::optional<RecordingTensors> tensors;
  std::optional<RecordingView> view;

  KernelArithmetic arithmetic;
  std::optional<Facts> facts;
  std::optional<Recomputer> recomputer;

  Status run_scenario(const std::filesystem::path& path, const PolicySourceOptions& options) {
    const auto scenario = load_scenario(path);
    if (!scenario) return tl::unexpected(scenario.error());
    auto resolved = resolve(*scenario);
    if (!resolved) return tl::unexpected(resolved.error());
    spec = std::move(*resolved);
    auto workbench = Workbench::open(spec->config, options.limits);
    if (!workbench) return fail(scenario->where() + workbench.error().message);
    RecordOptions recording_options;
    recording_options.capture = "all";
    recording_options.control.stop = options.stop;
    if (options.progress) {
      recording_options.control.progress = [&options](const Progress& now) {
        options.progress(now.ops, now.expected_ops, "ops");
      };
    }
    auto recorded = record(**workbench, *spec, recording_options);
    if (!recorded) return fail(scenario->where() + recorded.error().message);
    recording.emplace(std::move(recorded->recording));
    rows.emplace(*recording);
    tensors.emplace(*recording, options.stop, options.limits);
    view.emplace(*rows, *tensors);
    return {};
  }

  Status open_run(const PolicySourceOptions& options) {
    OpenRunOptions opening;
    opening.stop = options.stop;
    opening.limits = options.limits;
    opening.follow_links = options.follow_links;
    opening.progress = bytes(options);
    auto opened = OpenRun::open(options.target, opening);
    if (!opened) return tl::unexpected(opened.error());
    run = std::move(*opened);
    unread.assign(run->unread().begin(), run->unread().end());
    if (run->recording() == nullptr || run->view().info().device == kDumpDevice) return {};
    if (auto stated = run_spec_of(*run->recording())) spec = std::move(*stated);
    return {};
  }

  /// With the heads of its model, which tell where a fused projection is divided.
  Status open_dump(const PolicySourceOptions& options) {
    auto spec = read_model_spec(options.model);
    if (!spec) return tl::unexpected(spec.error());
    OpenDumpOptions opening;
    opening.stop = options.stop;
    opening.follow_links = options.follow_links;
    opening.progress = bytes(options);
    auto opened = OpenDump::open(options.target, opening);
    if (!opened) return tl::unexpected(opened.error());
    dump = std::move(*opened);
    unread.assign(dump->unread().begin(), dump->unread().end());
    Geometry geometry;
    geometry.heads = spec->model.heads;
    geometry.kv_heads = spec->model.kv_heads;
    geometry.width = spec->model.head_dim;
    if (is_latent(spec->model)) geometry.shared = spec->model.rotated;
    dump_run.emplace(dump->dump(), *dump, options.stop, std::move(geometry));
    model = std::move(*spec);
    return {};
  }

  static std::function<void(std::uint64_t, std::uint64_t)> bytes(const PolicySourceOptions& options) {
    if (!options.progress) return {};
    return [&options](std::uint64_t done, std::uint64_t total) {
      options.progress(static_cast<std::int64_t>(done >> 20U), static_cast<std::int64_t>(total >> 20U), "MiB");
    };
  }
};

PolicySource::PolicySource(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PolicySource::~PolicySource() = default;

Result<std::unique_ptr<PolicySource>> PolicySource::open(const PolicySourceOptions& options) {
  auto parts = std::make_unique<Parts>();
  parts->heads = options.heads;
  TargetKind kind = kind_of(options.target);
  std::filesystem::path path = options.target;
  if (kind == TargetKind::missing) {
    if (const auto scenario = find_scenario(options.target)) {
      kind = TargetKind::scenario;
      path = *scenario;
    }
  }
  const bool dumped = kind == TargetKind::dump;
  if (!options.model.empty() && !dumped)
    return fail(fmt::format("{}: --model is for dumps: a recording or a scenario states its own", options.target));
  Status opened;
  if (kind == TargetKind::scenario) {
    opened = parts->run_scenario(path, options);
  } else if (Status taken = check_target(options.target, Takes::runs); !taken) {
    opened = taken;
  } else {
    opened = options.model.empty() ? parts->open_run(options) : parts->open_dump(options);
  }
  if (!opened) return tl::unexpected(opened.error());
  std::unique_ptr<PolicySource> source(new PolicySource(std::move(parts)));
  if (source->view().info().device == kDumpDevice) {
    Parts& own = *source->parts_;
    own.facts.emplace(source->view());
    RecomputerOptions doing;
    doing.stop = options.stop;
    own.recomputer.emplace(*own.facts, own.arithmetic, doing);
  }
  return source;
}

Recomputer* PolicySource::again() { return parts_->recomputer ? &*parts_->recomputer : nullptr; }

RunView& PolicySource::view() {
  if (parts_->run) return parts_->run->view();
  if (parts_->dump_run) return *parts_->dump_run;
  return *parts_->view;
}

KnownAttention PolicySource::known(std::int64_t layer) const {
  KnownAttention known;
  known.heads = parts_->heads;
  known.source = "--heads";
  if (!parts_->model) return known;
  const ModelConfig& model = parts_->model->model;
  known.heads = model.heads;
  known.kv_heads = model.kv_heads;
  known.factor = double{attention_scale(model, layer)};
  known.softcap = model.attention_softcap;
  known.window = window_of(model, layer);
  known.source = "config.json";
  return known;
}

const RunSpec* PolicySource::spec() const { return parts_->spec ? &*parts_->spec : nullptr; }

const Recording* PolicySource::recording() const {
  if (parts_->recording) return &*parts_->recording;
  return parts_->run != nullptr ? parts_->run->recording() : nullptr;
}

const std::vector<RunNote>& PolicySource::unread() const { return parts_->unread; }

Status PolicySource::check() const {
  if (parts_->run) return parts_->run->check();
  return parts_->dump ? parts_->dump->check() : Status{};
}

}  // namespace nanscope::scenarios
