#include "gui/facts.h"

#include "core/diagnosis/cascade.h"
#include "core/diagnosis/diagnosis.h"

namespace nanscope::gui {

RunFacts::RunFacts(Recording recording, std::stop_token stop)
    : recording_(std::move(recording)), stop_(std::move(stop)), source_(recording_), tensors_(source_, stop_) {}

Result<TensorData> RunFacts::StoppableTensors::fetch(std::int64_t tensor) {
  if (stop_.stop_requested()) return fail("stopped");
  return source_.fetch(tensor);
}

Result<std::shared_ptr<const RunMap>> RunFacts::map() {
  if (!map_) {
    RecordingRun run(recording_);
    Result<RunMap> made = make_run_map(run, stop_);
    if (!made) return tl::unexpected(made.error());
    map_ = std::make_shared<const RunMap>(std::move(*made));
  }
  return map_;
}

Result<std::shared_ptr<const Story>> RunFacts::story() {
  if (!story_) {
    RecordingRun run(recording_);
    const Result<Diagnosis> diagnosis = diagnose(run, tensors_, recording_.path().filename().string());
    if (!diagnosis) return tl::unexpected(diagnosis.error());
    const Result<Cascade> links = cascade(run, tensors_);
    if (!links) return tl::unexpected(links.error());
    if (stop_.stop_requested()) return fail("stopped");
    story_ = std::make_shared<const Story>(make_story(*diagnosis, *links));
  }
  return story_;
}

}  // namespace nanscope::gui
