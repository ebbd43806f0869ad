#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "instrument/kv_schemes/kv_scheme.h"

namespace nanscope {

/// What is tried on K and V: schemes of a cache, or noise in their place.
struct PolicyCandidate {
  std::string name;
  std::string ships_in;  ///< the program that does so, or the paper; empty: one of the user's, or a claim's
  std::string needs;     ///< what of a model it is for, see KvPolicy
  KvScheme k;
  KvScheme v;
  /// Each element times 1 + noise * a normal number, and no scheme.
  double k_noise = 0;
  double v_noise = 0;
  bool exact_k = false;  ///< as it was, and no scheme
  bool exact_v = false;
};

/// All of policies.def.
std::vector<PolicyCandidate> named_candidates();

/// Those that the claims compare, whose names no policy has.
std::vector<PolicyCandidate> claim_candidates();

}  // namespace nanscope
