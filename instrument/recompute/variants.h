#pragma once
#include <vector>

/// What OpForm::variant, and the other numbers that each kind of op gives a meaning of its own, stand for. Whoever
/// makes forms besides the recipes (instrument/verify) uses these.
namespace nanscope {

/// OpForm::variant of a norm.
enum Statistic : int { kRms = 0, kLayer = 1, kL2 = 2, kNotNormed = 3 };

/// OpForm::scale_power of a norm: the weight as it is stored, or 1 + it.
enum Gain : int { kAsStored = 1, kOnePlus = 2 };

/// OpForm::rounded of a norm: its bias is not added; or it goes over the sum before it, not as that was rounded.
enum NormForm : int { kNormWithoutBias = 1, kOfUnroundedSum = 2 };

/// OpForm::variant of a rotation.
enum Pairing : int { kHalves = 0, kNeighbours = 1, kNone = 2, kBackwards = 3 };

/// OpForm::variant of a product.
enum ProductForm : int {
  kAsDumped = 0,
  kCodes = 1,          ///< x is what was quantised of it
  kScaleOfWeight = 2,  ///< scale_power is that of the weight's scale
  kScaleOfCodes = 3,   ///< scale_power is that of the codes' scale
  kNoBias = 4,
  kTransposedScale = 5,  ///< rows and columns of the table of scales are swapped
  kRoundedOperand = 6,   ///< x was rounded to the weight's format first
  kHalfSums = 7,         ///< sums of blocks in f16
  kNoSecond = 8,         ///< the scale of the scales is left out
  kRangeOfK = 9,         ///< the k from `shift` on, `heads` of them, are left out of the sums
  kOverRanks = 10,       ///< each rank has a part of k, and the sum of all
  kNoZeroPoint = 12,     ///< codes are read without their zero point
  kCastInput = 11,       ///< x goes through the cast `x_as`, as input_cast.h has it; its codes were not dumped
};

/// OpForm::rounded of a product: what of it is rounded to the activations' format when it is dequantised.
enum Dequantised : int { kWeightRounded = 1, kOperandRounded = 2 };

/// OpForm::variant of a sum: which of its terms count how often. The second one may stand behind a gate.
enum Terms : int {
  kBoth = 0,
  kFirstOnly = 1,
  kSecondOnly = 2,
  kFirstTwice = 3,
  kSecondTwice = 4,
  kFirstTimes = 5,   ///< OpForm::number
  kSecondTimes = 6,  ///< OpForm::number
  kUngated = 7
};

/// OpForm::number of an activation: whether it is multiplied, where that is not as its inputs say.
inline constexpr double kGateAlone = 1;
inline constexpr double kTimesUp = 2;

/// OpForm::variant of scores. The second is GPT-2's scale_attn_by_inverse_layer_idx; the third adds what a mask adds.
enum Factor : int { kAlike = 0, kByLayer = 1, kAddsMask = 2 };

/// Bits of OpForm::variant of a router's weights: what becomes of the logits, and of what was chosen.
enum Routing : int {
  kSigmoid = 1,  ///< else a softmax
  kAsGiven = 2,  ///< scores were dumped: nothing is left to do
  kNormed = 4,   ///< divided by their sum
  kBiased = 8    ///< chosen by score plus bias, weighed by the score: DeepSeek-V3, arXiv:2412.19437, eq. 16
};

/// OpForm::number of a mixture: what is wrong. OpForm::variant and shift are those of its activation; of the faults of
/// one expert, `heads` is that expert and `other` the one in its place.
enum Mixing : int {
  kAsRouted = 0,
  kNotNormalised = 1,
  kLeftOut = 2,
  kOtherExpert = 3,
  kOtherGate = 4,  ///< and up
  kOtherDown = 5,
  kSwapped = 6,      ///< each of the two in the place of the other
  kSomeExperts = 7,  ///< the experts from `heads` to `other`, exclusive: those of a rank of expert parallelism
};

/// OpForm::variant of the gated delta rule: what is left out of it.
enum DeltaForm : int {
  kWholeRule = 0,
  kFreshState = 1,  ///< what tokens of earlier steps left
  kNoDecay = 2,
  kNoLength = 3,  ///< the norm of queries and keys
};

/// Angles of a rotary embedding: radians a position, by pair of channels, and what cosine and sine are multiplied by.
struct RopeAngles {
  std::vector<float> frequencies;
  float amplitude = 1;
  bool operator==(const RopeAngles&) const = default;
};

}  // namespace nanscope
