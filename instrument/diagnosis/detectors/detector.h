#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/diagnosis/survey.h"

/// A detector reads what a survey of a run found and says which of it is its class of fault, or the figure that says
/// that there is none. docs/adding-a-detector.md shows how to add one.
namespace nanscope {

/// Which of several findings explains a symptom: ranks.def has the order, and the reason for each.
enum class Rank : std::uint8_t {
#define NANSCOPE_RANK(rank, why) rank,
#include "instrument/diagnosis/detectors/ranks.def"
#undef NANSCOPE_RANK
};

/// What a fault explains: a birth, a cast or a deviation of the survey, by its index.
struct Symptom {
  enum class Kind : std::uint8_t { birth, cast, deviation } kind = Kind::birth;
  std::size_t index = 0;
  auto operator<=>(const Symptom&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct Finding {
  Fault fault;  ///< without class and because
  TensorId tensor = 0;
  TensorId shows_in = 0;           ///< what is first bad, where that is not the tensor of the fault
  std::vector<std::int64_t> rows;  ///< of the tensor; empty: all
  std::vector<Symptom> explains;   ///< empty: a fault beside all others
  Rank rank = Rank::counted;
  bool stays = false;  ///< told though something surer explains the same
};

struct Findings {
  std::vector<Finding> found;
  Check check;  ///< without class; `found` is set by the caller

  void excluded(std::string figure) { check = {{}, Checked::excluded, std::move(figure)}; }
  void not_looked_at(std::string reason) { check = {{}, Checked::not_looked_at, std::move(reason)}; }
  void not_in_dump(std::string capture) { check = {{}, Checked::not_in_dump, std::move(capture)}; }
};

struct Detector {
  std::string_view fault_class;
  std::string_view looks_for;
  Findings (*detect)(Survey& survey);
};

std::span<const Detector> detectors();
/// Null when there is none of that name.
const Detector* find_detector(std::string_view fault_class);

/// A fault at a tensor, with rows of it.
Finding finding_at(Survey& survey, const Tensor& tensor, const std::vector<std::int64_t>& rows = {});

}  // namespace nanscope
