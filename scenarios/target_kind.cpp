#include "scenarios/target_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/recording/reader.h"
#include "instrument/dump/container.h"
#include "instrument/dump/what_it_is.h"
#include "instrument/files/file.h"
#include "instrument/files/near_names.h"
#include "instrument/gguf/gguf_model.h"
#include "scenarios/library.h"
#include "scenarios/open_run.h"
#include "scenarios/scenario.h"

namespace nanscope::scenarios {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kHead = 16;
/// Names of a folder that are looked at: enough to find a neighbour, or a tensor among other files.
constexpr int kMostNames = 4000;

template <class Iterator, class Visit>
void each_name(const fs::path& folder, Visit visit) {
  std::error_code error;
  Iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (int i = 0; !error && i < kMostNames && entry != Iterator(); ++i, entry.increment(error)) {
    if (!visit(*entry)) return;
  }
}

bool holds_tensors(const fs::path& file) {
  const auto head = read_beginning(file, kHead);
  return head && container_kind_of(file, *head) != nullptr;
}

bool is_folder_of_tensors(const fs::path& folder) {
  bool found = false;
  each_name<fs::recursive_directory_iterator>(folder, [&](const fs::directory_entry& entry) {
    std::error_code error;
    found = entry.is_regular_file(error) && holds_tensors(entry.path());
    return !found;
  });
  return found;
}

std::string first_recording(const fs::path& folder) {
  std::string first;
  each_name<fs::directory_iterator>(folder, [&](const fs::directory_entry& entry) {
    const std::string path = entry.path().string();
    if (entry.path().extension() == ".nanscope" && (first.empty() || path < first)) first = path;
    return true;
  });
  return first;
}

/// nanscope.toml says how the names of a dump are to be read.
bool is_folder_of_scenarios(const fs::path& folder) {
  const auto files = scenario_files(folder);
  return files && std::any_of(files->begin(), files->end(),
                              [](const fs::path& file) { return file.filename() != "nanscope.toml"; });
}

/// Scenarios may have weights below them: they come first.
TargetKind kind_of_folder(const fs::path& folder) {
  if (is_folder_of_scenarios(folder)) return TargetKind::scenarios;
  if (is_folder_of_tensors(folder)) return TargetKind::dump;
  return first_recording(folder).empty() ? TargetKind::other : TargetKind::recordings;
}

TargetKind kind_of_recording(const std::string& path) {
  const auto recording = Recording::open(path);
  if (!recording) return TargetKind::other;
  return recording->info().device == kDumpDevice ? TargetKind::recorded_dump : TargetKind::recording;
}

/// Names beside a path that is not there.
std::vector<std::string> neighbours(const fs::path& path) {
  std::vector<std::string> names;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  each_name<fs::directory_iterator>(folder, [&](const fs::directory_entry& entry) {
    names.push_back(entry.path().filename().string());
    return true;
  });
  std::sort(names.begin(), names.end());
  return names;
}

bool is_scenario_of_library(const std::string& name) {
  std::error_code error;
  return name.find('/') == std::string::npos && fs::is_regular_file(library_folder() / (name + ".toml"), error);
}

/// Of names that end alike only what is before the end tells them apart. Empty: none is near.
std::string nearest_file(const fs::path& name, const std::vector<std::string>& names) {
  std::vector<std::string> stems;
  for (const std::string& other : names) {
    if (fs::path(other).extension() == name.extension()) stems.push_back(fs::path(other).stem().string());
  }
  if (const std::string* stem = nearest(name.stem().string(), stems)) return *stem + name.extension().string();
  std::vector<std::string> others;
  std::copy_if(names.begin(), names.end(), std::back_inserter(others),
               [&](const std::string& other) { return fs::path(other).extension() != name.extension(); });
  const std::string* near = nearest(name.string(), others);
  return near != nullptr ? *near : "";
}

/// "; did you mean 'run.nanscope'?", "; nanscope run NAME makes a recording of the scenario".
std::string meant(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::vector<std::string> names = neighbours(path);
  const auto beside = [&](const std::string& found) {
    return fmt::format("; did you mean '{}'?", (path.parent_path() / found).string());
  };
  if (std::binary_search(names.begin(), names.end(), name + ".nanscope")) return beside(name + ".nanscope");
  if (is_scenario_of_library(path.string()))
    return fmt::format("; 'nanscope run {}' makes a recording of that scenario", path.string());
  const std::string near = nearest_file(path.filename(), names);
  if (near.empty() && may_be_repository(path))
    return "; if it is a repository of Hugging Face, give the folder of its files: nanscope downloads nothing";
  return near.empty() ? "" : beside(near);
}

/// What it is, and the command that takes it.
std::string instead(TargetKind kind, const std::string& path) {
  switch (kind) {
    case TargetKind::recording:
      return fmt::format("is a recording: 'nanscope diagnose {0}' explains it, 'nanscope replay {0}' runs it again",
                         path);
    case TargetKind::recorded_dump:
      return fmt::format("is a recording of a dump, which cannot be run again: 'nanscope diagnose {}' explains it",
                         path);
    case TargetKind::scenario:
      return fmt::format("is a scenario: 'nanscope run {}' makes a recording of it", path);
    case TargetKind::scenarios:
      return fmt::format("is a folder of scenarios: 'nanscope run {}' runs them", path);
    case TargetKind::recordings:
      return fmt::format("is a folder with recordings: name one of them, such as '{}'", first_recording(path));
    case TargetKind::dump:
      if (is_checkpoint(path)) return fmt::format("is a checkpoint: 'nanscope run --model {} -p PROMPT' runs it", path);
      return fmt::format("is a dump, which cannot be run: 'nanscope diagnose {}' explains it", path);
    default:
      return {};
  }
}

bool takes_it(Takes takes, TargetKind kind) {
  if (kind == TargetKind::other || kind == TargetKind::missing) return true;
  switch (takes) {
    case Takes::scenarios:
      return kind == TargetKind::scenario || kind == TargetKind::scenarios;
    case Takes::recordings:
      return kind == TargetKind::recording;
    case Takes::dumps:
      return kind == TargetKind::dump;
    case Takes::runs:
      break;
  }
  return kind == TargetKind::recording || kind == TargetKind::recorded_dump || kind == TargetKind::dump;
}

}  // namespace

