#pragma once
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>

#include "core/result.h"
#include "gui/background.h"
#include "scenarios/open_run.h"

namespace nanscope::gui {

/// A recording or a dump that is open, and the means to end what reads it.
struct OpenedRun {
  std::unique_ptr<scenarios::OpenRun> run;
  std::stop_source stop;
  std::filesystem::path path;
};

/// A path without what people type at its ends, so that every folder has a name.
std::filesystem::path tidy_path(const std::filesystem::path& path);

/// `report` is told how far a dump is scanned, in MiB. Once `stop` is asked for, opening ends soon. `follow_links`:
/// those of a dump that lead out of it. Errors: as of OpenRun::open().
Result<OpenedRun> open_run(const std::filesystem::path& path, const std::stop_token& stop = {},
                           const std::function<void(JobProgress)>& report = {}, bool follow_links = false);

}  // namespace nanscope::gui
