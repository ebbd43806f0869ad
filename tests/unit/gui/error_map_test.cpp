#include "gui/prepare/error_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "gui/export/tables.h"
#include "gui/facts.h"
#include "gui/model_check.h"
#include "gui/prepare/tensor_pair.h"
#include "gui/prepare/verify_list.h"
#include "tests/unit/gui/built_view.h"

namespace nanscope::gui::error_map_test {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::filesystem::path kGolden = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/verify";
const std::filesystem::path kGemma =
    std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/unit/instrument/model/checkpoints/gemma2";

TEST(ErrorCell, IsQuietUpToTheBoundAndLouderTheFurtherBeyond) {
  EXPECT_EQ(error_cell(kNotANumber), kErrorAbsent);
  EXPECT_EQ(error_cell(0), kErrorFirst);
  EXPECT_EQ(error_cell(0.5), kErrorWithin - 1);
  EXPECT_EQ(error_cell(0.51), kErrorWithin);
  EXPECT_EQ(error_cell(1), kErrorWithin);
  EXPECT_EQ(error_cell(std::nextafter(1.0, 2.0)), kErrorBeyond);
  EXPECT_EQ(error_cell(10), kErrorBeyond + kErrorStepsPerDecade);
  EXPECT_EQ(error_cell(1e30), kErrorLast);
  EXPECT_EQ(error_cell(kInfinity), kErrorLast);
  Cell last = 0;
  for (double distance = 1e-4; distance < 1e6; distance *= 1.01) {
    const Cell cell = error_cell(distance);
    EXPECT_GE(cell, last);
    EXPECT_LE(error_from(cell), distance * (1 + 1e-12));
    if (cell < kErrorLast) {
      EXPECT_GT(error_from(static_cast<Cell>(cell + 1)), distance * (1 - 1e-12));
    }
    last = cell;
  }
  EXPECT_EQ(error_words(kErrorWithin), "within the bound: at most 1 of it");
  EXPECT_EQ(error_words(kErrorBeyond + kErrorStepsPerDecade), "off by 10 to 13.3 times the bound");
}

TEST(Reference, CountsDistancesInUnitsOfTheBound) {
  Reference reference;
  reference.tokens = 2;
  reference.channels = 3;
  reference.expected = {1, 2, 3, 0, 0, 0};
  reference.bound = {0.5F, 0, -1, 1, 1, 1};
  reference.made = {true, false};
  EXPECT_EQ(reference.distance(0, 0, 2), 2);
  EXPECT_EQ(reference.distance(0, 1, 2), 0) << "exact, and no rounding may move it";
  EXPECT_EQ(reference.distance(0, 1, 2.5), kInfinity);
  EXPECT_TRUE(std::isnan(reference.distance(0, 2, 7))) << "hidden by a mask";
  EXPECT_TRUE(std::isnan(reference.distance(0, 0, kNotANumber)));
  EXPECT_TRUE(std::isnan(reference.distance(1, 0, 0))) << "a row that was not made";
}

TEST(VerifyList, TellsWhatNothingKnownExplains) {
  auto findings = std::make_shared<Findings>();
  auto errors = std::make_shared<ErrorMap>();
  for (const bool explained : {true, false}) {
    VerifiedOutput one;
    one.name = explained ? "a" : "b";
    one.op = "q_proj";
    one.role = "q";
    one.layer = 3;
    one.step = 1;
    one.elements = 200'000;
    one.explained = 100'000;
    one.off = true;
    one.worst = {1, 2, 3.0, 1.0, 0.5, 4.0};
    if (explained) one.explanations.push_back({"eps", "an eps of 1e-3", "q_proj", 1, 0.1});
    findings->checked.push_back(std::make_shared<const VerifiedOutput>(std::move(one)));
  }
  errors->findings = findings;
  errors->places.resize(2);
  EXPECT_EQ(errors->unexplained(), 1U);
  EXPECT_EQ(errors->words(), "not the model's: 2 of 2 outputs are further off than rounding so far");
  const VerifyList list = make_verify_list(errors, {}, {});
  ASSERT_EQ(list.rows.size(), 2U);
  EXPECT_FALSE(list.rows[0].unexplained);
  EXPECT_TRUE(list.rows[1].unexplained);
  EXPECT_EQ(list.rows[1].place, "layer 3 q_proj.q, step 1");
  EXPECT_EQ(list.rows[1].furthest, "4");
  EXPECT_EQ(list.rows[1].beyond, "50 %");
  EXPECT_EQ(list.rows[1].because, "nothing that is known explains it");
  EXPECT_EQ(list.rows[1].cell, error_cell(4));
  EXPECT_FALSE(list.chosen);
}

/// A window's run of a golden dump, and the check of it.
class CheckedDump : public ::testing::Test {
 protected:
  void open(const std::string& name, ModelCheckOptions options = {}) {
    Result<OpenedRun> run = open_run(kGolden / name / "dump");
    ASSERT_TRUE(run) << run.error().message;
    facts_.emplace(std::move(*run));
    ASSERT_TRUE(facts_->map());
    while (!(*facts_->map())->exact) {
    }
    options.dump = kGolden / name / "dump";
    if (options.model.empty()) options.model = kGemma;
    auto beside = std::make_shared<BesideRun>();
    beside->check = check_ = std::make_shared<ModelCheck>(std::move(options));
    ASSERT_TRUE(facts_->put_beside(beside));
    wait();
    const auto errors = facts_->errors(check_->findings(0));
    ASSERT_TRUE(errors && *errors);
    errors_ = *errors;
  }

