#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/server_probe/study.h"

namespace nanscope::server_probe {

/// How much a sign speaks for a mechanism, or against it where negative.
struct Weight {
  Sign sign;
  int weight = 0;
  std::string_view source;  ///< why: a definition, or the scenario that shows it
};

/// A row of the table (mechanisms.cpp).
struct Mechanism {
  std::string_view name;
  std::string_view title;
  std::string_view next;  ///< the toggle or the dump that decides
  std::vector<Weight> weights;
};
std::span<const Mechanism> mechanisms();

/// A mechanism with what was seen for and against it.
struct Ranked {
  const Mechanism* mechanism = nullptr;
  int score = 0;
  std::vector<Weight> for_it;
  std::vector<Weight> against;
};

/// Those that something speaks for, the best first; of equal ones the one that comes first in the table.
std::vector<Ranked> rank(const Study& study);

}  // namespace nanscope::server_probe
