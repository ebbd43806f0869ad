#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/recording/writer.h"
#include "core/result.h"
#include "instrument/recorder/recorder_probe.h"
#include "scenarios/run_spec.h"
#include "scenarios/serve/answer_probe.h"
#include "scenarios/serve/question.h"
#include "scenarios/workbench.h"

namespace nanscope::serve {

struct SessionOptions {
  std::filesystem::path recording;  ///< empty: nothing is recorded
  bool force = false;               ///< replace a file that exists
  std::string capture = "ring:1";
  RunLimits limits;           ///< of the model, and of each request
  std::stop_token stop = {};  ///< ends the load of the model and a request that runs, with the error "stopped"
};

/// One run of an engine whose requests are questions of clients. The cache and the scales live as long as it does. Used
/// by one thread.
class LiveSession {
 public:
  /// `spec` has no requests. Errors: the recording's file, the device, the model.
  static Result<std::unique_ptr<LiveSession>> open(const scenarios::RunSpec& spec, const SessionOptions& options);

  /// Why a question cannot be answered.
  Status accepts(const Question& question) const;
  /// Answers the questions, together where the engine runs batches. After an error the session is over.
  Result<std::vector<Answer>> answer(std::span<const Question> questions, AnswerProbe::Listener listener);
  /// The id of the next request.
  std::int64_t next_request() const { return std::ssize(spec_.requests); }
  /// Completes the recording, which can be replayed then.
  Status finish();

  const Tokenizer& tokenizer() const { return *workbench_->tokenizer(); }
  const EngineConfig& config() const { return spec_.config; }
  std::string text_of(std::span<const std::int32_t> tokens) const;

 private:
  explicit LiveSession(scenarios::RunSpec spec) : spec_(std::move(spec)) {}
  Status begin(std::optional<OutputFile> file, const CapturePolicy& capture);

  scenarios::RunSpec spec_;
  std::unique_ptr<scenarios::Workbench> workbench_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RecordingWriter> writer_;
  NullProbe nobody_;
  std::unique_ptr<RecorderProbe> recorder_;
  std::unique_ptr<AnswerProbe> probe_;
  RunControl control_;
  std::vector<std::int32_t> ends_;
  std::unique_ptr<LiveRun> run_;
};

}  // namespace nanscope::serve
