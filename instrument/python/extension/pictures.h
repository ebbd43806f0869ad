#pragma once
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>

#include "instrument/diagnosis/front.h"
#include "instrument/python/extension/open_run.h"

namespace nanscope::python {

/// The map of one step; without a request or a step, of the first that holds a NaN or an Inf, else of the first.
Front front_of(Run& run, std::optional<std::int64_t> request, std::optional<std::int64_t> step);

// PNGs of at most width x height pixels for the cells, and room for words beside them. Themes are "light" and "dark".

/// The whole run, token by layer and op.
pybind11::bytes map_png(Run& run, int width, int height, const std::string& theme);
/// A tensor's elements; of scores and probabilities one head's.
pybind11::bytes tensor_png(Run& run, std::int64_t tensor, std::optional<std::int64_t> head, int width, int height,
                           const std::string& theme);

}  // namespace nanscope::python
