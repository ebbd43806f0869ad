#include "scenarios/open_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/parse_json.h"
#include "core/run/recording_view.h"
#include "core/run/view_rows.h"
#include "instrument/dump/recorded_dump.h"
#include "instrument/files/file.h"
#include "instrument/verify/verified_dump.h"
#include "scenarios/replay.h"

namespace nanscope::scenarios {
namespace {

constexpr std::size_t kMostConfigBytes = std::size_t{16} << 20;

}  // namespace

/// In the order in which they are built on each other.
struct OpenRun::Parts {
  std::string target;

  std::optional<Recording> recording;
  std::optional<RecordingRun> recording_rows;
  std::optional<RecordingTensors> recording_tensors;
  std::optional<RecordingView> recording_view;

  std::unique_ptr<OpenDump> dump;
  std::unique_ptr<RecordedDump> recorded_dump;
  std::optional<DumpRun> dump_run;
  std::optional<ViewRows> dump_rows;
  std::optional<ViewTensors> dump_tensors;
  std::optional<ModelSpec> model;
  std::string model_note;
  std::vector<double> norm_eps;
  const DumpFacts* facts = nullptr;

  Status open_recording(const std::filesystem::path& path, const OpenRunOptions& options) {
    Result<Recording> opened = Recording::open_checked(path, options.stop);
    if (!opened) return tl::unexpected(std::move(opened.error()));
    recording.emplace(std::move(*opened));
    if (RecordedDump::is_one(*recording)) return open_recorded(options);
    recording_rows.emplace(*recording);
    recording_tensors.emplace(*recording, options.stop, options.limits, options.replay_bytes, options.cache_bytes);
    recording_view.emplace(*recording_rows, *recording_tensors);
    return {};
  }

  static OpenDumpOptions dump_options(const OpenRunOptions& options) {
    OpenDumpOptions opening;
    opening.progress = options.progress;
    opening.stop = options.stop;
    opening.sums = options.sums;
    opening.follow_links = options.follow_links;
    opening.checkpoint = options.model;
    opening.scan = options.scan;
    opening.known = options.facts;
    opening.known_only = options.facts_only;
    opening.listing = options.listing;
    return opening;
  }

  Status take_dump(Result<std::unique_ptr<OpenDump>> opened, const OpenRunOptions& options) {
    if (!opened) return tl::unexpected(std::move(opened.error()));
    dump = std::move(*opened);
    facts = options.facts;
    look_at(dump->dump(), *dump, options);
    return {};
  }

  Status open_recorded(const OpenRunOptions& options) {
    Result<std::unique_ptr<RecordedDump>> opened = RecordedDump::of(*recording);
    if (!opened) return tl::unexpected(std::move(opened.error()));
    recorded_dump = std::move(*opened);
    look_at(recorded_dump->dump(), *recorded_dump, options);
    return {};
  }

  void take_eps(const nlohmann::json& config) {
    for (const auto& [key, value] : config.items()) {
      if (value.is_object()) take_eps(value);  // text_config, vision_config
      const bool eps = key.ends_with("eps") || key.ends_with("epsilon");
      if (eps && value.is_number() &&
          std::find(norm_eps.begin(), norm_eps.end(), value.get<double>()) == norm_eps.end())
        norm_eps.push_back(value.get<double>());
    }
  }

  /// The configuration is not needed to use the weights: a family that nanscope does not know is a note.
  void read_model(const std::filesystem::path& folder) {
    if (folder.empty()) return;
    Result<ModelSpec> spec = read_model_spec(folder);
    if (spec) {
      model.emplace(std::move(*spec));
      return;
    }
    model_note = "the model's weights are used; how its ops are computed is inferred: " + spec.error().message;
    const auto config = read_file(folder / "config.json", kMostConfigBytes);
    if (config) take_eps(parse_json_or_none<nlohmann::json>(as_text(*config)));
  }

  void look_at(const Dump& tensors, DumpElements& elements, const OpenRunOptions& options) {
    read_model(options.model);
    dump_run.emplace(tensors, elements, options.stop, model ? geometry_of(*model) : Geometry{});
    dump_rows.emplace(*dump_run);
    dump_tensors.emplace(*dump_run);
  }
};

bool looks_like_recording(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return false;
  // msprobe's databases are SQLite too.
  if (path.ends_with(".vis.db") || path.ends_with(".trend.db")) return false;
  constexpr std::string_view kSqlite = "SQLite format 3";
  const auto head = read_beginning(path, kSqlite.size());
  return path.ends_with(".nanscope") || (head && as_text(*head) == kSqlite);
}

OpenRun::OpenRun(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
OpenRun::~OpenRun() = default;

Result<std::unique_ptr<OpenRun>> OpenRun::open(const std::filesystem::path& path, const OpenRunOptions& options) {
  auto parts = std::make_unique<Parts>();
  parts->target = path.string();
  const bool recorded = looks_like_recording(path.string());
  if (recorded && !options.model.empty())
    return fail(path.string() + ": it is a recording, which knows its model; --model is for dumps");
  if (recorded && options.facts != nullptr)
    return fail(path.string() + ": it is a recording, which has its health; --facts is for dumps");
  const Status opened = recorded ? parts->open_recording(path, options)
                                 : parts->take_dump(OpenDump::open(path, Parts::dump_options(options)), options);
  if (!opened) return tl::unexpected(opened.error());
  return std::unique_ptr<OpenRun>(new OpenRun(std::move(parts)));
}

Result<std::unique_ptr<OpenRun>> OpenRun::of(std::string target, std::vector<NamedTensor> tensors,
                                             const OpenRunOptions& options) {
  auto parts = std::make_unique<Parts>();
  parts->target = target;
  const Status taken =
      parts->take_dump(OpenDump::of(std::move(target), std::move(tensors), Parts::dump_options(options)), options);
  if (!taken) return tl::unexpected(taken.error());
  return std::unique_ptr<OpenRun>(new OpenRun(std::move(parts)));
}

RunView& OpenRun::view() {
  if (parts_->dump_run) return *parts_->dump_run;
  return *parts_->recording_view;
}

RunData& OpenRun::rows() {
  if (parts_->dump_rows) return *parts_->dump_rows;
  return *parts_->recording_rows;
}

TensorSource& OpenRun::tensors() {
  if (parts_->dump_tensors) return *parts_->dump_tensors;
  return *parts_->recording_tensors;
}

const Recording* OpenRun::recording() const { return parts_->recording ? &*parts_->recording : nullptr; }
const OpenDump* OpenRun::dump() const { return parts_->dump.get(); }
OpenDump* OpenRun::dump() { return parts_->dump.get(); }
DumpRun* OpenRun::dump_run() { return parts_->dump_run ? &*parts_->dump_run : nullptr; }
const ModelSpec* OpenRun::model() const { return parts_->model ? &*parts_->model : nullptr; }
std::span<const double> OpenRun::norm_eps() const { return parts_->norm_eps; }
const std::string& OpenRun::model_note() const { return parts_->model_note; }
const DumpFacts* OpenRun::facts() const { return parts_->facts; }
const std::string& OpenRun::target() const { return parts_->target; }

std::span<const RunNote> OpenRun::unread() const {
  if (parts_->dump) return parts_->dump->unread();
  return {};
}

Status OpenRun::check() const { return parts_->dump ? parts_->dump->check() : Status{}; }

}  // namespace nanscope::scenarios
