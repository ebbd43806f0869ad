#include "tests/corpus/corpus.h"

#include <array>
#include <cmath>
#include <utility>

namespace nanscope::corpus {

namespace classes {
#define CORPUS_FAULT(function, id) Case function(int shape, std::uint64_t seed);
#define CORPUS_CLEAN(function, id) Case function(int shape, std::uint64_t seed);
#include "tests/corpus/classes.def"
#undef CORPUS_FAULT
#undef CORPUS_CLEAN
}  // namespace classes

namespace {

constexpr std::array kFaults = {
#define CORPUS_FAULT(function, id) CorpusClass{id, classes::function},
#define CORPUS_CLEAN(function, id)
#include "tests/corpus/classes.def"
#undef CORPUS_FAULT
#undef CORPUS_CLEAN
};

constexpr std::array kClean = {
#define CORPUS_FAULT(function, id)
#define CORPUS_CLEAN(function, id) CorpusClass{id, classes::function},
#include "tests/corpus/classes.def"
#undef CORPUS_FAULT
#undef CORPUS_CLEAN
};

}  // namespace

std::span<const CorpusClass> fault_classes() { return kFaults; }
std::span<const CorpusClass> clean_kinds() { return kClean; }

Case labelled(Tape tape, Label label) {
  std::string doubt;
  for (const std::string* tensor : {&label.root, &label.first_bad}) {
    if (tensor->empty()) {
      doubt = "the fault did not come about";
    } else if (!tape.holds(*tensor)) {
      doubt = *tensor + " was not dumped";
    }
  }
  for (const Independent& other : label.others) {
    if (!tape.holds(other.root)) doubt = other.root + " was not dumped";
  }
  return {std::move(tape), std::move(label), std::move(doubt)};
}

Case clean(Tape tape) {
  std::string doubt;
  if (tape.not_finite() > 0) doubt = tape.first_not_finite() + " is not finite";
  return {std::move(tape), {}, std::move(doubt)};
}

Matrix foreign_direction(Model& model, std::uint64_t seed) {
  Matrix direction = normal(seed, "foreign", 1, model.shape.width, 1, Format::f32);
  double length = 0;
  for (const float v : direction.values) length += double{v} * double{v};
  for (std::int64_t t = 0; t < model.embed.rows; ++t) {
    double along = 0;
    for (std::int64_t c = 0; c < model.embed.cols; ++c)
      along += double{model.embed.at(t, c)} * double{direction.at(0, c)};
    for (std::int64_t c = 0; c < model.embed.cols; ++c) {
      float& v = model.embed.at(t, c);
      v = stored(model.shape.dtype, v - static_cast<float>(along / length) * direction.at(0, c));
    }
  }
  return direction;
}

void point_to(Prompt& prompt, std::int64_t first, std::int64_t last, const Matrix& direction, std::uint64_t seed,
              Format format) {
  const Matrix noise = normal(seed, "noise", prompt.embedded.rows, prompt.embedded.cols, 0.3, Format::f32);
  for (std::int64_t t = first; t <= last; ++t) {
    for (std::int64_t c = 0; c < prompt.embedded.cols; ++c) {
      prompt.embedded.at(t, c) = stored(format, 3 * direction.at(0, c) + noise.at(t, c));
    }
  }
}

Settings settings_for(const Shape& shape) {
  Settings settings;
  settings.cached = settings.causal = shape.family != Family::vit;
  return settings;
}

void scale_weight(Linear& linear, float factor) {
  Matrix w = linear.values();
  for (float& v : w.values) v *= factor;
  linear.set(w, linear.format);
}

std::string pass_folder(std::uint64_t seed) {
  constexpr std::array kFolders = {"step_000", "request_0", "rank0/step_004", "", "iter_12", "prefill"};
  return kFolders[seed % kFolders.size()];
}

std::string weights_folder(std::uint64_t seed, const std::string& beside) { return seed % 2 == 0 ? beside : ""; }

}  // namespace nanscope::corpus
