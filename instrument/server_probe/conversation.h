#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/server_probe/messages.h"

namespace nanscope::server_probe {

/// A request and what came back, as --save writes it.
struct Exchange {
  std::string path;  ///< below the URL
  std::string body;  ///< empty: a GET
  int status = 0;
  std::string answer;
};

/// Takes requests somewhere. Errors: nobody answers.
class Transport {
 public:
  virtual ~Transport() = default;
  /// All at once, in any order. A status of 0: no answer.
  virtual Status send(std::span<Exchange> exchanges) = 0;
};

/// `url` is http:// or https://, with or without /v1. `key`: as the Authorization header, empty for none. Errors: it is
/// no such URL.
Result<std::unique_ptr<Transport>> connect(const std::string& url, const std::string& key);
/// The answers of a file that --save wrote, in its order. Errors: it cannot be read, a line is no exchange; later: the
/// requests are others.
Result<std::unique_ptr<Transport>> replay_file(const std::filesystem::path& path);

/// Asks within a budget, and keeps what was said.
class Conversation {
 public:
  struct Limits {
    int requests = 200;
    double per_second = 50;
  };
  Conversation(Transport& transport, Limits limits, std::stop_token stop, std::function<void(int)> progress)
      : transport_(transport), limits_(limits), stop_(std::move(stop)), progress_(std::move(progress)) {}

  /// Finds out what the server understands. `model` empty: the first that it lists. Errors: it cannot be asked.
  Status begin(const std::string& model);
  const Abilities& abilities() const { return abilities_; }

  /// A request that the budget does not allow, or after a stop, has a reply with `error`.
  Reply ask(const Ask& ask) { return std::move(together(std::span(&ask, 1)).front()); }
  /// All at the same time.
  std::vector<Reply> together(std::span<const Ask> asks);

  /// How many more requests are allowed.
  int left() const { return limits_.requests - static_cast<int>(exchanges_.size()); }
  bool over() const { return stop_.stop_requested() || !broken_.empty() || left() <= 0; }
  /// Why no more was asked; empty: all was.
  std::string why_over() const;
  const std::vector<Exchange>& exchanges() const { return exchanges_; }

 private:
  Status send(std::vector<Exchange>& batch);
  Status try_abilities();

  Transport& transport_;
  Limits limits_;
  std::stop_token stop_;
  std::function<void(int)> progress_;
  Abilities abilities_;
  std::vector<Exchange> exchanges_;
  std::string broken_;
};

/// A line of a file for each exchange.
std::string saved_text(std::span<const Exchange> exchanges);

}  // namespace nanscope::server_probe
