#include "tests/gui/agreement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/run/find_place.h"
#include "gui/facts.h"
#include "gui/prepare/kv_map.h"
#include "gui/prepare/ledger.h"
#include "gui/prepare/requests_sheet.h"
#include "gui/prepare/subject.h"
#include "gui/prepare/tensor_sheet.h"
#include "instrument/recompute/kernel_arithmetic.h"

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

/// Whether all that is bad of an op stands in a table of scales behind the last block: nothing reads it there, and no
/// fault is about it, although the picture of the table shows it.
bool is_bad_in_padding_alone(RunView& run, const Op& op) {
  const auto* attributes = op.get<BlockAttributes>();
  const Tensor* codes = run.output(op, "codes");
  if (attributes == nullptr || codes == nullptr || attributes->block.value_or(0) <= 0) return false;
  const std::int64_t used = (codes->channels + *attributes->block - 1) / *attributes->block;
  return std::all_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
    const Tensor& tensor = *run.tensor(id);
    if (!RunView::symptomatic(tensor)) return true;
    if (tensor.role != "scales" || tensor.channels <= used) return false;
    const auto values = run.values(tensor);
    if (!values) return false;
    for (std::size_t i = 0; i < values->size(); ++i) {
      const auto channel = static_cast<std::int64_t>(i) % tensor.channels;
      if (!std::isfinite((*values)[i]) && channel < used) return false;
    }
    return true;
  });
}

bool is_called_twice(RunView& run, const Op& op) {
  const std::vector<Op>& ops = run.content(op.step).ops;
  return std::count_if(ops.begin(), ops.end(),
                       [&](const Op& other) { return other.layer == op.layer && other.name == op.name; }) > 1;
}

