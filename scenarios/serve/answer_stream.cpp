#include "scenarios/serve/answer_stream.h"

#include <fmt/format.h>

#include <algorithm>

namespace nanscope::serve {
namespace {

std::string server_event(std::string_view data) { return fmt::format("data: {}\n\n", data); }

}  // namespace

void AnswerStream::add(std::int64_t request, const LiveSession& session, const Position& position) {
  tokens_.push_back(position.chosen.token);
  positions_.push_back(position);
  if (stopped_) return;
  const SoFar cut = cut_at_stop(session.text_of(tokens_), job_->question.stops);
  stopped_ = cut.stopped;
  send(request, cut.text, cut.stopped ? cut.text.size() : certain(cut.text, job_->question.stops), {});
}

void AnswerStream::finish(const Answer& answer) {
  const SoFar cut = cut_at_stop(answer.text, job_->question.stops);
  send(answer.row.id, cut.text, cut.text.size(), finish_reason(answer, cut.stopped));
  if (job_->question.stream_usage)
    job_->add_event(server_event(dump(usage_event(job_->question, answer.row, envelope_))));
  job_->add_event(server_event("[DONE]"));
}

void AnswerStream::send(std::int64_t request, const std::string& text, std::size_t end, std::string_view reason) {
  end = std::max(end, sent_);
  job_->add_event(
      server_event(dump(event_json(job_->question, request, std::string_view(text).substr(sent_, end - sent_),
                                   std::exchange(positions_, {}), reason, envelope_))));
  sent_ = end;
}

}  // namespace nanscope::serve
