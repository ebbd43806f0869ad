#include "scenarios/serve/measure_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "scenarios/serve/live_session.h"

namespace nanscope::serve {

using scenarios::SequenceLoss;
using scenarios::TextLoss;

namespace {

/// Cuts the text into sequences; `made.sequences` get their places.
Result<std::vector<std::vector<std::int32_t>>> sequences_of(const std::vector<std::int32_t>& tokens,
                                                            const LossOptions& options, TextLoss& made) {
  if (options.length < 2) return fail(fmt::format("a sequence of {} tokens has no target", options.length));
  made.length = options.length;
  made.autoregressive = options.autoregressive;
  made.text_tokens = std::ssize(tokens);
  made.text_sequences = made.text_tokens / options.length;
  if (made.text_sequences == 0) {
    return fail(fmt::format("the text has {} tokens, less than one sequence of {}", made.text_tokens, options.length));
  }
  std::vector<std::vector<std::int32_t>> sequences;
  for (std::int64_t i = 0; i < std::min(made.text_sequences, options.most_sequences); ++i) {
    const auto at = tokens.begin() + i * options.length;
    sequences.emplace_back(at, at + options.length);
    if (options.begin_token >= 0) sequences.back().insert(sequences.back().begin(), options.begin_token);
    const double unknown = std::numeric_limits<double>::quiet_NaN();
    made.sequences.push_back({.first_token = i * options.length, .parallel = unknown, .autoregressive = unknown});
  }
  return sequences;
}

/// Mean loss of the targets of a prompt.
Result<double> loss_of(const Answer& answer, SequenceLoss& sequence) {
  double sum = 0;
  sequence.targets = std::ssize(answer.prompt) - 1;
  for (std::size_t at = 1; at < answer.prompt.size(); ++at) {
    const std::optional<Position>& position = answer.prompt[at];
    if (!position) return fail(fmt::format("the run made no logits for token {} of a sequence", at));
    sum -= position->chosen.log_probability;
  }
  return sum / static_cast<double>(sequence.targets);
}

/// Token by token: sequences share steps, in which each has one token; a request has the bits that it has alone.
constexpr std::size_t kTogether = 8;

scenarios::RunSpec spec_for(const scenarios::RunSpec& spec, const LossOptions& options, bool autoregressive) {
  scenarios::RunSpec made = spec;
  KvConfig& kv = made.config.kv;
  if (options.grow_cache && kv.block_size > 0) {
    const std::int64_t tokens = options.length + 2;  // the one before it, and the one that an answer has at least
    const std::int64_t needed = (tokens + kv.block_size - 1) / kv.block_size;
    kv.blocks = std::max(kv.blocks, needed * (autoregressive ? std::int64_t{kTogether} : 1));
  }
  made.config.batch.requests = autoregressive ? std::int64_t{kTogether} : 1;
  made.config.batch.chunk = autoregressive ? 1 : 0;
  if (!autoregressive) made.config.batch.pad_to = 0;
  return made;
}

/// Asks for the sequences from `first` on, as many as share a step.
Status measure(LiveSession& session, std::span<const std::vector<std::int32_t>> tokens, bool autoregressive,
               std::span<SequenceLoss> sequences) {
  std::vector<Question> questions(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    questions[i].spec = {.name = "loss", .parts = {TokensPart{tokens[i]}}, .max_tokens = 1, .fresh = true};
    questions[i].prompt_chances = 0;
    if (Status accepted = session.accepts(questions[i]); !accepted) return accepted;
  }
  const auto answers = session.answer(questions, {});
  if (!answers) return tl::unexpected(answers.error());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Result<double> loss = loss_of((*answers)[i], sequences[i]);
    if (!loss) return tl::unexpected(loss.error());
    (autoregressive ? sequences[i].autoregressive : sequences[i].parallel) = *loss;
  }
  return {};
}

Status measure_all(LiveSession& session, std::span<const std::vector<std::int32_t>> tokens, const LossOptions& options,
                   bool autoregressive, TextLoss& made) {
  const auto total = std::ssize(made.sequences) * (options.autoregressive ? 2 : 1);
  const std::size_t together = autoregressive ? kTogether : 1;
  for (std::size_t i = 0; i < tokens.size(); i += together) {
    const std::size_t count = std::min(together, tokens.size() - i);
    const std::span<SequenceLoss> part = std::span(made.sequences).subspan(i, count);
    if (Status done = measure(session, tokens.subspan(i, count), autoregressive, part); !done) return done;
    const auto so_far = static_cast<std::int64_t>(i + count);
    if (options.progress) options.progress(so_far + (autoregressive ? std::ssize(made.sequences) : 0), total);
  }
  return {};
}

}  // namespace

Result<TextLoss> measure_loss(const scenarios::RunSpec& spec, std::string_view text, const LossOptions& options) {
  TextLoss made;
  std::vector<std::vector<std::int32_t>> tokens;
  for (const bool autoregressive : {false, true}) {
    if (autoregressive && !options.autoregressive) break;
    const auto session =
        LiveSession::open(spec_for(spec, options, autoregressive),
                          {.recording = {}, .capture = "none", .limits = options.limits, .stop = options.stop});
    if (!session) return tl::unexpected(session.error());
    if (!autoregressive) {
      if ((*session)->tokenizer().vocab_size() == 0) return fail("the model has no tokenizer, so a text has no tokens");
      const auto ids = (*session)->tokenizer().encode(text);
      if (!ids) return tl::unexpected(ids.error());
      auto cut = sequences_of(*ids, options, made);
      if (!cut) return tl::unexpected(cut.error());
      tokens = std::move(*cut);
    }
    if (Status done = measure_all(**session, tokens, options, autoregressive, made); !done)
      return tl::unexpected(done.error());
  }
  return made;
}

}  // namespace nanscope::serve
