#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "core/result.h"
#include "scenarios/serve/live_session.h"

namespace nanscope::serve {

inline constexpr std::size_t kMostBody = std::size_t{16} << 20;  ///< bytes of a request's body: an image as base64
inline constexpr std::size_t kMostWaiting = 64;                  ///< questions that wait for the engine
inline constexpr std::size_t kConnections = 64;                  ///< served at a time; others wait

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  ///< 0: any that is free
  std::string model;
  bool chat = true;  ///< false: the model has a chat template, which is not applied, so chats are refused
  std::function<void(std::int64_t request)> answered;
};

/// Puts a session behind HTTP.
class Server {
 public:
  /// Errors: the address is taken, or is none.
  static Result<std::unique_ptr<Server>> open(LiveSession& session, const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  /// Answers until `stop`: the question that is being answered then still is, those that wait are refused. The engine
  /// runs on this thread. Errors: those of LiveSession::answer().
  Status run(const std::stop_token& stop);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nanscope::serve
