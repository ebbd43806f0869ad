#include <fmt/format.h>
#include <httplib.h>

#include <chrono>
#include <thread>
#include <utility>

#include "instrument/server_probe/conversation.h"

namespace nanscope::server_probe {

namespace {

constexpr std::chrono::seconds kConnect{10};
constexpr std::chrono::seconds kAnswer{120};  // a slow server on a CPU; a test of a hung one ends

class Http final : public Transport {
 public:
  Http(std::string host, std::string base, const std::string& key) : host_(std::move(host)), base_(std::move(base)) {
    if (!key.empty()) headers_.emplace("Authorization", "Bearer " + key);
    headers_.emplace("Accept", "application/json");
  }

  Status send(std::span<Exchange> exchanges) override {
    if (exchanges.size() == 1) return one(client(), exchanges.front());
    std::vector<Status> sent(exchanges.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < exchanges.size(); ++i) {
        threads.emplace_back([&, i] {
          const auto own = make();
          sent[i] = one(*own, exchanges[i]);
        });
      }
    }
    for (const Status& status : sent) {
      if (!status) return status;
    }
    return {};
  }

 private:
  std::unique_ptr<httplib::Client> make() const {
    auto made = std::make_unique<httplib::Client>(host_);
    made->set_connection_timeout(kConnect);
    made->set_read_timeout(kAnswer);
    made->set_tcp_nodelay(true);
    made->set_keep_alive(true);
    return made;
  }
  httplib::Client& client() {
    if (!client_) client_ = make();
    return *client_;
  }

  Status one(httplib::Client& client, Exchange& exchange) const {
    const std::string path = base_ + exchange.path;
    const auto got = exchange.body.empty() ? client.Get(path, headers_)
                                           : client.Post(path, headers_, exchange.body, "application/json");
    if (!got) return fail(fmt::format("{}{}: {}", host_, path, httplib::to_string(got.error())));
    exchange.status = got->status;
    exchange.answer = got->body;
    return {};
  }

  std::string host_;
  std::string base_;
  httplib::Headers headers_;
  std::unique_ptr<httplib::Client> client_;
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
