#include "instrument/train/text_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "core/tensor/content_hash.h"
#include "instrument/files/file.h"
#include "instrument/weights/random.h"

namespace nanscope::train {

namespace {

constexpr std::uint64_t kLargestText = std::uint64_t{1} << 30;

std::string hash_of(std::span<const std::byte> bytes) {
  ContentHash hash;
  hash.add(bytes);
  return fmt::format("{:016x}", hash.finish());
}

/// By byte of `text`, whether it lies on a line that begins with `prefix`; a line has the line feed that ends it.
std::vector<std::uint8_t> bytes_of_lines(std::string_view text, std::string_view prefix) {
  std::vector<std::uint8_t> marked(text.size(), 0);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t feed = text.find('\n', begin);
    const std::size_t end = feed == std::string_view::npos ? text.size() : feed + 1;
    if (text.substr(begin).starts_with(prefix)) {
      std::fill(marked.begin() + static_cast<std::ptrdiff_t>(begin), marked.begin() + static_cast<std::ptrdiff_t>(end),
                std::uint8_t{1});
    }
    begin = end;
  }
  return marked;
}

/// A token lies on the line of its first byte of the text.
Result<std::vector<std::uint8_t>> ignored_tokens(const std::string& prefix, const Tokenizer& tokenizer,
                                                 std::span<const std::int32_t> tokens, std::string_view text) {
  std::string decoded;
  for (const std::int32_t token : tokens) decoded += tokenizer.token_text(token);
  if (!std::string_view(decoded).ends_with(text)) {
    return fail(
        "train.ignore: the tokens of this tokenizer do not give the text back, so which lines they lie on is "
        "not known; leave train.ignore empty");
  }
  const std::size_t added = decoded.size() - text.size();  // a tokenizer may put a space before the text
  const std::vector<std::uint8_t> marked = bytes_of_lines(text, prefix);
  std::vector<std::uint8_t> ignored;
  ignored.reserve(tokens.size());
  std::size_t at = 0;
  for (const std::int32_t token : tokens) {
    const std::size_t byte = std::max(at, added) - added;
    ignored.push_back(byte < marked.size() ? marked[byte] : std::uint8_t{0});
    at += tokenizer.token_text(token).size();
  }
  return ignored;
}

/// The token that the sequence begins at. Of `tokens` tokens, which are more than `length`.
std::int64_t first_token(const TrainConfig& config, std::int64_t tokens, std::int64_t sequence) {
  if (config.order == TextOrder::sequential) {
    const std::int64_t whole = (tokens - 1) / config.length;
    return sequence % whole * config.length;
  }
  const auto places = static_cast<std::uint64_t>(tokens - config.length);
  const std::uint64_t bits = random_bits(static_cast<std::uint64_t>(config.seed), stream_of("train.text"),
                                         static_cast<std::uint64_t>(sequence));
  return static_cast<std::int64_t>(bits * places >> 32);
}

}  // namespace

Result<TrainingText> make_training_text(const TrainConfig& config, const Tokenizer& tokenizer, std::string_view text) {
  auto tokens = tokenizer.encode(text);
  if (!tokens) return fail("train.text: " + tokens.error().message);
  TrainingText made;
  made.tokens = std::move(*tokens);
  if (std::cmp_less_equal(made.tokens.size(), config.length)) {
    return fail(
        fmt::format("train.text: has {} tokens, where a sequence of train.length = {} takes {}; use a longer "
                    "text or a smaller train.length",
                    made.tokens.size(), config.length, config.length + 1));
  }
  made.ignored.assign(made.tokens.size(), 0);
  if (!config.ignore.empty()) {
    auto ignored = ignored_tokens(config.ignore, tokenizer, made.tokens, text);
    if (!ignored) return tl::unexpected(ignored.error());
    made.ignored = std::move(*ignored);
  }
  return made;
}

Result<std::string> text_hash(const std::filesystem::path& path) {
  if (path.empty()) return fail("train.text: names no file; train.steps > 0 needs a text to train on");
  const auto bytes = read_file(path, kLargestText);
  if (!bytes) return fail("train.text: " + bytes.error().message);
  return hash_of(*bytes);
}

Result<TrainingText> load_training_text(const TrainConfig& config, const Tokenizer& tokenizer) {
  if (config.text.empty()) return fail("train.text: names no file; train.steps > 0 needs a text to train on");
  const auto bytes = read_file(config.text, kLargestText);
  if (!bytes) return fail("train.text: " + bytes.error().message);
  const std::string found = hash_of(*bytes);
  if (!config.text_hash.empty() && config.text_hash != found) {
    return fail(fmt::format("train.text: {}: is not the text of this run, its hash is {} instead of {}", config.text,
                            found, config.text_hash));
  }
  return make_training_text(config, tokenizer, as_text(*bytes));
}

std::vector<Sequence> batch_of_step(const TrainConfig& config, const TrainingText& text, std::int64_t step) {
  std::vector<Sequence> batch;
  batch.reserve(static_cast<std::size_t>(config.batch));
  const auto count = static_cast<std::int64_t>(text.tokens.size());
  for (std::int64_t index = 0; index < config.batch; ++index) {
    const std::int64_t begin = first_token(config, count, step * config.batch + index);
    Sequence sequence;
    for (std::int64_t at = begin; at < begin + config.length; ++at) {
      const auto token = static_cast<std::size_t>(at);
      sequence.tokens.push_back(text.tokens[token]);
      sequence.targets.push_back(text.ignored[token + 1] != 0 ? -1 : text.tokens[token + 1]);
    }
    batch.push_back(std::move(sequence));
  }
  return batch;
}

}  // namespace nanscope::train
