#include "gui/opened_run.h"

#include <functional>
#include <system_error>
#include <utility>

#include "gui/facts.h"

namespace nanscope::gui {

namespace fs = std::filesystem;

fs::path tidy_path(const fs::path& path) {
  std::error_code failed;
  fs::path tidy = path.lexically_normal();
  if (tidy == "." || tidy == ".." || tidy.filename() == "..") {
    const fs::path whole = fs::canonical(tidy, failed);
    if (!failed) tidy = whole;
  }
  return tidy.has_filename() ? tidy : tidy.parent_path();
}

Result<OpenedRun> open_run(const fs::path& path, const std::stop_token& stop,
                           const std::function<void(JobProgress)>& report, bool follow_links) {
  OpenedRun opened;
  opened.path = tidy_path(path);
  const std::stop_callback ends(stop, [source = opened.stop]() mutable { source.request_stop(); });
  scenarios::OpenRunOptions options;
  options.stop = opened.stop.get_token();
  options.replay_bytes = RunFacts::kReplayBudget;
  options.cache_bytes = RunFacts::kCacheBudget;
  options.follow_links = follow_links;
  if (report) {
    options.progress = [&report, name = opened.path.filename().string()](std::uint64_t done, std::uint64_t total) {
      const auto mebibytes = [](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes >> 20U); };
      report({mebibytes(done), mebibytes(total), name});
    };
  }
  Result<std::unique_ptr<scenarios::OpenRun>> run = scenarios::OpenRun::open(path, options);
  if (!run) return tl::unexpected(run.error());
  opened.run = std::move(*run);
  return opened;
}

}  // namespace nanscope::gui
