#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope::train {

/// A text as tokens, and which of them are no targets.
struct TrainingText {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> ignored;  ///< by token, 1: of a line that begins with train.ignore
};

/// Which text a file holds: the content hash of its bytes in 16 hexadecimal digits. Errors: it cannot be read.
Result<std::string> text_hash(const std::filesystem::path& path);

/// Reads and tokenizes train.text. Errors: the file, another one than train.text_hash says, or a text that is shorter
/// than one sequence and its last target.
Result<TrainingText> load_training_text(const TrainConfig& config, const Tokenizer& tokenizer);
/// The same of a text in memory.
Result<TrainingText> make_training_text(const TrainConfig& config, const Tokenizer& tokenizer, std::string_view text);

/// One sequence: `length` tokens, and the target of each, -1 where it has none.
struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

/// The sequences of a training step: a function of the configuration, the text and the step alone.
std::vector<Sequence> batch_of_step(const TrainConfig& config, const TrainingText& text, std::int64_t step);

}  // namespace nanscope::train
