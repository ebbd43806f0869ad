#include <algorithm>

#include "instrument/server_probe/mechanisms.h"

namespace nanscope::server_probe {

std::vector<Ranked> rank(const Study& study) {
  std::vector<Ranked> all;
  for (const Mechanism& mechanism : mechanisms()) {
    Ranked one{&mechanism, 0, {}, {}};
    for (const Weight& weight : mechanism.weights) {
      if (!study.saw(weight.sign)) continue;
      one.score += weight.weight;
      (weight.weight > 0 ? one.for_it : one.against).push_back(weight);
    }
    if (one.score > 0) all.push_back(std::move(one));
  }
  std::stable_sort(all.begin(), all.end(), [](const Ranked& a, const Ranked& b) { return a.score > b.score; });
  return all;
}

}  // namespace nanscope::server_probe
