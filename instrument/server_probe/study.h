#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instrument/server_probe/conversation.h"
#include "instrument/server_probe/messages.h"

namespace nanscope::server_probe {

enum class Sign : std::uint8_t {
#define SIGN(name, text) name,
#include "instrument/server_probe/signs.def"
#undef SIGN
};
std::string_view name(Sign sign);
std::string_view text(Sign sign);

enum class State : std::uint8_t { held, broken, not_asked };

/// What became of an invariant.
struct Observation {
  std::string invariant;
  State state = State::not_asked;
  std::string summary;  ///< a sentence: what was compared, by how much it differs, where; or why it was not asked
  double largest = 0;   ///< difference of a log probability
  double limit = 0;     ///< up to which it is noise
  std::int64_t compared = 0;
};

/// What the experiments share.
struct Study {
  explicit Study(Conversation& asked) : talk(asked) {}
  Conversation& talk;
  Conversation* reference = nullptr;
  std::vector<Observation> observations;
  std::map<Sign, std::string> signs;  ///< with the place or the size that shows each

  std::vector<std::int32_t> tokens;           ///< of a long plain text; empty: the server tells no ids
  std::string long_text;                      ///< of so many tokens as fit
  std::array<std::vector<Reply>, 2> repeats;  ///< answers to kShort and to kOther, in order
  double grid = 0;                            ///< spacing of logits that were rounded; 0: none is seen
  double resolution = -1;                     ///< typical difference between two kernels; negative: not measured

  /// The first answer to kShort; an empty reply where nothing was asked.
  const Reply& first() const;
  double largest = 0;  ///< difference between two kernels, where the invariant held
  /// Differences up to it are noise.
  double limit() const;
  void see(Sign sign, std::string where) { signs.emplace(sign, std::move(where)); }
  bool saw(Sign sign) const { return signs.contains(sign); }
  void not_asked(std::string invariant, std::string why) {
    observations.push_back({std::move(invariant), State::not_asked, std::move(why)});
  }
};

/// Tokens of a short plain prompt that nothing makes wide.
extern const std::string kShort;
extern const std::string kOther;
extern const std::string kLong;

/// How two answers to one request differ.
struct Difference {
  double largest = 0;    ///< of a log probability, or the margin that a token lost by
  std::int64_t at = -1;  ///< token of the answer
  std::int64_t compared = 0;
  bool nan = false;     ///< one is NaN where the other is not
  bool failed = false;  ///< one was not answered
  bool texts = false;   ///< there are no log probabilities, so only texts were compared
  bool same_text = false;
  std::vector<double> all;
};
/// Up to the first token that is another.
Difference compare(const Reply& a, const Reply& b);
/// Of the prompts, at positions where both have the same token.
Difference compare_prompts(const Reply& a, const Reply& b, std::size_t first, std::size_t end);

bool differs(const Difference& difference, double limit);
double median(std::vector<double> values);
/// A request that was answered from NaN, as far as it shows.
bool from_nan(const Reply& reply);

/// Adds what `differences` come to as an observation.
void conclude(Study& study, std::string invariant, std::string_view compared, std::span<const Difference> differences,
              double limit);
inline void conclude(Study& study, std::string invariant, std::string_view compared,
                     std::span<const Difference> differences) {
  conclude(study, std::move(invariant), compared, differences, study.limit());
}

/// One invariant each, or what the later ones need; in this order.
using Experiment = void (*)(Study&);
std::span<const Experiment> experiments();

}  // namespace nanscope::server_probe
