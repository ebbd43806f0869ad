#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/investigate.h"
#include "core/recording/reader.h"
#include "instrument/files/file.h"
#include "scenarios/analysis.h"
#include "scenarios/replay.h"
#include "scenarios/report/html_report.h"

#ifdef NANSCOPE_GUI
#include "gui/app.h"
#endif

namespace nanscope::cli {

namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::string file;
  std::string output;
  bool force = false;
  bool counterfactuals = true;
};

#ifdef NANSCOPE_GUI

constexpr std::size_t kMostPictureBytes = std::size_t{64} << 20;

/// One view at the place where it matters.
struct Shot {
  std::string view;
  std::string title;
  std::string caption;
  std::string place;
};

const Link* found_link(const Cascade& cascade, const std::string& id) {
  const auto link = std::find_if(cascade.links.begin(), cascade.links.end(),
                                 [&](const Link& one) { return one.id == id && one.state == LinkState::found; });
  return link == cascade.links.end() ? nullptr : &*link;
}

std::vector<Shot> shots(const scenarios::Analysis& analysis) {
  const Diagnosis& diagnosis = analysis.diagnosis;
  std::vector<Shot> wanted;
  if (diagnosis.clean()) return wanted;
  const Fault& root = diagnosis.faults.at(diagnosis.root_cause.value_or(0));
  const auto birth =
      std::find_if(diagnosis.faults.begin(), diagnosis.faults.end(), [](const Fault& fault) { return fault.breaks; });
  const Where& born = birth == diagnosis.faults.end() ? root.where : birth->where;
  wanted.push_back({"front", "Front",
                    "Every token of every request (columns) through every op (rows), by its worst value.",
                    place_text(born)});
  if (const Link* clipped = found_link(analysis.cascade, "values-clipped")) {
    const std::string place = place_text(clipped->where);
    wanted.push_back({"scales", "Scales", "What each layer stored against what its scale can hold.", place});
    wanted.push_back({"bits", "Bits", "The clipped value: before it was stored, as stored, as read back.", place});
  }
  if (const Link* column = found_link(analysis.cascade, "nan-score-column")) {
    wanted.push_back(
        {"tensor", "Scores", "One bad key is a column of the attention scores.", place_text(column->where)});
  }
  return wanted;
}

/// The pictures that can be taken; a view that cannot show a place is left out, and said on standard error.
Result<std::vector<report::Picture>> pictures(const std::string& file, const scenarios::Analysis& analysis,
                                              const fs::path& scratch) {
  const std::vector<std::string> views = gui::all_views();
  std::vector<report::Picture> taken;
  for (const Shot& shot : shots(analysis)) {
    if (std::find(views.begin(), views.end(), shot.view) == views.end()) continue;
    gui::AppOptions options;
    options.file = file;
    options.screenshot = scratch;
    options.view = shot.view;
    options.place = shot.place;
    options.size = {1400, 860};
    options.theme = "dark";
    if (const Status drawn = gui::run_app(options); !drawn) {
      complain(fmt::format("no picture of the {} view: {}", shot.view, drawn.error().message));
      continue;
    }
    auto png = read_file(scratch, kMostPictureBytes);
    if (!png) return tl::unexpected(png.error());
    taken.push_back({shot.title, shot.caption, std::move(*png)});
  }
  std::error_code ignored;
  fs::remove(scratch, ignored);
  return taken;
}

#else

/// Without the window no view can be drawn: the page shows the front as text.
Result<std::vector<report::Picture>> pictures(const std::string&, const scenarios::Analysis&, const fs::path&) {
  return std::vector<report::Picture>{};
}

#endif

int write_report(const ReportOptions& options) {
  const Interrupt interrupt;
  const fs::path output = options.output.empty() ? fs::path(options.file).stem().string() + ".html" : options.output;
  std::error_code error;
  if (!options.force && fs::exists(output, error)) {
    return complain(fmt::format("{}: exists; name another file with -o, or use --force", output.string()));
  }
  const auto recording = Recording::open(options.file);
  if (!recording) return complain(recording.error().message);
  scenarios::RecordingTensors tensors(*recording);
  const auto analysis = scenarios::analyse(*recording, tensors, options.file);
  if (!analysis) return complain(analysis.error().message);
  const auto taken = pictures(options.file, *analysis, output.string() + ".png.part");
  if (!taken) return complain(taken.error().message);
  std::optional<scenarios::Counterfactuals> changes;
  if (options.counterfactuals && !analysis->diagnosis.clean()) {
    auto found = investigate(*recording, interrupt);
    if (!found) {
      complain(found.error().message);
      return interrupt.requested() ? kInterrupted : kBadInput;
    }
    changes = std::move(*found);
  }
  const std::string html = report::html_report(*analysis, changes ? &*changes : nullptr, *taken);
  if (const Status written = write_file(output, std::as_bytes(std::span(html))); !written) {
    return complain(written.error().message);
  }
  print(fmt::format("{}\n", output.string()));
  return analysis->diagnosis.clean() ? kClean : kFound;
}

}  // namespace

void add_report_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command =
      app.add_subcommand("report", "One self-contained page: diagnosis, chain, pictures, counterfactuals");
  command->add_option("FILE", options->file, "A recording")->required();
  command->add_option("-o,--output", options->output, "The page (default: FILE's name with .html, here)");
  command->add_flag("--force", options->force, "Replace the page");
  command->add_flag("--counterfactuals,!--no-counterfactuals", options->counterfactuals,
                    "Run it again with each knob changed (the default; takes seconds)");
  command->footer(
      "Examples:\n"
      "  nanscope report kv-scale-lock.nanscope -o incident.html\n"
      "  nanscope report kv-scale-lock.nanscope --no-counterfactuals");
  command->callback([options, &action] { action = [options] { return write_report(*options); }; });
}

}  // namespace nanscope::cli
