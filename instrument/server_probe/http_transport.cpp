#include <fmt/format.h>
#include <httplib.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include "instrument/server_probe/conversation.h"

namespace nanscope::server_probe {

namespace {

constexpr std::chrono::seconds kConnect{10};
constexpr std::chrono::seconds kAnswer{120};  // a slow server on a CPU; a test of a hung one ends
constexpr std::size_t kMostAnswer = std::size_t{64} << 20;

class Http final : public Transport {
 public:
  Http(std::string host, std::string base, const std::string& key) : host_(std::move(host)), base_(std::move(base)) {
    if (!key.empty()) headers_.emplace("Authorization", "Bearer " + key);
    headers_.emplace("Accept", "application/json");
  }

  Status send(std::span<Exchange> exchanges) override {
    std::vector<Status> sent(exchanges.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 1; i < exchanges.size(); ++i) {
        threads.emplace_back([&, i] { sent[i] = one(exchanges[i]); });
      }
      sent.front() = one(exchanges.front());
    }
    for (const Status& status : sent) {
      if (!status) return status;
    }
    return {};
  }

 private:
  /// A connection of its own: one that was kept open may be closed by the server just when it is used.
  Status one(Exchange& exchange) const {
    httplib::Client client(host_);
    client.set_connection_timeout(kConnect);
    client.set_read_timeout(kAnswer);
    client.set_tcp_nodelay(true);
    const std::string path = base_ + exchange.path;
    httplib::Request request;
    request.method = exchange.body.empty() ? "GET" : "POST";
    request.path = path;
    request.headers = headers_;
    request.body = exchange.body;
    if (!exchange.body.empty()) request.headers.emplace("Content-Type", "application/json");
    request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
      exchange.answer.append(data, size);
      return exchange.answer.size() <= kMostAnswer;
    };
    const auto got = client.send(request);
    if (exchange.answer.size() > kMostAnswer) {
      return fail(fmt::format("{}{}: the answer is larger than {} bytes", host_, path, kMostAnswer));
    }
    if (!got)
      return fail(fmt::format("{}{}: no answer ({}): check the URL, and whether the server runs", host_, path,
                              httplib::to_string(got.error())));
    exchange.status = got->status;
    return {};
  }

  std::string host_;
  std::string base_;
  httplib::Headers headers_;
};

}  // namespace

Result<std::unique_ptr<Transport>> connect(const std::string& url, const std::string& key) {
  const std::size_t scheme = url.find("://");
  const std::string kind = url.substr(0, scheme);
  if (scheme == std::string::npos || (kind != "http" && kind != "https")) {
    return fail(fmt::format("{}: expected a URL such as http://127.0.0.1:8000", url));
  }
  const std::size_t path = url.find('/', scheme + 3);
  const std::string host = url.substr(0, path);
  std::string base = path == std::string::npos ? "" : url.substr(path);
  while (base.ends_with('/')) base.pop_back();
  if (base.empty()) base = "/v1";
  if (host.size() == scheme + 3 || host.find_first_of("@?# ") != std::string::npos) {
    return fail(fmt::format("{}: expected a URL such as http://127.0.0.1:8000", url));
  }
  return std::make_unique<Http>(host, base, key);
}

}  // namespace nanscope::server_probe
