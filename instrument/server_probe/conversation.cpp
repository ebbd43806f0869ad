#include "instrument/server_probe/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "core/parse_json.h"
#include "instrument/files/file.h"

namespace nanscope::server_probe {

namespace {

using Json = nlohmann::ordered_json;

/// Answers as they were saved.
class Saved final : public Transport {
 public:
  Saved(std::string name, std::vector<Exchange> exchanges) : name_(std::move(name)), exchanges_(std::move(exchanges)) {}
  Status send(std::span<Exchange> batch) override {
    for (Exchange& one : batch) {
      if (next_ == exchanges_.size()) return fail(fmt::format("{}: ends after {} requests", name_, next_));
      const Exchange& saved = exchanges_[next_++];
      if (saved.path != one.path || saved.body != one.body) {
        return fail(fmt::format("{}: line {} is another request than this version asks", name_, next_));
      }
      one = saved;
    }
    return {};
  }

 private:
  std::string name_;
  std::vector<Exchange> exchanges_;
  std::size_t next_ = 0;
};

Result<Exchange> exchange_of(std::string_view line) {
  const auto json = parse_json<Json>(line);
  if (!json) return tl::unexpected(json.error());
  const auto text = [&](const char* name) {
    return json->is_object() && json->contains(name) && (*json)[name].is_string();
  };
  if (!text("path") || !text("body") || !text("answer") || !json->contains("status") ||
      !(*json)["status"].is_number_integer()) {
    return fail("expected path, body, status and answer");
  }
  return Exchange{(*json)["path"], (*json)["body"], (*json)["status"], (*json)["answer"]};
}

}  // namespace

Result<std::unique_ptr<Transport>> replay_file(const std::filesystem::path& path) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  const auto bytes = read_file(path, kMost);
  if (!bytes) return tl::unexpected(bytes.error());
  std::vector<Exchange> exchanges;
  std::string_view left = as_text(*bytes);
  while (!left.empty()) {
    const std::string_view line = left.substr(0, left.find('\n'));
    auto exchange = exchange_of(line);
    if (!exchange) {
      return fail(fmt::format("{}: line {}: {}", path.string(), exchanges.size() + 1, exchange.error().message));
    }
    exchanges.push_back(std::move(*exchange));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
  }
  return std::make_unique<Saved>(path.string(), std::move(exchanges));
}

std::string saved_text(std::span<const Exchange> exchanges) {
  std::string text;
  for (const Exchange& one : exchanges) {
    const Json json{{"path", one.path}, {"body", one.body}, {"status", one.status}, {"answer", one.answer}};
    text += json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return text;
}

Status Conversation::send(std::vector<Exchange>& batch) {
  const auto pause = std::chrono::duration<double>(static_cast<double>(batch.size()) / limits_.per_second);
  const auto next = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(pause);
  Status sent = transport_.send(batch);
  exchanges_.insert(exchanges_.end(), batch.begin(), batch.end());
  if (progress_) progress_(static_cast<int>(exchanges_.size()));
  if (!stop_.stop_requested()) std::this_thread::sleep_until(next);
  return sent;
}

std::vector<Reply> Conversation::together(std::span<const Ask> asks) {
  std::vector<Reply> replies(asks.size());
  if (over() || std::ssize(asks) > left()) {
    for (Reply& reply : replies) reply.error = over() ? why_over() : "the budget is spent";
    return replies;
  }
  std::vector<Exchange> batch;
  for (const Ask& ask : asks) {
    Body body = body_of(ask, abilities_);
    batch.push_back({std::move(body.path), std::move(body.text), 0, {}});
  }
  if (Status sent = send(batch); !sent) broken_ = sent.error().message;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (broken_.empty()) replies[i] = read_reply(batch[i].status, batch[i].answer);
    replies[i].error = broken_.empty() ? replies[i].error : broken_;
  }
  return replies;
}

std::string Conversation::why_over() const {
  if (!broken_.empty()) return broken_;
  if (stop_.stop_requested()) return "stopped";
  return left() <= 0 ? fmt::format("the budget of {} requests is spent", limits_.requests) : std::string();
}

Status Conversation::begin(const std::string& model) {
  std::vector<Exchange> models{{"/models", {}, 0, {}}};
  if (Status sent = send(models); !sent) return sent;
  const Exchange& listed = models.front();
  if (listed.status != 200) return fail(fmt::format("/models: status {}", listed.status));
  const auto json = parse_json_or_none<Json>(listed.answer);
  const Json data = json.is_object() ? json.value("data", Json()) : Json();
  if (!data.is_array() || data.empty()) return fail("/models: lists no model");
  for (const Json& one : data) {
    if (!one.is_object() || !one.contains("id") || !one["id"].is_string()) continue;
    const std::string id = one["id"];
    if (!model.empty() && id != model) continue;
    abilities_.model = id;
    const Json longest = one.value("max_model_len", Json());
    if (longest.is_number_integer() && longest > 0) abilities_.longest = longest;
    break;
  }
  if (abilities_.model.empty()) return fail(fmt::format("/models: does not list {}", model));
  return try_abilities();
}

/// What a server refuses is left out, the least needed first.
Status Conversation::try_abilities() {
  Reply reply;
  for (int attempt = 0; attempt < 3; ++attempt) {
    reply = ask({.text = "The moon", .ids = {}, .tokens = 1, .of_prompt = abilities_.prompt_log_probabilities});
    if (!broken_.empty()) return fail(broken_);
    if (reply.answered()) {
      abilities_.prompt_log_probabilities = abilities_.prompt_log_probabilities && !reply.prompt.empty();
      abilities_.token_ids = abilities_.token_ids && !reply.ids.empty() && !reply.prompt_ids.empty();
      abilities_.log_probabilities = reply.has_chances;
      return {};
    }
    if (reply.says_nan) return {};
    if (reply.status < 400 || reply.status >= 500) break;
    if (attempt == 0) abilities_.prompt_log_probabilities = abilities_.token_ids = false;
    if (attempt == 1) abilities_.log_probabilities = false;
  }
  return fail("/completions: " + reply.error);
}

}  // namespace nanscope::server_probe
