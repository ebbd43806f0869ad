#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "instrument/server_probe/report.h"
#include "tests/temporary_folder.h"

namespace nanscope::server_probe {
namespace {

using Json = nlohmann::ordered_json;
using testing::Contains;
using testing::HasSubstr;

/// A server whose tokens are characters. After `text` it says the next letter of the alphabet, with a log probability
/// that `chance` gives.
class Letters final : public Transport {
 public:
  struct At {
    std::string before;      ///< the token
    std::int64_t asked = 0;  ///< number of the request
    bool of_prompt = false;
    std::string after;  ///< what stands behind it in the prompt
    bool together = false;
    int step = 0;  ///< tokens that the request generated before
  };
  std::function<double(const At&)> chance = [](const At&) { return -0.5; };
  std::function<std::pair<int, std::string>(const Json&)> refuse = [](const Json&) {
    return std::pair{200, std::string()};
  };
  bool ids = true;
  bool prompts = true;
  bool chances = true;
  bool mumbles = false;  ///< each answer is another

  Status send(std::span<Exchange> exchanges) override {
    for (Exchange& one : exchanges) {
      ++asked_;
      one.status = 200;
      one.answer = one.body.empty() ? R"({"data": [{"id": "letters", "max_model_len": 400}]})"
                                    : answer(one, exchanges.size() > 1);
    }
    return {};
  }

