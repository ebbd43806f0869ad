#include "core/run/ranks.h"

#include <string>

namespace nanscope {
namespace {

std::string without_rank(const std::string& pass) { return pass.substr(0, pass.find("|rank")); }

}  // namespace

std::vector<const Step*> steps_of_other_ranks(RunView& run, const Step& step) {
  std::vector<const Step*> found;
  for (const Step& other : run.steps()) {
    const bool same = other.rank != step.rank && other.run == step.run && other.index() == step.index() &&
                      other.rows == step.rows && without_rank(other.pass) == without_rank(step.pass);
    if (same) found.push_back(&other);
  }
  return found;
}

}  // namespace nanscope
