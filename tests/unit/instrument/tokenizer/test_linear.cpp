#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instrument/files/regex.h"
#include "instrument/tokenizer/bpe_model.h"
#include "instrument/tokenizer/shipped.h"
#include "instrument/tokenizer/splitter.h"
#include "instrument/tokenizer/tokenizer.h"
#include "tests/cpu_seconds.h"

namespace nanscope {
namespace {

/// Bytes of which many sequences are no UTF-8, and white space, digits, letters of several lengths otherwise.
std::string random_text(std::mt19937& random) {
  constexpr std::array<std::string_view, 24> kParts = {
      "a",      "the",  "'ll",    " ",        "  ",     "\n",           "\r\n",     "7",
      "1234",   "!?",   "\u00e9", "\u4e2d",   "\u03a9", "\u00a0",       "\u2028",   "\U0001F600",
      "\u0301", "\xff", "\x80",   "\xe4\xb8", "\xc3",   "\xed\xa0\x80", "\xf0\x9f", "_"};
  std::string text;
  const bool broken = random() % 2 == 0;
  for (auto parts = random() % 60; parts > 0; --parts) {
    const std::string_view part = kParts[random() % kParts.size()];
    if (broken || static_cast<unsigned char>(part[0]) < 0x80 || part.size() > 1) text += part;
  }
  return text;
}

/// What Splitter did before: the expression looks for what is no UTF-8 by itself, at every match.
std::vector<std::string_view> split_plainly(const Regex& regex, std::string_view text) {
  std::vector<std::string_view> pieces;
  Regex::Matcher matcher(regex);
  std::size_t done = 0;
  while (done < text.size() && matcher.find(text, done, false).value()) {
    if (matcher.begin(0) > done) pieces.push_back(text.substr(done, matcher.begin(0) - done));
    pieces.push_back(text.substr(matcher.begin(0), matcher.end(0) - matcher.begin(0)));
    done = matcher.end(0);
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
  return pieces;
}

TEST(Splitter, CutsWhereThePlainLoopCuts) {
  const RegexLimits limits{.pattern_bytes = 65536, .steps = 10'000'000, .heap_kib = 64 * 1024};
  for (const std::string_view pattern : {
           std::string_view(kGpt2Pattern),
           // Llama-3's.
           std::string_view(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)"
                            R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
           std::string_view(R"(\p{N})"),
           std::string_view(R"(^\s*\p{L}|\p{L}$)"),
           std::string_view(R"((?m)^.|.$)"),
           std::string_view(R"((?<=\p{L})\p{N}|(?<!\s)\p{L}+)"),
           std::string_view(R"(\b\w|\w\b|\B.)"),
           std::string_view(R"(.(?=\p{L})|\X)"),
       }) {
    const Regex plain = Regex::compile(pattern, RegexSyntax::unicode, limits).value();
    const Splitter splitter = Splitter::regex(pattern).value();
    std::mt19937 random(7);
    for (int i = 0; i < 2000; ++i) {
      const std::string text = random_text(random);
      std::vector<std::string_view> pieces;
      ASSERT_TRUE(splitter.split(text, pieces).has_value());
      ASSERT_EQ(pieces, split_plainly(plain, text)) << pattern << " of " << testing::PrintToString(text);
    }
  }
}

/// Applies the merge of the lowest rank, leftmost first, until none applies.
std::vector<std::int32_t> merge_plainly(const std::vector<BpeMerge>& merges, std::string_view piece) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> ranks;
  for (std::size_t i = 0; i < merges.size(); ++i) ranks[{merges[i].left, merges[i].right}] = i;
  std::vector<std::int32_t> ids;
  for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
  for (;;) {
    std::size_t best = merges.size();
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == merges.size()) return ids;
    ids[at] = merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(BpeModel, MergesAsThePlainLoopDoes) {
  ByteTokens bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::int32_t>(i);
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<BpeMerge> merges;
    const auto token = [&] {
      const auto of = random() % (3 + merges.size());
      return of < 3 ? static_cast<std::int32_t>('a' + of) : merges[of - 3].result;
    };
    for (std::int32_t i = 0; i < 30; ++i) {
      const BpeMerge merge{token(), token(), 256 + i};
      const bool known = std::any_of(merges.begin(), merges.end(), [&](const BpeMerge& other) {
        return other.left == merge.left && other.right == merge.right;
      });
      if (!known) merges.push_back(merge);
    }
    const BpeModel model(bytes, merges);
    for (int i = 0; i < 20; ++i) {
      std::string piece(random() % 80, 'a');
      for (char& c : piece) c = static_cast<char>('a' + random() % 3);
      std::vector<std::int32_t> ids;
      ASSERT_TRUE(model.encode(piece, ids).has_value());
      ASSERT_EQ(ids, merge_plainly(merges, piece)) << piece;
    }
  }
}

TEST(BpeModel, BeginsWithCharactersBytesAndWhatIsUnknown) {
  CharacterTokens characters;
  characters.tokens = {{'a', 0}, {0x4E2D, 1}};
  characters.bytes.fill(-1);
  const auto encoded = [&](std::string_view piece) {
    std::vector<std::int32_t> ids;
    const BpeModel model(characters, {{0, 1, 2}, {3, 4, 5}, {9, 9, 10}}, {{"aaa", 7}});
    return model.encode(piece, ids) ? ids : std::vector<std::int32_t>{-1};
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(encoded("a\u4e2da"), (Ids{2, 0}));
  EXPECT_EQ(encoded("aaa"), Ids{7});
  EXPECT_EQ(encoded("a\u00e9"), Ids{-1});
  EXPECT_EQ(encoded("a\xff"), Ids{-1});
  characters.bytes[0xC3] = 3;
  EXPECT_EQ(encoded("a\u00e9"), Ids{-1});
  characters.bytes[0xA9] = 4;
  EXPECT_EQ(encoded("a\u00e9\xc3"), (Ids{0, 5, 3}));
  characters.unknown = 9;
  EXPECT_EQ(encoded("b\xff\xff"
                    "a"),
            (Ids{10, 9, 0}));
  // As in the package bytes come before the unknown token of what stands before them.
  EXPECT_EQ(encoded("b\u00e9"
                    "ab"),
            (Ids{5, 9, 0, 9}));
  characters.fuse_unknown = true;
  EXPECT_EQ(encoded("bb\xff"
                    "ab\u00e9"
                    "b"),
            (Ids{9, 0, 5, 9}));
}

/// A text of 4 MB takes half a second; looking at all of it for each word took twenty minutes.
TEST(Tokenizer, TakesTimeInProportionToTheText) {
  const Tokenizer tokenizer = load_shipped_tokenizer().value();
  for (const std::string_view part : {"a ", "a\xff", "\xc3 1"}) {
    std::string text;
    while (text.size() < 4'000'000) text += part;
    const double start = cpu_seconds();
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    EXPECT_EQ(tokenizer.decode(*ids), text);
    EXPECT_LT(cpu_seconds() - start, 60);
  }
}

/// SentencePiece's models see a whole text as one piece.
TEST(Tokenizer, TakesTimeInProportionToThePieceOverCharacters) {
  const std::string path = NANSCOPE_SOURCE_DIR "/tests/unit/instrument/tokenizer/checkpoints/llama.json";
  const Tokenizer tokenizer = Tokenizer::load(path).value();
  for (const std::string_view part : {"the lighthouse ", " ", "t", "\u4e2d\U0001F600", "\xe4\xb8", "<s> a", "</s"}) {
    std::string text;
    while (text.size() < 1'000'000) text += part;
    const double start = cpu_seconds();
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    EXPECT_EQ(tokenizer.decode(*ids).size(), text.size() + (part == "<s> a" ? text.size() / part.size() : 0)) << part;
    EXPECT_LT(cpu_seconds() - start, 30) << part;
  }
}

}  // namespace
}  // namespace nanscope
