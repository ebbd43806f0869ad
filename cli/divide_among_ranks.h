#pragma once
#include <optional>
#include <string>

#include "cli/interrupt.h"
#include "cli/ranks.h"
#include "core/result.h"
#include "instrument/facts/dump_facts.h"

namespace nanscope::cli {

struct RankArguments {
  std::string target;
  std::string model;
  std::string facts;  ///< a file that keeps the facts, from which another job continues; empty: none
  bool follow_links = false;
  bool recompute = true;
  bool progress = false;
};

/// Computes the facts of a dump on all ranks of an MPI job. Rank 0 hands out the work by size to who is idle, and
/// returns all facts. Other ranks print nothing; `ended` is their exit code.
Result<std::optional<DumpFacts>> divide_among_ranks(const RankArguments& arguments, const Interrupt& interrupt,
                                                    std::optional<int>& ended);

}  // namespace nanscope::cli
