#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>

#include "tests/unit/core/recording/sample.h"

/// Rows of a recording that contradict each other: said at once, and never believed.
namespace nanscope {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Check : public testing::Test {
 protected:
  Check() {
    auto writer = RecordingWriter::create(whole_, sample::run_info()).value();
    writer->add(RequestRow{0, "r", R"([{"text":"a"}])", {1, 2, 3, 4, 5}, 0, {6}, "b"});
    for (std::int64_t step = 1; step <= 3; ++step) {
      sample::add_step(*writer, step, 0, step - 1, 4, 5, 600, true);
      ScaleRow scale;
      scale.step = step;
      scale.op = step * 4;
      scale.target = "k";
      writer->add(scale);
      KvRow kv;
      kv.step = kv.block = step;
      kv.slot_end = 4;
      writer->add(kv);
      writer->add(TokenRow{0, step, 7, "t", TokenSource::prompt});
      writer->add(KernelRow{step * 4, "gemm", 1, 2, "{}"});
    }
    writer->add(WeightRow{"w", Format::f32, 2, 2, 1, Health{}});
    EXPECT_TRUE(writer->finish(12));
    const EventRow event{1, "variance-collapse", 3, 0, "s", "{}"};
    EXPECT_TRUE(write_events(whole_, std::span(&event, 1)));
  }

