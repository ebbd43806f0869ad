#include "gui/facts.h"

#include <chrono>

#include "instrument/diagnosis/cascade.h"
#include "instrument/diagnosis/diagnosis.h"
#include "core/dump/recorded_dump.h"

namespace nanscope::gui {
namespace {

/// What reading a map may take of the store's thread before others have their turn.
constexpr auto kMapSlice = std::chrono::milliseconds(100);

}  // namespace

RunFacts::RunFacts(Recording recording, std::stop_token stop)
    : recording_(std::move(recording)),
      stop_(std::move(stop)),
      source_(recording_, stop_, kReplayBudget),
      tensors_(source_, stop_) {
  recording_.stop_with(stop_);
}

Result<TensorData> RunFacts::StoppableTensors::fetch(std::int64_t tensor) {
  if (stop_.stop_requested()) return fail("stopped");
  return source_.fetch(tensor);
}

Result<std::shared_ptr<const RunMap>> RunFacts::map() {
  if (map_ && !map_maker_) return map_;
  const auto begin = RunMapMaker::Clock::now();
  Status made;
  if (!map_maker_) {
    map_maker_ = std::make_unique<RunMapMaker>(rows_, stop_);
    made = map_maker_->begin();
  }
  if (made) made = map_maker_->refine(begin + kMapSlice);
  if (!made) {
    map_maker_.reset();
    return tl::unexpected(made.error());
  }
  if (map_maker_->map().exact) {
    map_ = std::make_shared<const RunMap>(map_maker_->take());
    map_maker_.reset();
  } else if (!map_) {
    map_ = std::make_shared<const RunMap>(map_maker_->map());
  }
  return map_;
}

Result<std::shared_ptr<const Story>> RunFacts::story() {
  if (!story_) {
    RecordingRun run(recording_);
    const Result<Diagnosis> diagnosis = diagnose_recorded(run, tensors_, recording_.path().filename().string());
    if (!diagnosis) return tl::unexpected(diagnosis.error());
    const Result<Cascade> links = cascade(run, tensors_);
    if (!links) return tl::unexpected(links.error());
    if (stop_.stop_requested()) return fail("stopped");
    story_ = std::make_shared<const Story>(make_story(*diagnosis, *links));
  }
  return story_;
}

Result<std::shared_ptr<const RunDifference>> RunFacts::difference() {
  if (!beside_ || difference_) return difference_;
  for (RunFacts* side : {this, beside_.get()}) {
    const auto made = side->map();
    if (!made) return tl::unexpected(made.error());
    if (!(*made)->exact) return nullptr;
  }
  const auto begin = RunDifferenceMaker::Clock::now();
  if (!difference_maker_) {
    difference_maker_ = std::make_unique<RunDifferenceMaker>(map_, rows_, beside_->map_, beside_->rows_, stop_);
  }
  if (Status compared = difference_maker_->refine(begin + kMapSlice); !compared) {
    difference_maker_.reset();
    return tl::unexpected(compared.error());
  }
  if (difference_maker_->done()) {
    difference_ = std::make_shared<const RunDifference>(difference_maker_->take());
    difference_maker_.reset();
  }
  return difference_;
}

Status RunFacts::put_beside(BesideRunPtr run) {
  std::unique_ptr<RunFacts> facts;
  if (run) {
    Result<Recording> recording = Recording::open(run->path);
    if (!recording) return tl::unexpected(recording.error());
    facts = std::make_unique<RunFacts>(std::move(*recording), stop_);
  }
  difference_maker_.reset();
  difference_.reset();
  beside_ = std::move(facts);
  beside_run_ = std::move(run);
  return {};
}

}  // namespace nanscope::gui