std::optional<double> number_of(const Json& evidence, const char* key) {
  const auto found = evidence.find(key);
  if (found == evidence.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
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
    check_scales();
    check_slots();
    check_requests();
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
      EXPECT_TRUE(story_->certainty.starts_with(said_["root_cause"]["certainty"].get<std::string>()));
    }
    const Json& faults = said_["faults"];
    ASSERT_EQ(story_->faults.size(), faults.size());
    for (std::size_t i = 0; i < faults.size(); ++i) {
      EXPECT_EQ(story_->faults[i].fault_class, faults[i]["class"].get<std::string>());
      EXPECT_EQ(story_->faults[i].tensor, faults[i]["tensor"].get<std::string>());
      EXPECT_EQ(story_->faults[i].because.has_value(), faults[i]["because"].is_number());
    }
    check_chain();
    const auto checks = std::count_if(said_["checks"].begin(), said_["checks"].end(),
                                      [](const Json& check) { return check["state"] != "found"; });
    EXPECT_EQ(std::ssize(story_->excluded) + std::ssize(story_->not_in_dump) + std::ssize(story_->not_looked_at),
              checks);
    EXPECT_EQ(story_->warnings.size(), said_["warnings"].size());
  }

  /// Link by link: what it is called, what led to it, and what fault it is.
  void check_chain() {
    const Json& chain = said_["chain"];
    ASSERT_EQ(story_->links.size(), chain.empty() ? said_["faults"].size() : chain.size());
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const StoryLink& link = story_->links[i];
      EXPECT_EQ(link.title, words(chain[i]["kind"].get<std::string>()));
      EXPECT_EQ(link.summary, chain[i]["text"].get<std::string>());
      EXPECT_EQ(link.because, chain[i]["because"].is_number() ? chain[i]["because"].get<int>() + 1 : 0) << link.title;
      EXPECT_EQ(link.fault.has_value(), chain[i]["fault"].is_number()) << link.title;
      const bool root = link.fault && story_->faults[*link.fault].root_cause;
      if (root) {
        EXPECT_EQ(link.title, story_->headline);
        EXPECT_EQ(link.tone, LinkTone::cause);
      }
    }
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
      // An op that is called twice in a pass has one place.
      if (!tensor.name.empty() && !is_called_twice(run_, subject->op)) {
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
      const bool padding = is_bad_in_padding_alone(run_, *run_.op(map_->ops[op].id));
      const auto [begin, end] = map_->columns_of(map_->steps[map_->ops[op].step]);
      for (std::int64_t column = begin; column < end; ++column) {
        if (map_->row(map_->ops[op].row)[static_cast<std::size_t>(column)] < kInf) continue;
        const Place place = map_->place_at(column, map_->ops[op].row);
        bad.emplace(*place.request, *place.token);
        if (!padding) first_bad = std::min(first_bad, op);
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
    if (facts_.recording() == nullptr && story_->healthy()) {
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

  /// What a fault says of a cache's scale is what the ledger says of the same store.
  void check_scales() {
    const Result<Ledger> ledger = make_ledger(run_);
    ASSERT_TRUE(ledger) << ledger.error().message;
    for (std::size_t i = 0; i < story_->faults.size(); ++i) {
      const StoryFault& fault = story_->faults[i];
      if (fault.fault_class != "kv-scale-locked" && fault.fault_class != "delayed-scale-stale") continue;
      const Json& evidence = said_["faults"][i]["evidence"];
      const std::optional<double> headroom = number_of(evidence, "headroom");
      if (!headroom) continue;
      const std::optional<std::size_t> found = ledger->find(*fault.target);
      ASSERT_TRUE(found) << fault.fault_class << " at " << to_string(fault.target->place) << " is not in the ledger";
      const LedgerEntry& entry = ledger->entries[*found];
      EXPECT_TRUE(entry.below()) << to_string(fault.target->place);
      ASSERT_TRUE(has_headroom(entry)) << to_string(fault.target->place);
      EXPECT_NEAR(entry.row.headroom, *headroom, 1e-3 * *headroom) << to_string(fault.target->place);
      const std::optional<double> scale = number_of(evidence, "scale");
      if (scale && entry.grid.empty()) {
        EXPECT_NEAR(entry.row.scale, *scale, 1e-5 * *scale) << to_string(fault.target->place);
      }
    }
  }

  /// Where a step reads NaN that others left in the cache, a slot that it reads holds NaN.
  void check_slots() {
    for (const StoryFault& fault : story_->faults) {
      if (fault.fault_class != "prefix-cache-poison" && fault.fault_class != "masked-tail-poison") continue;
      const SpanOfStep at = find_span(run_, fault.target->place);
      ASSERT_NE(at.step, nullptr) << to_string(fault.target->place);
      Facts facts(run_);
      const Result<Subject> subject = find_subject(run_, fault.target->place);
      const Place& place = fault.target->place;
      // What was gathered behind the last slot that is known has none to be shown in.
      if (subject && subject->tensor.axis == Axis::keys && place.token &&
          !facts.cache.slots().locate(*place.request, *place.token, at.step->id))
        continue;
      const Result<KvMap> map = make_kv_map(facts, *at.step, {}, &map_->clipped_rows);
      ASSERT_TRUE(map) << map.error().message;
      std::size_t read = 0;
      std::size_t bad = 0;
      for (const KvBlock& block : map->blocks) {
        for (const KvSlot& slot : block.slots) {
          read += slot.read ? 1 : 0;
          bad += slot.read && slot.health >= kInf ? 1 : 0;
        }
      }
      // Of a dump that tells neither blocks nor slots nothing is known of who reads which.
      if (read > 0) {
        EXPECT_GT(bad, 0U) << fault.fault_class << " at " << to_string(fault.target->place);
      }
    }
  }

  /// All requests are listed, and who answers from NaN by the diagnosis does so there.
  void check_requests() {
    const Result<RequestRows> rows = make_request_rows(run_);
    ASSERT_TRUE(rows) << rows.error().message;
    EXPECT_EQ(rows->size(), run_.requests().size());
    for (std::size_t i = 0; i < story_->faults.size(); ++i) {
      const Json& request = said_["faults"][i]["request"];
      if (story_->faults[i].fault_class != "argmax-nan-fallback" || !request.is_number()) continue;
      const auto row = std::find_if(rows->begin(), rows->end(),
                                    [&](const RequestSheetRow& one) { return one.id == request.get<std::int64_t>(); });
      ASSERT_NE(row, rows->end()) << request;
      EXPECT_TRUE(row->nan_logits) << row->name;
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
    KernelArithmetic arithmetic;
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