  void wait() const {
    while (check_->busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// The largest cell of a row, by its name.
  Cell worst(std::int64_t layer, const std::string& op) {
    const auto map = *facts_->map();
    const auto row = map->find_row(layer, op);
    EXPECT_TRUE(row) << op;
    Cell worst = kErrorAbsent;
    for (std::int64_t column = 0; row && column < map->columns; ++column)
      worst = std::max(worst, errors_->cell(column, *row));
    return worst;
  }

  SheetPair pair(const std::string& place, DifferenceUnit unit, const SheetPair& known = {}) {
    SheetOptions options;
    options.unit = unit;
    const auto ask = [&] {
      auto pair = make_model_pair(facts_->view(), *facts_->model(), *parse_place(place), options, known);
      EXPECT_TRUE(pair) << pair.error().message;
      return *pair;
    };
    ask();
    wait();
    return ask();
  }

  std::optional<RunFacts> facts_;
  std::shared_ptr<ModelCheck> check_;
  std::shared_ptr<const ErrorMap> errors_;
};

TEST_F(CheckedDump, OfAHealthyModelIsQuiet) {
  open("healthy-gemma2-f32");
  ASSERT_TRUE(errors_->findings->complete) << errors_->findings->problem;
  EXPECT_LE(*std::max_element(errors_->cells.begin(), errors_->cells.end()), kErrorWithin);
  EXPECT_GE(worst(0, "q_proj"), kErrorFirst);
  EXPECT_GE(worst(0, "cos"), kErrorFirst) << "a table is of all tokens";
  EXPECT_EQ(worst(-1, "tokens"), kErrorNotChecked);
  EXPECT_EQ(errors_->words(), "the model's: none of 150 outputs is further off than rounding");
  EXPECT_FALSE(errors_->first());
  const auto same = pair("0/0/0/q_proj.out", DifferenceUnit::bound);
  EXPECT_EQ(same.difference->state, PairState::equal);
  EXPECT_THAT(same.difference->words, HasSubstr("0 of 384 elements beyond what rounding explains"));
}

TEST_F(CheckedDump, ShowsWhereAServedRunLeftItsModel) {
  open("fault-softcap-left-out");
  EXPECT_GT(worst(0, "softmax"), kErrorBeyond);
  EXPECT_LE(worst(0, "q_proj"), kErrorWithin) << "what is done with what a wrong op gave is right";
  ASSERT_TRUE(errors_->first());
  EXPECT_EQ(to_string(errors_->first()->place), "0/0/0/softmax.probs[6,27]");
  const ErrorSpan* span = errors_->span_at(3, *(*facts_->map())->find_row(1, "softmax"));
  ASSERT_TRUE(span && span->checked);
  EXPECT_TRUE(span->checked->off);
  const Table table = table_of(*errors_);
  EXPECT_EQ(table.rows.size(), 150U) << "all were checked";

  VerifyList list = make_verify_list(errors_, {}, errors_->first()->place);
  ASSERT_EQ(list.rows.size(), 4U);
  EXPECT_EQ(list.chosen, 0U);
  EXPECT_EQ(list.rows[0].place, "layer 0 softmax.probs, step 1");
  EXPECT_EQ(list.rows[0].beyond, "224 of 576");
  EXPECT_THAT(list.rows[0].because, HasSubstr("shown: the cap of the scores left out"));
  EXPECT_FALSE(list.rows[0].unexplained);
  list = make_verify_list(errors_, {VerifyFilter::all, true}, {});
  EXPECT_EQ(list.rows.size(), 150U);
  EXPECT_EQ(list.rows[0].place, "layer 1 softmax.probs, step 1") << "the furthest";
  EXPECT_TRUE(make_verify_list(errors_, {VerifyFilter::not_checked, false}, {}).rows.empty());
}

TEST_F(CheckedDump, ListsWhatWasNotChecked) {
  ModelCheckOptions options;
  options.model = kGolden / "served-by-vllm-in-chunks" / "model";
  open("served-by-vllm-in-chunks", std::move(options));
  const VerifyList list = make_verify_list(errors_, {VerifyFilter::not_checked, false}, {});
  ASSERT_EQ(list.rows.size(), 8U) << "the tokens of eight steps";
  EXPECT_EQ(list.rows[0].because, "nanscope has no recipe for this op");
  EXPECT_EQ(table_of(*errors_).rows.size(), 336U);
}

TEST_F(CheckedDump, DoesAnOutputAgainWhenItIsLookedAt) {
  open("fault-softcap-left-out");
  const SheetPair apart = pair("0/0/0/softmax.probs[9,17]", DifferenceUnit::bound);
  ASSERT_TRUE(apart.there && apart.reference);
  // The dump's own softmax without the cap, 0.002308, where with it there is 0.003642: transformers' numbers.
  const std::int64_t column = 17 - apart.here->first_channel;
  const ElementPair element = pair_at(*apart.here, *apart.there, 9, column);
  EXPECT_NEAR(element.here, 0.002308, 1e-6);
  EXPECT_NEAR(element.there, 0.003642, 1e-6);
  EXPECT_EQ(apart.difference->largest, 9 * apart.difference->columns + column);
  EXPECT_GT(apart.difference->high, 1e4) << "its bound is some hundred roundings of f32";
  EXPECT_EQ(apart.difference->cell(9, column), kErrorLast);

  const SheetPair ulps = pair("0/0/0/softmax.probs[9,17]", DifferenceUnit::ulp, apart);
  EXPECT_EQ(ulps.there, apart.there) << "made once";
  EXPECT_EQ(ulps.difference->unit, DifferenceUnit::ulp);
  EXPECT_EQ(ulps.difference->high, static_cast<double>(*element.ulps));

  const SheetPair ids = pair("0/0/-/tokens", DifferenceUnit::bound);
  EXPECT_FALSE(ids.there);
  EXPECT_EQ(ids.difference->words, "not recomputed: nanscope has no recipe for this op");
}

TEST_F(CheckedDump, ComparesAWeightInMemoryWithTheFiles) {
  open("fault-weight-in-memory");
  ASSERT_TRUE(errors_->first());
  const SheetPair weight = pair(to_string(errors_->first()->place), DifferenceUnit::absolute);
  ASSERT_TRUE(weight.there) << weight.difference->words;
  EXPECT_EQ(weight.difference->differing, 1U);
  const ElementPair element = pair_at(*weight.here, *weight.there, 3, 5);
  EXPECT_EQ(element.here, -64 * element.there);
}

TEST_F(CheckedDump, SaysWhyThereIsNoCheck) {
  ModelCheckOptions other;
  other.model = kGolden;
  open("healthy-gemma2-f32", std::move(other));
  EXPECT_EQ(check_->phase(), ModelCheck::Phase::failed);
  EXPECT_THAT(errors_->findings->problem, HasSubstr("config.json"));
  EXPECT_EQ(pair("0/0/0/q_proj.out", DifferenceUnit::bound).difference->words,
            "not recomputed: " + errors_->findings->problem);
}

TEST_F(CheckedDump, ChecksOnlyWhatIsWanted) {
  ModelCheckOptions some;
  some.layers = {1};
  some.ops = {"q_proj"};
  open("healthy-gemma2-f32", std::move(some));
  EXPECT_EQ(errors_->findings->checked.size(), 2U) << "in each step";
  EXPECT_EQ(worst(0, "q_proj"), kErrorNotChecked);
  EXPECT_GE(worst(1, "q_proj"), kErrorFirst);
  EXPECT_TRUE(pair("0/0/0/q_proj.out", DifferenceUnit::bound).there) << "looked at all the same";
}

}  // namespace
}  // namespace nanscope::gui::error_map_test
