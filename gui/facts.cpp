#include "gui/facts.h"

#include <chrono>

#include "gui/model_check.h"
#include "instrument/recompute/kernel_arithmetic.h"

namespace nanscope::gui {
namespace {

/// What reading a map may take of the store's thread before others have their turn.
constexpr auto kMapSlice = std::chrono::milliseconds(100);

}  // namespace

RunFacts::RunFacts(OpenedRun run) : run_(std::move(run)) {}

Result<std::shared_ptr<const RunMap>> RunFacts::map() {
  if (map_ && !map_maker_) return map_;
  const auto begin = RunMapMaker::Clock::now();
  Status made;
  if (!map_maker_) {
    map_maker_ = std::make_unique<RunMapMaker>(view(), rows(), stop());
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

Result<std::shared_ptr<const TensorIndex>> RunFacts::tensor_index() {
  const bool clips_known = map_ != nullptr && map_->exact;
  if (index_ && (index_clips_ || !clips_known || map_->clipped_rows.empty())) return index_;
  Result<TensorIndex> index = make_tensor_index(view(), rows(), clips_known ? &map_->clipped_rows : nullptr, stop());
  if (!index) return tl::unexpected(index.error());
  index_ = std::make_shared<const TensorIndex>(std::move(*index));
  index_clips_ = clips_known;
  return index_;
}

DiagnoseOptions RunFacts::diagnosis_options() const {
  DiagnoseOptions options;
  options.target = path().filename().string();
  options.stop = stop();
  return options;
}

Result<std::shared_ptr<const Story>> RunFacts::story() {
  if (!story_) {
    KernelArithmetic arithmetic;
    Result<Diagnosis> diagnosis = diagnose(view(), arithmetic, diagnosis_options());
    if (!diagnosis) return tl::unexpected(diagnosis.error());
    if (stop().stop_requested()) return fail("stopped");
    story_ = std::make_shared<const Story>(make_story(*diagnosis, &view()));
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
    difference_maker_ = std::make_unique<RunDifferenceMaker>(map_, view(), beside_->map_, beside_->view(), stop());
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

ReferenceSource* RunFacts::model() const { return beside_run_ ? beside_run_->check.get() : nullptr; }

Result<std::shared_ptr<const ErrorMap>> RunFacts::errors(const std::shared_ptr<const Findings>& findings) {
  const auto made = map();
  if (!made) return tl::unexpected(made.error());
  if (!(*made)->exact) return nullptr;
  if (!error_maker_) error_maker_ = std::make_unique<ErrorMapMaker>(map_, view());
  error_maker_->add(findings);
  if (Status read = view().status(); !read) return tl::unexpected(read.error());
  return std::make_shared<const ErrorMap>(error_maker_->map());
}

Status RunFacts::put_beside(BesideRunPtr run) {
  std::unique_ptr<RunFacts> facts;
  if (run && !run->check) {
    Result<OpenedRun> opened = open_run(run->path, stop());
    if (!opened) return tl::unexpected(opened.error());
    opened->stop = run_.stop;
    facts = std::make_unique<RunFacts>(std::move(*opened));
  }
  difference_maker_.reset();
  difference_.reset();
  error_maker_.reset();
  beside_ = std::move(facts);
  beside_run_ = std::move(run);
  return {};
}

}  // namespace nanscope::gui
