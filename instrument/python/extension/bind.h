#pragma once
#include <pybind11/pybind11.h>

/// The parts of the module, one source each.
namespace nanscope::python {

void bind_numbers(pybind11::module_& module);   ///< formats, dtypes, bits
void bind_health(pybind11::module_& module);    ///< health, scan
void bind_kv(pybind11::module_& module);        ///< rows of a quantized KV cache
void bind_rows(pybind11::module_& module);      ///< what a run consists of
void bind_run(pybind11::module_& module);       ///< runs, diagnoses
void bind_pictures(pybind11::module_& module);  ///< the front

}  // namespace nanscope::python
