#include "scenarios/serve/live_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/recording/capture_policy.h"
#include "core/recording/recording_file.h"
#include "instrument/engine/prompt.h"
#include "scenarios/record.h"

namespace nanscope::serve {

Result<std::unique_ptr<LiveSession>> LiveSession::open(const scenarios::RunSpec& spec, const SessionOptions& options) {
  if (spec.config.train.steps > 0) return fail("a run that trains (train.steps above 0) answers no requests");
  const auto capture = CapturePolicy::parse(options.capture);
  if (!capture) return tl::unexpected(capture.error());
  std::optional<OutputFile> file;
  if (!options.recording.empty()) {
    const OutputOptions output{.replace = options.force, .inputs = scenarios::files_read(spec), .mode = 0644};
    auto made = create_recording_file(options.recording, output, true);
    if (!made) return tl::unexpected(made.error());
    file = std::move(*made);
  }
  std::unique_ptr<LiveSession> session(new LiveSession(spec));
  auto workbench = scenarios::Workbench::open(spec.config, options.limits);
  if (!workbench) return tl::unexpected(workbench.error());
  session->workbench_ = std::move(*workbench);
  session->control_.stop = options.stop;
  if (Status begun = session->begin(std::move(file), *capture); !begun) return tl::unexpected(begun.error());
  return session;
}

Status LiveSession::begin(std::optional<OutputFile> file, const CapturePolicy& capture) {
  spec_.requests.clear();
  spec_.served = true;
  auto engine = workbench_->engine(spec_.config, control_.stop);
  if (!engine) return tl::unexpected(engine.error());
  engine_ = std::move(*engine);
  ends_ = end_tokens(engine_->config().model, tokenizer());
  Probe* next = &nobody_;
  if (file) {
    auto writer =
        RecordingWriter::create(std::move(*file), scenarios::run_info_of(spec_, workbench_->device().info(), capture));
    if (!writer) return tl::unexpected(writer.error());
    writer_ = std::move(*writer);
    recorder_ = std::make_unique<RecorderProbe>(*writer_, workbench_->device(), workbench_->weights(), capture);
    next = recorder_.get();
  }
  probe_ = std::make_unique<AnswerProbe>(*next, workbench_->device(), tokenizer());
  auto run = engine_->begin(spec_.transients, *probe_, control_);
  if (!run) return tl::unexpected(run.error());
  run_ = std::move(*run);
  return {};
}

Status LiveSession::accepts(const Question& question) const {
  const BatchConfig& batch = spec_.config.batch;
  if (question.prompt_chances && batch.requests > 1 && batch.chunk != 1) {
    return fail("log probabilities of a prompt are not computed where the engine runs batches (engine.batch)");
  }
  return run_->accepts(question.spec);
}

Result<std::vector<Answer>> LiveSession::answer(std::span<const Question> questions, AnswerProbe::Listener listener) {
  const std::int64_t first = next_request();
  std::vector<RequestSpec> requests;
  for (const Question& question : questions) {
    probe_->expect(first + std::ssize(requests), question);
    requests.push_back(question.spec);
    requests.back().arrive = run_->now();
  }
  spec_.requests.insert(spec_.requests.end(), requests.begin(), requests.end());
  probe_->listen(std::move(listener));
  auto rows = run_->run(requests);
  probe_->listen({});
  if (!rows) return tl::unexpected(rows.error());
  std::vector<Answer> answers;
  for (RequestRow& row : *rows) {
    Answer answer;
    probe_->give(row.id, answer);
    const auto& tokens = row.output_tokens;
    answer.ended = !tokens.empty() && std::find(ends_.begin(), ends_.end(), tokens.back()) != ends_.end();
    const auto most = static_cast<std::size_t>(requests[answers.size()].max_tokens);
    answer.refused = !answer.ended && tokens.size() < most;
    answer.text = text_of(tokens);
    if (questions[answers.size()].echo) {
      answer.prompt_text = text_of(row.prompt_tokens);
      for (const std::int32_t token : row.prompt_tokens)
        answer.prompt_texts.emplace_back(tokenizer().token_text(token));
    }
    answer.row = std::move(row);
    answers.push_back(std::move(answer));
  }
  return answers;
}

Status LiveSession::finish() {
  const auto result = run_->finish();
  if (!result) return tl::unexpected(result.error());
  if (!writer_) return {};
  spec_.served = false;
  writer_->set_config(scenarios::to_json(spec_));
  return writer_->finish(result->ops);
}

std::string LiveSession::text_of(std::span<const std::int32_t> tokens) const {
  if (tokenizer().vocab_size() == 0) return fmt::format("{}", fmt::join(tokens, " "));
  return tokenizer().decode(tokens, true);
}

}  // namespace nanscope::serve
