#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instrument/tokenizer/shipped.h"
#include "instrument/train/text_batches.h"
#include "tests/temporary_folder.h"

namespace nanscope::train {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Token i is i, so that a sequence says where it begins.
TrainingText counted_text(std::int32_t tokens) {
  TrainingText text;
  text.tokens.resize(static_cast<std::size_t>(tokens));
  std::iota(text.tokens.begin(), text.tokens.end(), 0);
  text.ignored.assign(text.tokens.size(), 0);
  return text;
}

TrainConfig batches_of(std::int64_t batch, std::int64_t length, TextOrder order, std::int64_t seed = 0) {
  TrainConfig config;
  config.batch = batch;
  config.length = length;
  config.order = order;
  config.seed = seed;
  return config;
}

std::vector<std::int32_t> begins_of(const TrainConfig& config, const TrainingText& text, std::int64_t steps) {
  std::vector<std::int32_t> begins;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (const Sequence& sequence : batch_of_step(config, text, step)) begins.push_back(sequence.tokens.front());
  }
  return begins;
}

TEST(TextBatches, TargetsAreTheTokensBehind) {
  const auto batch = batch_of_step(batches_of(2, 3, TextOrder::sequential), counted_text(20), 1);
  ASSERT_EQ(batch.size(), 2U);
  EXPECT_THAT(batch[0].tokens, ElementsAre(6, 7, 8));
  EXPECT_THAT(batch[0].targets, ElementsAre(7, 8, 9));
  EXPECT_THAT(batch[1].tokens, ElementsAre(9, 10, 11));
  EXPECT_THAT(batch[1].targets, ElementsAre(10, 11, 12));
}

/// 11 tokens hold three sequences of 3 and the target of the last; 10 do as well, 9 hold two.
TEST(TextBatches, SequentialOnesWrapAtTheLastWholeSequence) {
  const TrainConfig config = batches_of(2, 3, TextOrder::sequential);
  EXPECT_THAT(begins_of(config, counted_text(11), 4), ElementsAre(0, 3, 6, 0, 3, 6, 0, 3));
  EXPECT_THAT(begins_of(config, counted_text(10), 2), ElementsAre(0, 3, 6, 0));
  EXPECT_THAT(begins_of(config, counted_text(9), 2), ElementsAre(0, 3, 0, 3));
}

/// Offsets are floor(bits * (1000 - 8) / 2^32), where bits are Philox4x32-10 at (seed, FNV-1a of "train.text", number
/// of the sequence): computed in Python, whose Philox gives the known answers of Random123.
TEST(TextBatches, ShuffledOnesBeginWhereTheyAreDrawn) {
  const TrainingText text = counted_text(1000);
  EXPECT_THAT(begins_of(batches_of(4, 8, TextOrder::shuffled, 0), text, 3),
              ElementsAre(205, 965, 37, 904, 870, 109, 453, 214, 190, 460, 343, 68));
  EXPECT_THAT(begins_of(batches_of(3, 8, TextOrder::shuffled, 7), text, 4),
              ElementsAre(432, 904, 954, 552, 412, 610, 237, 500, 503, 957, 177, 885));
}

TEST(TextBatches, AStepIsTheSameWhicheverWasAskedForBefore) {
  const TrainingText text = counted_text(300);
  const TrainConfig config = batches_of(5, 16, TextOrder::shuffled, 3);
  const auto late = batch_of_step(config, text, 1000);
  batch_of_step(config, text, 0);
  const auto again = batch_of_step(config, text, 1000);
  for (std::size_t i = 0; i < late.size(); ++i) EXPECT_EQ(late[i].tokens, again[i].tokens);
}

/// Every place of a text that a sequence fits at is drawn, the last one included, and none behind it.
TEST(TextBatches, ShuffledOnesReachTheEndOfTheText) {
  const TrainingText text = counted_text(12);
  std::vector<int> times(12, 0);
  for (const std::int32_t begin : begins_of(batches_of(8, 8, TextOrder::shuffled), text, 100)) {
    ++times[static_cast<std::size_t>(begin)];
  }
  for (std::size_t place = 0; place < times.size(); ++place) EXPECT_EQ(times[place] > 0, place < 4) << place;
  const auto batch = batch_of_step(batches_of(1, 11, TextOrder::shuffled), text, 5);
  EXPECT_EQ(batch[0].targets.back(), 11);
}

TEST(TextBatches, TargetsOnIgnoredLinesAreNone) {
  const Tokenizer tokenizer = load_shipped_tokenizer().value();
  const std::string_view text = "A lamp.\n> not this\nA ship > here\n>nor this";
  TrainConfig config = batches_of(1, 1, TextOrder::sequential);
  config.ignore = ">";
  const TrainingText made = make_training_text(config, tokenizer, text).value();
  ASSERT_EQ(made.tokens.size(), made.ignored.size());

  std::string kept;
  for (std::size_t i = 0; i < made.tokens.size(); ++i) {
    if (made.ignored[i] == 0) kept += tokenizer.token_text(made.tokens[i]);
  }
  EXPECT_EQ(kept, "A lamp.\nA ship > here\n");

  config.length = static_cast<std::int64_t>(made.tokens.size()) - 1;
  const Sequence all = batch_of_step(config, made, 0).front();
  for (std::size_t i = 0; i < all.targets.size(); ++i) {
    EXPECT_EQ(all.targets[i], made.ignored[i + 1] != 0 ? -1 : made.tokens[i + 1]) << i;
  }
}

TEST(TextBatches, AnEmptyPrefixIgnoresNothing) {
  const TrainConfig config = batches_of(1, 2, TextOrder::sequential);
  const TrainingText made = make_training_text(config, load_shipped_tokenizer().value(), "> all of\n> it").value();
  EXPECT_THAT(made.ignored, Each(0));
}

TEST(TextBatches, ATextThatIsTooShortIsRefused) {
  const Tokenizer tokenizer = load_shipped_tokenizer().value();
  const auto tokens = static_cast<std::int64_t>(tokenizer.encode("The light.").value().size());
  TrainConfig config = batches_of(1, tokens - 1, TextOrder::shuffled);
  EXPECT_TRUE(make_training_text(config, tokenizer, "The light.").has_value());
  config.length = tokens;
  const auto refused = make_training_text(config, tokenizer, "The light.");
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("train.text: has " + std::to_string(tokens) + " tokens"));
}

TEST(TextBatches, FilesAreReadAndErrorsNameThem) {
  const TemporaryFolder folder;
  const Tokenizer tokenizer = load_shipped_tokenizer().value();
  TrainConfig config = batches_of(1, 2, TextOrder::sequential);
  EXPECT_THAT(load_training_text(config, tokenizer).error().message, HasSubstr("train.text: names no file"));
  config.text = (folder / "gone.txt").string();
  EXPECT_THAT(load_training_text(config, tokenizer).error().message, HasSubstr("gone.txt"));
  config.text = (folder / "text.txt").string();
  std::ofstream(config.text) << "The light turns.";
  const auto read = load_training_text(config, tokenizer);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(tokenizer.decode(read->tokens), "The light turns.");
  config.text_hash = text_hash(config.text).value();
  EXPECT_TRUE(load_training_text(config, tokenizer).has_value());
  std::ofstream(config.text) << "The light turned.";
  EXPECT_THAT(load_training_text(config, tokenizer).error().message,
              HasSubstr("text.txt: is not the text of this run, its hash is " + text_hash(config.text).value() +
                        " instead of " + config.text_hash));
}

}  // namespace
}  // namespace nanscope::train