 private:
  std::string answer(Exchange& one, bool together) {
    const Json body = Json::parse(one.body);
    const auto [status, error] = refuse(body);
    if (status != 200) {
      one.status = status;
      return Json{{"error", {{"message", error}}}}.dump();
    }
    std::string text;
    if (body.contains("messages"))
      text = "[picture]";
    else if (body["prompt"].is_string())
      text = body["prompt"];
    else
      for (const Json& id : body["prompt"]) text += static_cast<char>(id.get<int>());
    Json choice{{"index", 0}};
    Json prompt = Json::array({nullptr});
    Json prompt_ids = Json::array();
    for (std::size_t i = 0; i < text.size(); ++i) {
      prompt_ids.push_back(static_cast<int>(static_cast<unsigned char>(text[i])));
      if (i == 0) continue;
      const double value = chance({text.substr(0, i), asked_, true, text.substr(i + 1), together, 0});
      prompt.push_back({{std::to_string(static_cast<int>(static_cast<unsigned char>(text[i]))), {{"logprob", value}}}});
    }
    Json tokens = Json::array();
    Json values = Json::array();
    Json top = Json::array();
    Json made = Json::array();
    std::string said;
    for (int i = 0; i < body["max_tokens"].get<int>(); ++i) {
      const char letter = static_cast<char>('a' + (text.size() + said.size()) % 26);
      const double value = chance({text + said, asked_, false, {}, together, i});
      tokens.push_back(std::string(1, letter));
      values.push_back(value);
      top.push_back({{std::string(1, letter), value}, {"?", value - 3}});
      made.push_back(static_cast<int>(letter));
      said += letter;
    }
    if (mumbles) said += std::to_string(asked_);
    choice["text"] = said;
    if (chances) choice["logprobs"] = {{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", top}};
    if (body.contains("messages")) choice["message"] = {{"content", said}};
    if (prompts && body.contains("prompt_logprobs")) choice["prompt_logprobs"] = prompt;
    if (ids) {
      choice["token_ids"] = made;
      choice["prompt_token_ids"] = prompt_ids;
    }
    return Json{{"choices", Json::array({choice})}, {"usage", {{"prompt_tokens", text.size()}}}}.dump();
  }

  std::int64_t asked_ = 0;
};

Finding probe(Transport& server, int budget = 200) {
  Conversation talk(server, {.requests = budget, .per_second = 1e6}, {}, {});
  const Status begun = talk.begin({});
  EXPECT_TRUE(begun) << begun.error().message;
  return investigate(talk, nullptr, "letters");
}

std::set<std::string> broken(const Finding& finding) {
  std::set<std::string> names;
  for (const Observation& one : finding.observations) {
    if (one.state == State::broken) names.insert(one.invariant);
  }
  return names;
}

std::string first(const Finding& finding) {
  return finding.ranked.empty() ? std::string() : std::string(finding.ranked.front().mechanism->name);
}

/// Noise that depends on how a token was computed, as different kernels have it.
double kernel_noise(const Letters::At& at, double size) {
  const std::size_t mixed = std::hash<std::string>()(at.before) * (at.of_prompt ? 31 : 17) + at.after.size() * 7;
  return -0.5 + size * (static_cast<double>(mixed % 1000) / 1000 - 0.5);
}

TEST(ServerProbe, HealthyIsHealthy) {
  Letters server;
  const Finding finding = probe(server);
  EXPECT_EQ(verdict(finding), "healthy-as-far-as-asked");
  EXPECT_TRUE(finding.ranked.empty());
  EXPECT_LE(finding.requests, 200);
  EXPECT_EQ(finding.unfinished, "");
  EXPECT_THAT(finding_text(finding), HasSubstr("healthy as far as asked: decode, repeat, prefix, later-tokens"));
}

TEST(ServerProbe, NoiseOfKernelsIsNoFault) {
  for (const double size : {1e-6, 1e-3, 0.05, 0.2}) {
    Letters server;
    server.chance = [size](const auto& at) { return kernel_noise(at, size); };
    EXPECT_THAT(broken(probe(server)), testing::IsEmpty()) << size;
  }
}

TEST(ServerProbe, NaNAfterWideContentIsTheFlagship) {
  Letters server;
  bool poisoned = false;
  server.chance = [&](const Letters::At& at) {
    poisoned = poisoned || at.before.starts_with("!!!!");
    return poisoned ? std::nan("") : -0.5;
  };
  const Finding finding = probe(server);
  EXPECT_THAT(broken(finding), Contains("wide"));
  EXPECT_EQ(first(finding), "kv-scale-locked");
}

TEST(ServerProbe, ALaterTokenThatIsSeen) {
  Letters server;
  server.chance = [](const Letters::At& at) { return at.of_prompt && at.after.empty() ? -0.6 : -0.5; };
  const Finding finding = probe(server);
  EXPECT_EQ(broken(finding), std::set<std::string>{"later-tokens"});
  EXPECT_EQ(first(finding), "future-leakage");
  EXPECT_TRUE(finding.signs.contains(Sign::leak_next));
}

TEST(ServerProbe, ANeighbourThatIsSeen) {
  Letters server;
  server.chance = [](const Letters::At& at) { return at.together ? -2.5 : -0.5; };
  EXPECT_EQ(broken(probe(server)), std::set<std::string>{"together"});
}

TEST(ServerProbe, DecodeThatIsAnother) {
  Letters server;
  server.chance = [](const Letters::At& at) { return at.step > 0 ? -2.5 : -0.5; };
  const Finding finding = probe(server);
  EXPECT_EQ(broken(finding), std::set<std::string>{"decode"});
  EXPECT_TRUE(finding.signs.contains(Sign::decode_differs));
}

TEST(ServerProbe, RepeatsThatVary) {
  Letters server;
  server.chance = [](const Letters::At& at) { return at.asked % 2 == 0 ? -0.5 : -2.5; };
  const Finding finding = probe(server);
  EXPECT_THAT(broken(finding), Contains("repeat"));
  EXPECT_TRUE(finding.signs.contains(Sign::repeat_varies));
}

TEST(ServerProbe, SaysWhatWasNotAsked) {
  Letters server;
  server.prompts = false;
  server.ids = false;
  const Finding finding = probe(server);
  EXPECT_EQ(verdict(finding), "healthy-as-far-as-asked");
  for (const Observation& one : finding.observations) {
    const bool needs = one.invariant == "decode" || one.invariant == "later-tokens";
    EXPECT_EQ(one.state == State::not_asked, needs) << one.invariant;
  }
}

TEST(ServerProbe, TextsAloneCanHoldAndNotBreak) {
  Letters server;
  server.chances = server.ids = server.prompts = false;
  EXPECT_EQ(verdict(probe(server)), "healthy-as-far-as-asked");
  server.mumbles = true;
  const Finding finding = probe(server);
  EXPECT_EQ(verdict(finding), "not-judged");
  EXPECT_THAT(finding_text(finding), HasSubstr("of 8 texts differ, which may be noise"));
}

TEST(ServerProbe, KeepsWithinItsBudget) {
  for (const int budget : {2, 5, 17, 60}) {
    Letters server;
    const Finding finding = probe(server, budget);
    EXPECT_LE(finding.requests, budget);
    EXPECT_THAT(finding.unfinished, HasSubstr("budget")) << budget;
    EXPECT_THAT(broken(finding), testing::IsEmpty()) << budget;
  }
}

TEST(ServerProbe, AServerThatFailsIsNotCalledBroken) {
  Letters server;
  int count = 0;
  server.refuse = [&](const Json&) {
    return ++count > 20 ? std::pair{503, std::string("overloaded")} : std::pair{200, std::string()};
  };
  EXPECT_THAT(broken(probe(server)), testing::IsEmpty());
}

TEST(ServerProbe, AServerThatSaysNaNInItsErrors) {
  Letters server;
  server.refuse = [](const Json&) {
    return std::pair{400, std::string("Out of range float values are not JSON compliant: nan")};
  };
  const Finding finding = probe(server);
  EXPECT_THAT(broken(finding), Contains("sanity"));
}

TEST(ServerProbe, AsksWithoutWhatAServerRefuses) {
  Letters server;
  server.refuse = [](const Json& body) {
    return body.contains("return_token_ids") ? std::pair{400, std::string("unknown field")}
                                             : std::pair{200, std::string()};
  };
  EXPECT_EQ(verdict(probe(server)), "healthy-as-far-as-asked");
}

TEST(ServerProbe, ReadsASavedConversationAgain) {
  const TemporaryFolder folder;
  Letters server;
  server.chance = [](const Letters::At& at) { return at.of_prompt && at.after.empty() ? -0.6 : -0.5; };
  Conversation talk(server, {.requests = 200, .per_second = 1e6}, {}, {});
  ASSERT_TRUE(talk.begin({}));
  const Finding asked = investigate(talk, nullptr, "x");
  const auto file = folder.path() / "saved.jsonl";
  std::ofstream(file) << saved_text(talk.exchanges());
  const auto again = replay_file(file);
  ASSERT_TRUE(again);
  const Finding read = [&] {
    Conversation second(**again, {.requests = 200, .per_second = 1e6}, {}, {});
    EXPECT_TRUE(second.begin({}));
    return investigate(second, nullptr, "x");
  }();
  Json a = finding_json(asked);
  Json b = finding_json(read);
  a.erase("seconds");
  b.erase("seconds");
  EXPECT_EQ(a.dump(), b.dump());
  std::ofstream(file) << "{\"path\": 1}\n";
  const auto bad = replay_file(file);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("line 1"));
}

TEST(ServerProbe, TakesNoOtherUrls) {
  for (const char* url : {"", "127.0.0.1:8000", "ftp://x", "http://", "http://a@b/", "http://a b"}) {
    EXPECT_FALSE(connect(url, {})) << url;
  }
  EXPECT_TRUE(connect("http://127.0.0.1:1/v1/", {}));
}

TEST(ServerProbe, EachMechanismStandsOnSigns) {
  std::set<std::string_view> names;
  for (const Mechanism& mechanism : mechanisms()) {
    EXPECT_TRUE(names.insert(mechanism.name).second) << mechanism.name;
    EXPECT_FALSE(mechanism.next.empty());
    std::set<Sign> signs;
    int best = 0;
    for (const Weight& weight : mechanism.weights) {
      EXPECT_TRUE(signs.insert(weight.sign).second) << mechanism.name << " " << name(weight.sign);
      EXPECT_FALSE(weight.source.empty()) << mechanism.name << " " << name(weight.sign);
      best = std::max(best, weight.weight);
    }
    EXPECT_GT(best, 0) << mechanism.name;
  }
}

}  // namespace
}  // namespace nanscope::server_probe
