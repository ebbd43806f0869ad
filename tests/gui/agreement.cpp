#include "tests/gui/agreement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/run/find_place.h"
#include "gui/facts.h"
#include "gui/prepare/ledger.h"
#include "gui/prepare/subject.h"
#include "gui/prepare/tensor_sheet.h"
#include "instrument/recompute/arithmetic.h"

namespace nanscope::gui {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : std::string(); }

/// Of an op whose outputs' rows are tokens of the step: not keys, pools and parameters.
bool is_of_tokens(RunView& run, OpId id) {
  const Op* op = run.op(id);
  return op != nullptr && std::none_of(op->outputs.begin(), op->outputs.end(), [&](TensorId output) {
    const Tensor* tensor = run.tensor(output);
    return tensor == nullptr || tensor->axis == Axis::keys || tensor->axis == Axis::slots ||
           tensor->axis == Axis::none;
  });
}

class Agreement {
 public:
  Agreement(RunFacts& facts, Json said) : facts_(facts), run_(facts.view()), said_(std::move(said)) {}

  void check() {
    check_story();
    make_map();
    check_places();
    check_bad_tokens();
    check_clipped();
  }

 private:
  void check_story() {
    const auto made = facts_.story();
    ASSERT_TRUE(made) << made.error().message;
    story_ = *made;
    EXPECT_EQ(name(story_->verdict), said_["verdict"].get<std::string>());
    EXPECT_EQ(story_->first_bad, text_of(said_["spread"]["first_bad_tensor"]));
    EXPECT_EQ(story_->bad_tokens, said_["spread"]["bad_tokens"].get<std::int64_t>());
    if (said_["root_cause"].is_object()) {
      EXPECT_EQ(story_->headline, said_["root_cause"]["class"].get<std::string>());
    }
    const Json& faults = said_["faults"];
    ASSERT_EQ(story_->faults.size(), faults.size());
    for (std::size_t i = 0; i < faults.size(); ++i) {
      EXPECT_EQ(story_->faults[i].fault_class, faults[i]["class"].get<std::string>());
      EXPECT_EQ(story_->faults[i].tensor, faults[i]["tensor"].get<std::string>());
      EXPECT_EQ(story_->faults[i].because.has_value(), faults[i]["because"].is_number());
    }
    const std::size_t chain = said_["chain"].size();
    EXPECT_EQ(story_->links.size(), chain > 0 ? chain : faults.size());
    const auto checks = std::count_if(said_["checks"].begin(), said_["checks"].end(),
                                      [](const Json& check) { return check["state"] != "found"; });
    EXPECT_EQ(std::ssize(story_->excluded) + std::ssize(story_->not_in_dump) + std::ssize(story_->not_looked_at), checks);
    EXPECT_EQ(story_->warnings.size(), said_["warnings"].size());
  }

  void make_map() {
    auto map = facts_.map();
    for (; map && !(*map)->exact; map = facts_.map()) {
    }
    ASSERT_TRUE(map) << map.error().message;
    map_ = *map;
  }

  /// Where the window goes to is the tensor that the diagnosis names.
  void check_places() {
    for (std::size_t i = 0; i < story_->faults.size(); ++i) {
      const StoryFault& fault = story_->faults[i];
      ASSERT_TRUE(fault.target) << fault.fault_class;
      const Place& place = fault.target->place;
      const Result<Subject> subject = find_subject(run_, place);
      ASSERT_TRUE(subject) << fault.fault_class << " at " << to_string(place) << ": " << subject.error().message;
      const Tensor& tensor = subject->tensor;
      if (!tensor.name.empty()) {
        EXPECT_EQ(tensor.name, fault.tensor) << to_string(place);
      }
      if (!subject->outside()) {
        EXPECT_TRUE(map_->find_op(place)) << to_string(place);
      }
      const Json& tokens = said_["faults"][i]["tokens"];
      if (tokens.is_array() && place.token && subject->tensor.axis == Axis::rows) {
        EXPECT_EQ(*place.token, tokens[0].get<std::int64_t>());
      }
    }
  }

  /// The same tokens are bad, and none before the first bad tensor.
  void check_bad_tokens() {
    std::set<std::pair<std::int64_t, std::int64_t>> bad;
    std::size_t first_bad = map_->ops.size();
    for (std::size_t op = 0; op < map_->ops.size(); ++op) {
      if (!is_of_tokens(run_, map_->ops[op].id)) continue;
      const auto [begin, end] = map_->columns_of(map_->steps[map_->ops[op].step]);
      for (std::int64_t column = begin; column < end; ++column) {
        if (map_->row(map_->ops[op].row)[static_cast<std::size_t>(column)] < kInf) continue;
        const Place place = map_->place_at(column, map_->ops[op].row);
        bad.emplace(*place.request, *place.token);
        first_bad = std::min(first_bad, op);
      }
    }
    const bool at_least = said_["spread"]["at_least"].get<bool>();
    const auto tokens = said_["spread"]["bad_tokens"].get<std::int64_t>();
    if (!at_least) {
      EXPECT_EQ(std::ssize(bad), tokens);
    }
    const std::string name = story_->first_bad;
    if (first_bad == map_->ops.size() || name.empty()) return;
    const Result<FoundPlace> found = find_place(run_, name);
    ASSERT_TRUE(found) << name << ": " << found.error().message;
    const Op* said = run_.maker(*found->tensor);
    const Op* seen = run_.op(map_->ops[first_bad].id);
    ASSERT_TRUE(said != nullptr && seen != nullptr);
    const bool same = said->step == seen->step && said->layer == seen->layer && said->name == seen->name;
    EXPECT_TRUE(same || said->id <= seen->id)
        << name << ", and " << to_string(map_->place_of_op(first_bad)) << " is bad before it";
  }

  /// What is clean clips nothing; what the ledger calls clipped is in the picture of the tensor too.
  void check_clipped() {
    const Result<Ledger> ledger = make_ledger(run_);
    ASSERT_TRUE(ledger) << ledger.error().message;
    if (facts_.recording() == nullptr && story_->clean()) {
      EXPECT_TRUE(ledger->below.empty()) << ledger->headline;
    }
    for (const std::size_t index : ledger->below) {
      const LedgerEntry& entry = ledger->entries[index];
      if (entry.clipped == 0) continue;
      const auto sheet = make_tensor_sheet(run_, entry.target.place, {}, nullptr);
      ASSERT_TRUE(sheet) << to_string(entry.target.place) << ": " << sheet.error().message;
      if (!(*sheet)->elements) continue;
      // Not all that lay beyond is at the end: some became NaN, some was written in another flavour.
      EXPECT_LE((*sheet)->clipped, entry.clipped) << to_string(entry.target.place);
    }
  }

  RunFacts& facts_;
  RunView& run_;
  Json said_;
  std::shared_ptr<const Story> story_;
  std::shared_ptr<const RunMap> map_;
};

}  // namespace

void expect_agreement(const std::filesystem::path& target) {
  SCOPED_TRACE(target.string());
  Json said;
  {
    const auto opened = open_run(target);
    ASSERT_TRUE(opened) << opened.error().message;
    PlainArithmetic arithmetic;
    const Result<Diagnosis> diagnosis = diagnose(opened->run->view(), arithmetic);
    ASSERT_TRUE(diagnosis) << diagnosis.error().message;
    said = Json::parse(to_json(*diagnosis).dump());
  }
  auto opened = open_run(target);
  ASSERT_TRUE(opened) << opened.error().message;
  RunFacts facts(std::move(*opened));
  Agreement(facts, std::move(said)).check();
}

}  // namespace nanscope::gui
