#include "gui/prepare/beside.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "core/counted.h"
#include "core/files/output_file.h"
#include "core/files/temporary.h"
#include "core/numbers/format.h"
#include "gui/export/new_file.h"
#include "gui/prepare/story.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/diff/diff.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"

namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 80;  ///< of a change in a file's name
constexpr std::size_t kDescribed = 64;    ///< differences among which one is sought that this run has

/// What every system takes in the name of a file.
std::string file_name_of(const std::string& label) {
  std::string name;
  for (const char c : label.substr(0, kLongestName)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '=';
    name += plain ? c : '-';
  }
  return name;
}

std::string shape_of(const Tensor& tensor) {
  return fmt::format("{} \u00D7 {} {}", tensor.tokens, tensor.channels, name(tensor.format));
}

std::string how(const Difference& first) {
  switch (first.kind) {
    case DifferenceKind::only_in_a:
      return "which the other run lacks";
    case DifferenceKind::only_in_b:
      return "which only the other run has";
    case DifferenceKind::shape:
      return fmt::format("{} here, {} there", shape_of(*first.a), shape_of(*first.b));
    case DifferenceKind::content:
    case DifferenceKind::not_finite:
      break;
  }
  return "other bits";
}

Status copy_into(OutputFile& copy, const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> block(std::size_t{1} << 20);
  while (in) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto bytes = std::as_bytes(std::span(block)).first(static_cast<std::size_t>(in.gcount()));
    if (Status written = copy.write(bytes); !written) return written;
  }
  return in.eof() ? Status{} : fail(path.string() + ": cannot be read");
}

}  // namespace

Result<std::shared_ptr<const ScratchFolder>> ScratchFolder::make() {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  std::string name = (base / "nanscope-XXXXXX").string();
  if (error || mkdtemp(name.data()) == nullptr) {
    return fail(fmt::format("no folder for the other run can be made in {}", base.string()));
  }
  std::shared_ptr<const ScratchFolder> made(new ScratchFolder(name));
  if (Status entered = temporaries::enter(name); !entered) return tl::unexpected(entered.error());
  return made;
}

ScratchFolder::~ScratchFolder() {
  temporaries::discard(path_);
  temporaries::leave(path_);
}

Result<BesideRunPtr> run_changed(const fs::path& recording, const std::vector<std::string>& settings,
                                 const std::stop_token& stop, const std::function<void(JobProgress)>& report) {
  const Result<Recording> original = Recording::open_checked(recording);
  if (!original) return tl::unexpected(original.error());
  Result<scenarios::RunSpec> spec = scenarios::run_spec_of(*original);
  if (!spec) return tl::unexpected(spec.error());
  const EngineConfig recorded_config = spec->config;
  if (Status set = scenarios::apply_settings(spec->config, settings); !set) return tl::unexpected(set.error());
  const auto bench = scenarios::Workbench::open(spec->config, kReplayLimits);
  if (!bench) return tl::unexpected(bench.error());
  if (Status same = (*bench)->load_recorded(recorded_config, *original, stop); !same)
    return tl::unexpected(same.error());
  const auto scratch = ScratchFolder::make();
  if (!scratch) return tl::unexpected(scratch.error());
  auto run = std::make_shared<BesideRun>();
  run->label = fmt::format("{}", fmt::join(settings, " "));
  run->path = (*scratch)->path() / (file_name_of(run->label) + ".nanscope");
  run->scratch = *scratch;
  scenarios::RecordOptions options;
  options.path = run->path;
  options.capture = "ring:1";
  options.control.stop = stop;
  options.control.progress = [&](const Progress& now) { report({now.ops, now.expected_ops, run->label}); };
  const auto recorded = scenarios::record(**bench, *spec, options);
  if (!recorded) return tl::unexpected(recorded.error());
  return run;
}

Result<fs::path> keep_beside(const BesideRun& run, const fs::path& recording) {
  const std::string stem = recording.stem().string() + "-" + file_name_of(run.label);
  return write_new_file(folders_beside(recording), stem, "nanscope",
                        [&](OutputFile& file) { return copy_into(file, run.path); });
}

Result<Divergence> find_divergence(RunView& here, RunView& there) {
  const Result<DiffReport> report = diff(here, there, {.limit = kDescribed, .names = {}});
  if (!report) return tl::unexpected(report.error());
  Divergence found;
  if (report->same()) {
    found.words = fmt::format("no difference: {} have equal bits", counted(report->compared, "tensor"));
    return found;
  }
  // One can go only to what is here.
  const auto& all = report->differences;
  const auto reachable = std::find_if(all.begin(), all.end(), [](const Difference& d) { return d.a.has_value(); });
  const Difference& first = reachable != all.end() ? *reachable : all.front();
  if (first.a) found.first = selection_of(first.where);
  const std::string others = report->unmatched > 0 ? fmt::format(", {} unmatched", report->unmatched) : "";
  found.words = fmt::format("first differs at {}, {} \u00B7 {} of {} differ{}", tensor_text(first.where), how(first),
                            report->differing, counted(report->compared, "tensor"), others);
  return found;
}

}  // namespace nanscope::gui
