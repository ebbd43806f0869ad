#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/place.h"
#include "core/recording/weight_version.h"
#include "core/recording/writer.h"
#include "core/run/find_place.h"
#include "core/run/recording_view.h"
#include "core/run/run_data.h"
#include "core/run/tensor_source.h"
#include "tests/temporary_folder.h"

/// A recording of a training run: two training steps of two sequences of three tokens, three steps each.
namespace nanscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Health finite(std::int64_t elements) {
  Health health;
  health.count = static_cast<std::uint64_t>(elements);
  return health;
}

class TrainingSteps : public ::testing::Test {
 protected:
  TrainingSteps() {
    auto writer = RecordingWriter::create(path_, {}).value();
    for (std::int64_t step = 0; step < 2; ++step) {
      for (std::int64_t request = 2 * step; request < 2 * step + 2; ++request) {
        writer->add(RequestRow{request, "", "[]", {1, 2, 3}, 0, {}, ""});
      }
      const std::int64_t first = 3 * step + 1;
      add_step(*writer, first, step, StepKind::forward, "cross_entropy", {"loss", 6, 1, Axis::rows});
      add_step(*writer, first + 1, step, StepKind::backward, "embed_gradient", {"out", 9, 4, Axis::none});
      add_step(*writer, first + 2, step, StepKind::optimizer, "embed_update", {"weight", 9, 4, Axis::none});
      writer->add(WeightRow{weight_version("embed.weight", first + 3), Format::f32, 9, 4, 1, finite(36)});
    }
    EXPECT_TRUE(writer->finish(6));
  }

  struct Output {
    std::string role;
    std::int64_t rows, columns;
    Axis axis;
  };

  static void add_step(RecordingWriter& writer, std::int64_t id, std::int64_t training_step, StepKind kind,
                       const std::string& op_name, const Output& output) {
    StepRow step;
    step.id = id;
    step.kind = kind;
    const std::int64_t number = kind == StepKind::forward ? 0 : kind == StepKind::backward ? 1 : 2;
    step.spans.emplace();
    if (kind == StepKind::optimizer) {
      step.spans->push_back({2 * training_step, number, 0, 0, 0, 0});
    } else {
      step.tokens = 6;
      for (std::int64_t i = 0; i < 2; ++i) step.spans->push_back({2 * training_step + i, number, 3 * i, 3, 0, 3});
    }
    writer.add(step);
    OpRow op;
    op.id = id;
    op.step = id;
    op.name = op_name;
    op.kind = op_name;
    op.attributes = "{}";
    writer.add(op, {});
    TensorRow tensor;
    tensor.id = id;
    tensor.op = id;
    tensor.role = output.role;
    tensor.tokens = output.rows;
    tensor.channels = output.columns;
    tensor.axis = output.axis;
    tensor.health = finite(output.rows * output.columns);
    writer.add(tensor);
    EXPECT_TRUE(writer.commit_step());
  }

  void change(const std::string& statement) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, statement.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "train.nanscope";
};

TEST_F(TrainingSteps, AreReadAsTheyWereWritten) {
  const Result<Recording> recording = Recording::open_checked(path_);
  ASSERT_TRUE(recording) << recording.error().message;
  const std::vector<StepRow> steps = recording->steps().value();
  ASSERT_EQ(steps.size(), 6U);
  std::vector<StepKind> kinds;
  for (const StepRow& step : steps) kinds.push_back(step.kind);
  EXPECT_THAT(kinds, ElementsAre(StepKind::forward, StepKind::backward, StepKind::optimizer, StepKind::forward,
                                 StepKind::backward, StepKind::optimizer));
  EXPECT_EQ(steps[4].all_spans()[1].request, 3);
  EXPECT_EQ(steps[4].all_spans()[1].index, 1);
  EXPECT_EQ(steps[5].tokens, 0);
  EXPECT_EQ(recording->find_step(2, 2).value()->id, 6);
  const std::vector<WeightRow> weights = recording->weights().value();
  EXPECT_EQ(first_step_of_version(weights[0].name), 4) << "the forward step behind the update";
}

TEST_F(TrainingSteps, HavePlaces) {
  const Recording recording = Recording::open_checked(path_).value();
  RecordingRun rows(recording);
  StoredTensors elements(recording);
  RecordingView run(rows, elements);
  for (const char* place : {"2/0/-/cross_entropy.loss", "3/1/-/embed_gradient", "2/2/-/embed_update.weight"}) {
    const Result<FoundPlace> found = find_place(run, place);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_GE(found->tensor->step, 4) << place;
  }
  const Tensor& updated = *find_place(run, "0/2/-/embed_update").value().tensor;
  EXPECT_EQ(updated.step, 3);
  EXPECT_EQ(place_of(run, updated), "0/2/-/embed_update.weight");
  EXPECT_EQ(to_string(place_of(recording, recording.tensor(updated.id).value()).value()), "0/2/-/embed_update.weight");
  EXPECT_EQ(run.token_of(updated, 5).span, nullptr) << "rows of a weight are no tokens";
  EXPECT_EQ(run.token_of(*find_place(run, "2/0/-/loss").value().tensor, 4).position, 1);
}

/// What a checked recording of inference does not have, a training step must not smuggle in.
TEST_F(TrainingSteps, AreCheckedLikeOthers) {
  change("UPDATE spans SET context = 4 WHERE step = 4 AND span = 1");
  EXPECT_THAT(Recording::open_checked(path_).error().message, HasSubstr("of a request of 3 tokens, sees 4"));
}

TEST_F(TrainingSteps, RowsOfAnOptimizerStepAreSomebodys) {
  change("UPDATE steps SET tokens = 400 WHERE kind = 'optimizer'");
  EXPECT_THAT(Recording::open_checked(path_).error().message, HasSubstr("step 3 of 0 tokens has 400 rows"));
}

TEST_F(TrainingSteps, UnknownKindsAreRefused) {
  change("UPDATE steps SET kind = 'sideways' WHERE id = 2");
  EXPECT_THAT(Recording::open_checked(path_).error().message, HasSubstr("unexpected word 'sideways'"));
}

/// Schema 2 has the same tables, and is read; nothing is written to it.
TEST_F(TrainingSteps, SchemaTwoIsReadAndNotWritten) {
  change("PRAGMA user_version = 2");
  const Result<Recording> recording = Recording::open_checked(path_);
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->schema(), 2U);
  const EventRow event{1, "variance-collapse", 3, 0, "s", "{}"};
  EXPECT_THAT(write_events(path_, std::span(&event, 1)).error().message, HasSubstr("of schema 2"));
}

}  // namespace
}  // namespace nanscope