  /// What is said of the recording when a statement changed it; empty when nothing is.
  std::string with(const std::string& statement) {
    fs::copy_file(whole_, changed_, fs::copy_options::overwrite_existing);
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(changed_.c_str(), &db), SQLITE_OK);
    char* message = nullptr;
    EXPECT_EQ(sqlite3_exec(db, statement.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
    sqlite3_free(message);
    EXPECT_GT(sqlite3_total_changes(db), 0) << statement;
    sqlite3_close(db);
    const auto opened = Recording::open_checked(changed_);
    if (opened) return {};
    EXPECT_EQ(opened.error().message.rfind(changed_.string() + ": damaged: ", 0), 0U) << opened.error().message;
    EXPECT_EQ(opened.error().message.find('\n'), std::string::npos);
    return opened.error().message;
  }

  TemporaryFolder folder_;
  fs::path whole_ = folder_ / "whole";
  fs::path changed_ = folder_ / "changed";
};

/// What was checked is what is read.
TEST_F(Check, ACompleteRecordingStaysAsItIsWhileItIsRead) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(whole_.c_str(), &db), SQLITE_OK);
  const char* change = "UPDATE run SET value = 'x' WHERE key = 'created'";
  {
    const auto recording = Recording::open_checked(whole_);
    ASSERT_TRUE(recording) << recording.error().message;
    EXPECT_EQ(sqlite3_exec(db, change, nullptr, nullptr, nullptr), SQLITE_BUSY);
  }
  EXPECT_EQ(sqlite3_exec(db, change, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
}

/// A writer that waits for a reader would hold up the program that it records.
TEST_F(Check, ARecordingThatGrowsIsNotHeld) {
  const fs::path path = folder_ / "growing";
  auto writer = RecordingWriter::create(path, sample::run_info()).value();
  writer->add(RequestRow{0, "r", R"([{"text":"a"}])", {1, 2, 3, 4, 5}, 0, {6}, "b"});
  sample::add_step(*writer, 1, 0, 0, 4, 5, 600, true);
  ASSERT_TRUE(writer->flush());
  const auto growing = Recording::open_checked(path);
  ASSERT_TRUE(growing) << growing.error().message;
  sample::add_step(*writer, 2, 0, 1, 4, 5, 600, true);
  const Status finished = writer->finish(8);
  EXPECT_TRUE(finished) << finished.error().message;
}

TEST_F(Check, AWholeRecordingIsBelieved) {
  const auto opened = Recording::open_checked(whole_);
  EXPECT_TRUE(opened) << opened.error().message;
}

TEST_F(Check, RowsThatAreMissing) {
  EXPECT_THAT(with("DELETE FROM steps"), HasSubstr("0 of 3 steps"));
  EXPECT_THAT(with("DELETE FROM requests"), HasSubstr("0 of 1 requests"));
  EXPECT_THAT(with("DELETE FROM ops WHERE id = 12; DELETE FROM tensors WHERE id = 12"), HasSubstr("11 of 12 ops"));
  EXPECT_THAT(with("DELETE FROM tensors WHERE id = 12"), HasSubstr("without their tensor"));
  EXPECT_THAT(with("DELETE FROM chunks WHERE id / 65536 = 3"), HasSubstr("of 11 of 12 tensors"));
  EXPECT_THAT(with("DELETE FROM detail WHERE tensor = 3"), HasSubstr("rows of tensor 3 is missing"));
  EXPECT_THAT(with("DELETE FROM spans WHERE step = 3; INSERT INTO spans SELECT 77, 0, 0, 0, 0, 1, 0, 1"),
              HasSubstr("has 5 rows"));
  EXPECT_THAT(with("INSERT INTO spans SELECT 77, 0, 0, 0, 0, 1, 0, 1"), HasSubstr("a sequence without its step"));
  EXPECT_THAT(with("DELETE FROM requests; UPDATE progress SET requests = 0; DELETE FROM tokens; DELETE FROM chunks; "
                   "DELETE FROM detail; UPDATE tensors SET detail = 0; UPDATE progress SET stored_tensors = 0"),
              HasSubstr("of which it holds nothing"));
  EXPECT_THAT(with("UPDATE progress SET unknown_tensors = -9223372036854775808"), HasSubstr("said to be unknown"));
}

TEST_F(Check, IdsThatLeadElsewhere) {
  EXPECT_THAT(with("UPDATE ops SET first_tensor = 1"), HasSubstr("of op"));
  EXPECT_THAT(with("UPDATE ops SET first_tensor = 3 WHERE id = 4"), HasSubstr("of op"));
  EXPECT_THAT(with("UPDATE steps SET first_op = 1"), HasSubstr("op 1 of step 1"));
  EXPECT_THAT(with("UPDATE steps SET first_op = 99 WHERE id = 3"), HasSubstr("op 9 of step 3"));
  EXPECT_THAT(with("UPDATE steps SET first_op = -3 WHERE id = 1"), HasSubstr("begins before"));
  EXPECT_THAT(with("UPDATE tensors SET op = 3 WHERE id = 4"), HasSubstr("tensor 4 of op 3"));
  EXPECT_THAT(with("UPDATE ops SET inputs = '[[\"x\",777]]' WHERE id = 3"), HasSubstr("op 3 reads tensor 777"));
  EXPECT_THAT(with("UPDATE ops SET inputs = '[[\"x\",-1]]' WHERE id = 3"), HasSubstr("below 0"));
  EXPECT_THAT(with("UPDATE scales SET op = 99"), HasSubstr("op 99"));
  EXPECT_THAT(with("UPDATE scales SET step = 99"), HasSubstr("step 99"));
  EXPECT_THAT(with("UPDATE kv SET step = 99"), HasSubstr("step 99"));
  EXPECT_THAT(with("UPDATE kernels SET op = 99"), HasSubstr("op 99"));
  EXPECT_THAT(with("UPDATE tokens SET request = 5"), HasSubstr("of request 5"));
  EXPECT_THAT(with("UPDATE events SET tensor = 99"), HasSubstr("tensor 99"));
  EXPECT_THAT(with("UPDATE events SET because = 1"), HasSubstr("because of event 1"));
  EXPECT_THAT(with("UPDATE tensors SET id = -5 WHERE id = 1"), HasSubstr("ascend"));
}

TEST_F(Check, ShapesThatAreNotThoseOfTheBytes) {
  EXPECT_THAT(with("UPDATE tensors SET channels = channels * 1000"), HasSubstr("has the health of"));
  EXPECT_THAT(with("UPDATE tensors SET channels = channels * 1000, elements = elements * 1000"),
              HasSubstr("of tensor 1"));
  EXPECT_THAT(with("UPDATE tensors SET tokens = 1000000, elements = 600000000 WHERE id = 2"), HasSubstr("tensor 2"));
  EXPECT_THAT(with("UPDATE tensors SET tokens = 0, elements = 0 WHERE id = 2"), HasSubstr("tensor 2"));
  EXPECT_THAT(with("UPDATE tensors SET format = 'e4m3' WHERE id = 2"), HasSubstr("of tensor 2"));
  EXPECT_THAT(with("UPDATE tensors SET format = 'f31' WHERE id = 2"), HasSubstr("'f31' is no format"));
  EXPECT_THAT(with("UPDATE tensors SET heads = 7 WHERE id = 2"),
              HasSubstr("tensor 2 has the shape 5 x 600 in 7 heads"));
  EXPECT_THAT(with("UPDATE tensors SET heads = 0 WHERE id = 2"), HasSubstr("in 0 heads"));
  EXPECT_THAT(with("UPDATE tensors SET axis = 'x' WHERE id = 2"), HasSubstr("word 'x'"));
  EXPECT_THAT(with("UPDATE tensors SET sequence = -2 WHERE id = 2"), HasSubstr("of sequence -2"));
  for (const char* flag : {"known", "guessed", "stated"})
    EXPECT_THAT(with(fmt::format("UPDATE tensors SET {} = 2 WHERE id = 2", flag)), HasSubstr("0 or 1"));
  EXPECT_THAT(with("UPDATE tensors SET known = 0 WHERE id = 2"), HasSubstr("11 of 12 tensors"));
  EXPECT_THAT(with("UPDATE tensors SET detail = 1 WHERE id = 2"), HasSubstr("of one tile"));
  EXPECT_THAT(with("UPDATE tensors SET detail = 0 WHERE id = 2"), HasSubstr("not mentioned"));
  EXPECT_THAT(with("UPDATE tensors SET detail = 7 WHERE id = 2"), HasSubstr("in place 7"));
  EXPECT_THAT(with("UPDATE chunks SET id = id + 1 WHERE id = 3 * 65536"), HasSubstr("part 1 of tensor 3"));
}

/// A run makes again what it does not hold; nothing makes as much as any number says.
TEST_F(Check, ElementsThatAreNowhere) {
  const std::string forget =
      "DELETE FROM chunks; DELETE FROM detail; UPDATE progress SET stored_tensors = 0; UPDATE tensors SET detail = 0, "
      "bad = 0, nan = 0, pos_inf = 0, neg_inf = 0, first_bad = -1, channels = channels * ";
  const auto wider = [&](const std::string& times) {
    return with(forget + times + ", elements = elements * " + times);
  };
  EXPECT_EQ(wider("10"), "");
  EXPECT_THAT(wider("1000000"), HasSubstr("tensor 1 has 5 x 600000000 elements, more than a run makes again"));
}

TEST_F(Check, CountsThatCannotBe) {
  EXPECT_THAT(with("UPDATE tensors SET nan = nan + 1 WHERE id = 2"), HasSubstr("not the sum"));
  EXPECT_THAT(with("UPDATE tensors SET zero = 4000 WHERE id = 2"), HasSubstr("4000 of 3000"));
  EXPECT_THAT(with("UPDATE tensors SET zero = -1 WHERE id = 2"), HasSubstr("-1 of 3000"));
  EXPECT_THAT(with("UPDATE tensors SET first_bad = 3000 WHERE id = 2"), HasSubstr("its first at 3000"));
  EXPECT_THAT(with("UPDATE tensors SET first_bad = -1 WHERE bad > 0"), HasSubstr("its first at -1"));
  EXPECT_THAT(with("UPDATE requests SET cached_tokens = 6"), HasSubstr("6 of 5 tokens"));
  EXPECT_THAT(with("UPDATE weights SET columns = 1 << 60"), HasSubstr("weight 'w'"));
}

TEST_F(Check, PlacesThatAreNowhere) {
  EXPECT_THAT(with("UPDATE tensors SET first_token = -1000000000 WHERE id = 2"), HasSubstr("position -1000000000"));
  EXPECT_THAT(with("UPDATE tensors SET sequence = 1 WHERE id = 2"), HasSubstr("of sequence 1"));
  EXPECT_THAT(with("UPDATE tensors SET axis = 'ends' WHERE id = 2"), HasSubstr("5 rows, its step 1 has 1"));
  EXPECT_THAT(with("UPDATE tensors SET axis = 'rows' WHERE id = 2; UPDATE steps SET tokens = 67108864"),
              HasSubstr("step 1 of 5 tokens has 67108864 rows"));
  EXPECT_THAT(with("UPDATE spans SET context = 6 WHERE step = 1"), HasSubstr("a request of 5 tokens, sees 6"));
  EXPECT_THAT(with("UPDATE tensors SET axis = 'live' WHERE id = 2; UPDATE spans SET row_count = 4"),
              HasSubstr("5 rows, its step 1 has 4"));
  EXPECT_THAT(with("UPDATE ops SET layer = -2"), HasSubstr("layer -2"));
  EXPECT_THAT(with("UPDATE spans SET number = -1"), HasSubstr("number -1"));
  EXPECT_THAT(with("UPDATE kv SET slot_end = 1 << 40"), HasSubstr("of block 1"));
  EXPECT_THAT(with("UPDATE kv SET block = -1 WHERE id = 1"), HasSubstr("of block -1"));
  EXPECT_THAT(with("UPDATE tokens SET position = -1 WHERE position = 1"), HasSubstr("position -1"));
}

TEST_F(Check, JsonThatIsNestedTooDeeply) {
  const std::string deep = fmt::format("replace(hex(zeroblob({})), '00', '[')", 100);
  EXPECT_THAT(with("UPDATE run SET value = " + deep + " WHERE key = 'config'"), HasSubstr("configuration"));
  EXPECT_THAT(with("UPDATE requests SET prompt = " + deep), HasSubstr("the prompt of request 0"));
  EXPECT_THAT(with("UPDATE ops SET attributes = " + deep + " WHERE id = 3"), HasSubstr("attributes of op 3"));
  EXPECT_THAT(with("UPDATE kernels SET details = " + deep), HasSubstr("details of a kernel"));
  EXPECT_THAT(with("UPDATE events SET evidence = " + deep), HasSubstr("evidence of event 1"));
}

TEST_F(Check, ElementsAreComparedWithTheirHashWhenTheyAreRead) {
  EXPECT_EQ(with("UPDATE chunks SET data = zeroblob(12000) WHERE id = 3 * 65536"), "");
  const Recording changed = Recording::open_checked(changed_).value();
  EXPECT_TRUE(changed.tensor_bytes(2));
  const auto whole = changed.tensor_bytes(3);
  ASSERT_FALSE(whole);
  EXPECT_THAT(whole.error().message, HasSubstr("the elements of tensor 3 have the hash"));
  EXPECT_FALSE(changed.tensor_bytes(3, 8, 4)) << "a part of them too";
}

TEST_F(Check, CanBeMadeAgain) {
  const Result<Recording> recording = Recording::open_checked(whole_);
  ASSERT_TRUE(recording) << recording.error().message;
  for (int time = 0; time < 2; ++time) {
    const Status again = recording->check();
    EXPECT_TRUE(again) << again.error().message;
  }
}

TEST_F(Check, HealthOfRowsIsComparedWithTheTensorsWhenItIsRead) {
  EXPECT_EQ(with("UPDATE detail SET token_rows = zeroblob(560) WHERE tensor = 3"), "");
  const auto rows = Recording::open_checked(changed_)->token_health(3);
  ASSERT_FALSE(rows);
  EXPECT_THAT(rows.error().message, HasSubstr("tensor 3 does not add up"));
}

TEST_F(Check, ARecordingThatStillGrowsIsWholeAtEveryMoment) {
  const fs::path path = folder_ / "growing";
  WriterOptions options;
  options.commit_interval = std::chrono::milliseconds(0);
  auto writer = RecordingWriter::create(path, sample::run_info(), options).value();
  for (std::int64_t step = 1; step <= 40; ++step) {
    sample::add_step(*writer, step, 0, step - 1, 4, 2, 8, true);
    const Status begun = step == 1 ? writer->flush() : Status();
    ASSERT_TRUE(begun);
    const auto opened = Recording::open_checked(path);
    ASSERT_TRUE(opened) << opened.error().message;
  }
}

}  // namespace
}  // namespace nanscope