bool is_checkpoint(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "config.json", error) || gguf_of(folder).value_or(std::nullopt);
}

TargetKind kind_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    return error && error != std::errc::no_such_file_or_directory ? TargetKind::other : TargetKind::missing;
  if (fs::is_directory(status)) return kind_of_folder(path);
  if (!fs::is_regular_file(status)) return TargetKind::other;
  if (looks_like_recording(path)) return kind_of_recording(path);
  if (fs::path(path).extension() == ".toml") return TargetKind::scenario;
  return holds_tensors(path) ? TargetKind::dump : TargetKind::other;
}

Status check_target(const std::string& path, Takes takes) {
  // Whoever takes any of them need not look inside.
  std::error_code ignored;
  if (takes == Takes::runs && fs::is_regular_file(path, ignored) && looks_like_recording(path)) return {};
  const TargetKind kind = kind_of(path);
  if (kind == TargetKind::missing) {
    std::error_code error;
    const bool link = fs::is_symlink(fs::symlink_status(path, error));
    return fail(fmt::format("{}: {}{}", path, link ? "a link that leads nowhere" : "no such file or folder",
                            link ? "" : meant(path)));
  }
  const bool tensors_too = kind == TargetKind::scenarios && takes != Takes::recordings && is_folder_of_tensors(path);
  if (takes_it(takes, kind) || tensors_too) return {};
  return fail(fmt::format("{}: {}", path, instead(kind, path)));
}

}  // namespace nanscope::scenarios
