#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/diagnosis/evidence.h"
#include "core/diagnosis/run_data.h"
#include "core/diagnosis/tensor_source.h"
#include "core/result.h"

/// The "!" cascade: the fourteen links from a quantization setting to a row of exclamation marks,
/// each looked for in the recorded numbers alone. docs/adding-a-detector.md describes how.
namespace nanscope {

inline constexpr int kCascadeLinks = 14;

enum class LinkState : std::uint8_t {
  found,          ///< the numbers show it
  not_reached,    ///< the numbers show that it did not happen; the summary has the figure
  not_available,  ///< the numbers that would tell were not recorded
};

struct Link {
  int number = 0;     ///< 1..14
  std::string id;     ///< stable: "fp8-kv-dynamic-scale" ... "nan-logits-token-0"
  std::string title;  ///< what the link is, in a few words
  LinkState state = LinkState::not_reached;
  Where where;  ///< the first place it was found at
  std::vector<Evidence> evidence;
  std::string summary;  ///< one sentence: what was found, or the figure that says it was not
};

struct Cascade {
  std::vector<Link> links;  ///< kCascadeLinks of them, in order
  int found() const;        ///< how many were
  /// Number of the first link that was not found after one that was, 0 when there is none: where
  /// the chain breaks.
  int breaks_at() const;
};

Result<Cascade> cascade(RunData& run, TensorSource& tensors);

nlohmann::ordered_json to_json(const Cascade& cascade);
std::string_view name(LinkState state);  ///< "found", "not-reached", "not-available"

}  // namespace nanscope
