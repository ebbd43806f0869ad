#include "instrument/tokenizer/bpe_trainer.h"

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "instrument/tokenizer/byte_alphabet.h"
#include "instrument/tokenizer/splitter.h"

namespace nanscope {
namespace {

/// A distinct piece of the text, as tokens, and how often it occurs.
struct Word {
  std::vector<std::int32_t> tokens;
  std::int64_t count = 0;
};

using Pair = std::pair<std::int32_t, std::int32_t>;

/// The most frequent pair, and its count; of equal counts the first pair in order.
std::pair<Pair, std::int64_t> most_frequent(const std::vector<Word>& words) {
  std::map<Pair, std::int64_t> counts;
  for (const Word& word : words) {
    for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      counts[{word.tokens[i], word.tokens[i + 1]}] += word.count;
    }
  }
  std::pair<Pair, std::int64_t> best{{0, 0}, 0};
  for (const auto& [pair, count] : counts) {
    if (count > best.second) best = {pair, count};
  }
  return best;
}

void apply_merge(std::vector<std::int32_t>& tokens, const BpeMerge& merge) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool merges = i + 1 < tokens.size() && tokens[i] == merge.left && tokens[i + 1] == merge.right;
    tokens[out++] = merges ? merge.result : tokens[i];
    if (merges) ++i;
  }
  tokens.resize(out);
}

}  // namespace

Result<std::vector<BpeMerge>> train_bpe(std::string_view text, int merge_count) {
  const auto splitter = Splitter::regex(kGpt2Pattern);
  if (!splitter) return tl::unexpected(splitter.error());
  std::vector<std::string_view> pieces;
  if (const auto status = splitter->split(text, pieces); !status) return tl::unexpected(status.error());
  std::map<std::string_view, std::int64_t> counts;
  for (const std::string_view piece : pieces) ++counts[piece];
  std::vector<Word> words;
  for (const auto& [piece, count] : counts) {
    Word word{{}, count};
    for (const char c : piece) word.tokens.push_back(byte_rank(static_cast<std::uint8_t>(c)));
    words.push_back(std::move(word));
  }
  std::vector<BpeMerge> merges;
  for (std::int32_t id = 256; id < 256 + merge_count; ++id) {
    const auto [pair, count] = most_frequent(words);
    if (count < 2) break;
    merges.push_back({pair.first, pair.second, id});
    for (Word& word : words) apply_merge(word.tokens, merges.back());
  }
  return merges;
}

std::string tokenizer_json(const std::vector<BpeMerge>& merges, const std::vector<std::string>& specials) {
  using nlohmann::ordered_json;
  std::vector<std::string> tokens;
  for (int rank = 0; rank < 256; ++rank) {
    tokens.push_back(to_alphabet(std::string(1, static_cast<char>(byte_of_rank(rank)))));
  }
  ordered_json merge_list = ordered_json::array();
  for (const BpeMerge& merge : merges) {
    const std::string& left = tokens[static_cast<std::size_t>(merge.left)];
    const std::string& right = tokens[static_cast<std::size_t>(merge.right)];
    merge_list.push_back(left + " " + right);
    tokens.push_back(left + right);
  }
  ordered_json vocab = ordered_json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) vocab[tokens[id]] = id;
  ordered_json added = ordered_json::array();
  for (std::size_t i = 0; i < specials.size(); ++i) {
    added.push_back({{"id", tokens.size() + i},
                     {"content", specials[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const ordered_json root = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", added},
                             {"normalizer", nullptr},
                             {"pre_tokenizer", byte_level},
                             {"post_processor", nullptr},
                             {"decoder", byte_level},
                             {"model",
                              {{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", nullptr},
                               {"continuing_subword_prefix", nullptr},
                               {"end_of_word_suffix", nullptr},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"ignore_merges", false},
                               {"vocab", vocab},
                               {"merges", merge_list}}}};
  return root.dump(1) + "\n";
}

}  // namespace nanscope
