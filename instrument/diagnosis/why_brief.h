#pragma once
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "instrument/diagnosis/why.h"

namespace nanscope {

/// Hops of a walk that tell the story alone, ascending: where it starts and ends, the origin, whatever is no element
/// (slots of the cache, scales, weights), elements whose value is of another kind than that of the hop before (NaN,
/// Inf, finite), and behind the origin those that another format holds: casts, where clipping happens.
std::vector<std::size_t> hops_that_matter(const WhyPath& path);

/// to_json() of the hops that matter. Each has its "number" in the whole walk, whose length is "hops_in_all"; "origin"
/// is an index in the list as it is here.
nlohmann::ordered_json to_brief_json(const WhyPath& path);

}  // namespace nanscope
