#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/corpus/server.h"
#include "tests/corpus/tape.h"

/// The corpus: dumps as production leaves them, and what is true of each by how it was made.
namespace nanscope::corpus {

/// A second fault that has nothing to do with the first.
struct Independent {
  std::string fault_class;
  std::string root;
};

/// What a diagnosis of a dump must say. All empty for clean ones.
struct Label {
  std::string fault_class;
  std::string root;                      ///< the tensor that carries the cause, else the first that shows it
  std::string first_bad;                 ///< the first with a symptom that nobody intended
  std::vector<Independent> others = {};  ///< behind it; every fault that is neither has a cause
  std::string follows = {};  ///< a class that must be found and whose causes must lead to the root; empty: none
};

struct Case {
  Tape tape;
  Label label;
  /// Why the label cannot be relied on: the fault did not come about as it was meant to. Empty when it did.
  std::string doubt;
};

inline constexpr int kShapes = 4;

/// A class of faults, or a kind of clean dump.
struct CorpusClass {
  std::string_view name;
  Case (*make)(int shape, std::uint64_t seed);
};

std::span<const CorpusClass> fault_classes();
std::span<const CorpusClass> clean_kinds();

/// A label whose two tensors are among the dumped ones; else the doubt says which is not.
Case labelled(Tape tape, Label label);
/// A clean dump; doubtful when a tensor holds a NaN or Inf.
Case clean(Tape tape);

/// A direction of unit variance that no token of text points to: it is taken out of the embeddings.
Matrix foreign_direction(Model& model, std::uint64_t seed);
/// The tokens from `first` on become ones that point to `direction`, with noise: an image's.
void point_to(Prompt& prompt, std::int64_t first, std::int64_t last, const Matrix& direction, std::uint64_t seed,
              Format format);
/// A server of healthy choices: a cache and a causal mask for decoders, neither for vision transformers.
Settings settings_for(const Shape& shape);
/// A weight times a number, rounded to its format again.
void scale_weight(Linear& linear, float factor);
/// The folder of the one pass of a dump, as producers call it; none for some.
std::string pass_folder(std::uint64_t seed);
/// The folder where a producer puts weights: beside the activations, or above all of them.
std::string weights_folder(std::uint64_t seed, const std::string& beside);

}  // namespace nanscope::corpus
