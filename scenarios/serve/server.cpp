#include "scenarios/serve/server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <map>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "core/system_reason.h"
#include "scenarios/serve/answer_stream.h"
#include "scenarios/serve/jobs.h"
#include "scenarios/serve/protocol.h"

namespace nanscope::serve {

namespace {

constexpr std::chrono::seconds kIdle{2};       // that a connection may stay open without a request
constexpr std::chrono::seconds kReadTime{30};  // between two parts of a request
constexpr const char* kJson = "application/json";

Job::Outcome error_outcome(std::string_view message, int status) {
  const std::string_view kind = status < 500 ? "invalid_request_error" : "server_error";
  return {status, dump(error_json(message, kind, status))};
}

Job::Outcome too_large() { return error_outcome(fmt::format("the body is larger than {} bytes", kMostBody), 413); }

void send(httplib::Response& response, const Job::Outcome& outcome) {
  response.status = outcome.status;
  response.set_content(outcome.body, kJson);
}

}  // namespace

class Server::Impl {
 public:
  Impl(LiveSession& session, ServerOptions options)
      : session_(session), options_(std::move(options)), queue_(kMostWaiting) {}

  Status open() {
    http_.new_task_queue = [] { return new httplib::ThreadPool(kConnections); };
    http_.set_payload_max_length(kMostBody);
    http_.set_tcp_nodelay(true);
    // The library's own options let two servers share a port.
    http_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    // Before the body is read.
    http_.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
      if (request.get_header_value<std::uint64_t>("Content-Length") <= kMostBody) {
        return httplib::Server::HandlerResponse::Unhandled;
      }
      send(response, too_large());
      return httplib::Server::HandlerResponse::Handled;
    });
    http_.set_keep_alive_timeout(kIdle.count());
    http_.set_keep_alive_max_count(1'000'000);
    http_.set_read_timeout(kReadTime);
    http_.set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      send(response, response.status == 413 ? too_large() : error_outcome("no such path or method", response.status));
    });
    http_.set_exception_handler([](const httplib::Request&, httplib::Response& response, std::exception_ptr problem) {
      try {
        std::rethrow_exception(std::move(problem));
      } catch (const std::exception& error) {
        send(response, error_outcome(reason_of(error), 500));
      }
    });
    const auto models = [this](const httplib::Request&, httplib::Response& response) {
      send(response, {200, dump(models_json(envelope(), longest()))});
    };
    http_.Get("/v1/models", models);
    http_.Get("/health", [](const httplib::Request&, httplib::Response& response) { response.status = 200; });
    http_.Post("/v1/completions", [this](const httplib::Request& request, httplib::Response& response) {
      ask(read_completion(request.body), response);
    });
    http_.Post("/v1/chat/completions", [this](const httplib::Request& request, httplib::Response& response) {
      ask(options_.chat ? read_chat(request.body)
                        : fail("the model has a chat template, which is not applied here: use /v1/completions"),
          response);
    });
    if (options_.port == 0) {
      port_ = http_.bind_to_any_port(options_.host);
    } else {
      port_ = http_.bind_to_port(options_.host, options_.port) ? options_.port : -1;
    }
    if (port_ > 0) return {};
    return fail(
        fmt::format("{}:{}: cannot be listened on: name another --host or --port", options_.host, options_.port));
  }

  Status run(const std::stop_token& stop) {
    std::atomic<bool> ended = false;
    std::thread listener([&] {
      http_.listen_after_bind();
      ended = true;
    });
    // A server that does not listen yet cannot be stopped.
    while (!http_.is_running() && !ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Status status;
    if (ended) {
      status = fail(fmt::format("{}:{}: cannot be listened on", options_.host, port_));
      refuse(queue_.close());
    }
    {
      const std::stop_callback on_stop(stop, [this] { refuse(queue_.close()); });
      const auto together = static_cast<std::size_t>(session_.config().batch.requests);
      for (auto jobs = queue_.take(together); !jobs.empty() && status; jobs = queue_.take(together)) {
        status = answer(std::move(jobs));
        if (!status) refuse(queue_.close());
      }
    }
    http_.stop();
    listener.join();
    return status;
  }

  int port() const { return port_; }

 private:
  Envelope envelope() const { return {options_.model, static_cast<std::int64_t>(std::time(nullptr))}; }

  /// Tokens of a prompt with its answer that fit.
  std::int64_t longest() const {
    const KvConfig& kv = session_.config().kv;
    const std::int64_t blocks = kv.table_blocks > 0 ? std::min(kv.table_blocks, kv.blocks - 1) : kv.blocks;
    const std::int64_t cached = blocks * kv.block_size;
    const std::int64_t positions = session_.config().model.positions;
    return positions > 0 ? std::min(positions, cached) : cached;
  }

  static void refuse(const std::vector<std::shared_ptr<Job>>& jobs) {
    for (const auto& job : jobs) job->finish(error_outcome("the server ends", 503));
  }

  void ask(Result<Question> question, httplib::Response& response) {
    if (!question) return send(response, error_outcome(question.error().message, 400));
    const auto job = std::make_shared<Job>(std::move(*question));
    if (!queue_.push(job)) return send(response, error_outcome("too many requests wait, or the server ends", 503));
    if (!job->question.stream || !job->begins()) return send(response, job->wait());
    response.set_chunked_content_provider("text/event-stream", [job](std::size_t, httplib::DataSink& sink) {
      const auto event = job->next_event();
      if (!event) {
        sink.done();
        return true;
      }
      return sink.write(event->data(), event->size());
    });
  }

  /// On the thread of the engine.
  Status answer(std::vector<std::shared_ptr<Job>> jobs) {
    std::vector<Question> questions;
    std::map<std::int64_t, AnswerStream> streams;
    std::vector<std::shared_ptr<Job>> accepted;
    for (auto& job : jobs) {
      if (Status fits = session_.accepts(job->question); !fits) {
        job->finish(error_outcome(fits.error().message, 400));
        continue;
      }
      const std::int64_t id = session_.next_request() + std::ssize(questions);
      if (job->question.stream) streams.emplace(id, AnswerStream(job, envelope()));
      questions.push_back(job->question);
      questions.back().spec.name = fmt::format("request-{}", id);
      accepted.push_back(std::move(job));
    }
    if (accepted.empty()) return {};
    const auto answers = session_.answer(questions, [&](std::int64_t request, const Position& position) {
      if (const auto stream = streams.find(request); stream != streams.end()) {
        stream->second.add(request, session_, position);
      }
    });
    if (!answers) {
      for (const auto& job : accepted) job->finish(error_outcome(answers.error().message, 500));
      return tl::unexpected(answers.error());
    }
    for (std::size_t i = 0; i < accepted.size(); ++i) tell(*accepted[i], (*answers)[i], streams);
    return {};
  }

  void tell(Job& job, const Answer& answer, std::map<std::int64_t, AnswerStream>& streams) {
    if (options_.answered) options_.answered(answer.row.id);
    if (answer.refused) return job.finish(error_outcome("the logits hold a NaN, so no token was chosen", 500));
    if (const auto stream = streams.find(answer.row.id); stream != streams.end()) stream->second.finish(answer);
    job.finish({200, dump(answer_json(job.question, answer, envelope()))});
  }

  LiveSession& session_;
  ServerOptions options_;
  httplib::Server http_;
  JobQueue queue_;
  int port_ = -1;
};

Result<std::unique_ptr<Server>> Server::open(LiveSession& session, const ServerOptions& options) {
  auto impl = std::make_unique<Impl>(session, options);
  if (Status opened = impl->open(); !opened) return tl::unexpected(opened.error());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
int Server::port() const { return impl_->port(); }
Status Server::run(const std::stop_token& stop) { return impl_->run(stop); }

}  // namespace nanscope::serve
