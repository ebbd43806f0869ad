#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "instrument/files/file.h"
#include "instrument/tokenizer/bpe_trainer.h"

namespace nanscope {
namespace {

const std::filesystem::path kCorpus = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "instrument/corpus";

/// The checked-in vocabulary equals, merge by merge, what the `tokenizers` package 0.23.3 learns:
/// BpeTrainer(vocab_size=511, initial_alphabet=ByteLevel.alphabet(), min_frequency=2) on the text.
TEST(BpeTrainer, ReproducesTheCheckedInVocabulary) {
  const auto text = read_file(kCorpus / "lighthouse.txt", 1 << 20);
  const auto expected = read_file(kCorpus / "tokenizer.json", 1 << 20);
  ASSERT_TRUE(text.has_value() && expected.has_value());
  const auto merges = train_bpe(as_text(*text), 255);
  ASSERT_TRUE(merges.has_value());
  EXPECT_EQ(tokenizer_json(*merges, {"<|end|>"}), as_text(*expected));
}

TEST(BpeTrainer, TakesTheFirstPairOfEquallyFrequentOnes) {
  // 'a' is token 64, 'b' 65, 'c' 66: ab and bc occur twice each, ab comes first; then ab+c is left.
  const auto merges = train_bpe("abc\nabc", 5);
  ASSERT_TRUE(merges.has_value());
  EXPECT_EQ(*merges, (std::vector<BpeMerge>{{64, 65, 256}, {256, 66, 257}}));
}

TEST(BpeTrainer, CountsOverlappingRunsFromTheLeft) {
  const auto merges = train_bpe("aaa\naaa", 1);
  ASSERT_TRUE(merges.has_value());
  EXPECT_EQ(*merges, (std::vector<BpeMerge>{{64, 64, 256}}));
  EXPECT_TRUE(train_bpe("", 4)->empty());
}

}  // namespace
}  // namespace nanscope
