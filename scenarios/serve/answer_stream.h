#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/serve/jobs.h"
#include "scenarios/serve/live_session.h"
#include "scenarios/serve/protocol.h"

namespace nanscope::serve {

/// Cuts a growing answer into the events of a stream, and gives them to the client's job.
class AnswerStream {
 public:
  AnswerStream(std::shared_ptr<Job> job, Envelope envelope) : job_(std::move(job)), envelope_(std::move(envelope)) {}

  /// The next token. Sends the text that no later token can change.
  void add(std::int64_t request, const LiveSession& session, const Position& position);
  /// Sends the rest, the usage if the client asked for it, and the end of the stream.
  void finish(const Answer& answer);

 private:
  void send(std::int64_t request, const std::string& text, std::size_t end, std::string_view reason);

  std::shared_ptr<Job> job_;
  Envelope envelope_;
  std::vector<std::int32_t> tokens_;
  std::vector<Position> positions_;
  std::size_t sent_ = 0;
  bool stopped_ = false;
};

}  // namespace nanscope::serve
