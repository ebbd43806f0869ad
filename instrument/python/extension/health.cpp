#include "core/tensor/health.h"

#include <pybind11/stl.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "instrument/dump/scan.h"
#include "instrument/python/extension/bind.h"
#include "instrument/python/extension/elements.h"
#include "instrument/python/extension/failure.h"
#include "instrument/python/extension/interruptible.h"

namespace py = pybind11;

namespace nanscope::python {
namespace {

/// Over finite elements, of which there is one.
std::optional<double> extreme(const Health& health, float value) {
  return health.min <= health.max ? std::optional(static_cast<double>(value)) : std::nullopt;
}

/// Nothing where no sums were taken, and where nothing is finite.
std::optional<double> of_sums(const Health& health, double value) {
  if (std::isnan(health.sum) || health.finite() == 0 || health.min > health.max) return std::nullopt;
  return value;
}

struct Wanted {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::optional<std::string> format;
  bool sums = false;
  int threads = 0;
};

DumpTensor tensor_of(const Wanted& wanted) {
  DumpTensor tensor;
  tensor.dtype = find_dtype(wanted.dtype);
  if (tensor.dtype == nullptr) throw Failure("unknown dtype '" + wanted.dtype + "'");
  tensor.shape = wanted.shape;
  tensor.format = tensor.dtype->format;
  // Token ids and indices: they are counted, as a dump's are.
  if (tensor.format == Format::i32) tensor.format.reset();
  if (wanted.format) {
    tensor.format = format_from_name(*wanted.format);
    if (!tensor.format) throw Failure("unknown format '" + *wanted.format + "'");
    if (static_cast<int>(info(*tensor.format).storage_bytes()) * 8 != tensor.dtype->bits) {
      throw Failure(wanted.dtype + " does not hold codes of " + *wanted.format + ": expected elements of " +
                    std::to_string(info(*tensor.format).storage_bytes() * 8) + " bits");
    }
    // Whatever the dtype is called, its elements are codes.
    tensor.dtype = tensor.dtype->bits == 8 ? find_dtype("u8") : &dtype_of(*tensor.format);
  }
  if (tensor.dtype->kind == DtypeKind::complex) {
    throw Failure("dtype " + wanted.dtype + ": a complex number has no single real value");
  }
  tensor.health = empty_health();
  return tensor;
}

Health scan(const py::buffer& buffer, const Wanted& wanted) {
  const std::stop_source stop;
  DumpTensor tensor = tensor_of(wanted);
  const ElementBytes bytes = bytes_of(buffer);
  const auto expected = tensor.dtype->bytes(static_cast<std::uint64_t>(tensor.count()));
  if (expected != bytes.bytes.size()) throw py::value_error("the bytes are not those of the shape");
  run_interruptibly(stop, [&] {
    const std::array<DumpTensor*, 1> all{&tensor};
    ScanOptions options;
    options.threads = wanted.threads;
    options.stop = stop.get_token();
    options.sums = [&](const DumpTensor&) { return wanted.sums; };
    const auto unscanned = value_of(scan_tensors(
        all, [&](std::size_t) { return Result<TensorBytes>(bytes); }, options));
    if (!unscanned.empty()) throw Failure(unscanned.front().reason);
  });
  return tensor.health;
}

}  // namespace

void bind_health(py::module_& module) {
  const auto min = [](const Health& h) { return extreme(h, h.min); };
  const auto max = [](const Health& h) { return extreme(h, h.max); };
  const auto first_bad = [](const Health& h) { return h.first_bad < 0 ? std::nullopt : std::optional(h.first_bad); };
  py::class_<Health>(module, "Health")
      .def_readonly("count", &Health::count)
      .def_readonly("nan", &Health::nan)
      .def_readonly("pos_inf", &Health::pos_inf)
      .def_readonly("neg_inf", &Health::neg_inf)
      .def_readonly("saturated", &Health::saturated)
      .def_readonly("subnormal", &Health::subnormal)
      .def_readonly("zero", &Health::zero)
      .def_readonly("flushed", &Health::flushed)
      .def_readonly("clipped", &Health::clipped)
      .def_property_readonly("first_bad", first_bad)
      .def_property_readonly("min", min)
      .def_property_readonly("max", max)
      .def_property_readonly("absmax", [](const Health& h) { return extreme(h, h.absmax); })
      .def_property_readonly("mean", [](const Health& h) { return of_sums(h, h.mean()); })
      .def_property_readonly("variance", [](const Health& h) { return of_sums(h, h.variance()); });
  module.def(
      "scan",
      [](const py::buffer& buffer, const std::string& dtype, const std::vector<std::int64_t>& shape,
         const std::optional<std::string>& format, bool sums, int threads) {
        return scan(buffer, {dtype, shape, format, sums, threads});
      },
      py::arg("buffer"), py::arg("dtype"), py::arg("shape"), py::arg("format"), py::arg("sums"), py::arg("threads"));
}

}  // namespace nanscope::python
