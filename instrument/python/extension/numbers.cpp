#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "core/dump/dtype.h"
#include "core/numbers/bits_report.h"
#include "core/numbers/decode_span.h"
#include "core/numbers/format.h"
#include "instrument/python/extension/bind.h"
#include "instrument/python/extension/elements.h"
#include "instrument/python/extension/failure.h"

namespace py = pybind11;

namespace nanscope::python {
namespace {

py::dict row_of(const FormatInfo& format) {
  py::dict row;
  row["name"] = format.name;
  row["spec"] = format.spec;
  row["bits"] = format.bits;
  row["exponent_bits"] = format.exponent_bits;
  row["mantissa_bits"] = format.mantissa_bits;
  row["bias"] = format.bias;
  row["has_sign"] = format.has_sign;
  row["has_inf"] = format.specials == Specials::ieee;
  row["has_nan"] = format.specials != Specials::none;
  row["max_finite"] = static_cast<double>(format.max_finite);
  row["min_normal"] = static_cast<double>(format.min_normal);
  row["min_subnormal"] = static_cast<double>(format.min_subnormal);
  return row;
}

/// "real", "integer", "boolean", "complex".
std::string_view word(DtypeKind kind) {
  switch (kind) {
    case DtypeKind::real:
      return "real";
    case DtypeKind::integer:
      return "integer";
    case DtypeKind::boolean:
      return "boolean";
    case DtypeKind::complex:
      return "complex";
  }
  return "";
}

py::dict row_of(const Dtype& dtype) {
  py::dict row;
  row["name"] = dtype.name;
  row["numpy"] = dtype.numpy;
  row["torch"] = dtype.torch;
  row["kind"] = word(dtype.kind);
  row["bits"] = dtype.bits;
  row["format"] = dtype.format ? py::object(py::str(std::string(name(*dtype.format)))) : py::none();
  return row;
}

BitsOptions options_of(const std::string& input, const std::string& format, double scale, bool saturate, bool ascii) {
  return {.input = input,
          .format = format,
          .scale = scale,
          .overflow = saturate ? Overflow::saturate : Overflow::overflow,
          .ascii = ascii};
}

/// The values of codes, f32.
Elements decoded(const py::buffer& codes, const std::string& format) {
  const std::optional<Format> found = format_from_name(format);
  if (!found) throw Failure("unknown format '" + format + "'");
  const ElementBytes bytes = bytes_of(codes);
  const py::gil_scoped_release released;
  std::vector<std::byte> values(bytes.bytes.size() / info(*found).storage_bytes() * sizeof(float));
  const std::span<float> into(reinterpret_cast<float*>(values.data()), values.size() / sizeof(float));
  decode(*found, bytes.bytes, into);
  return elements_of(std::move(values));
}

}  // namespace

void bind_numbers(py::module_& module) {
  module.def("formats", [] {
    py::list all;
    for (const FormatInfo& format : formats()) all.append(row_of(format));
    return all;
  });
  module.def("dtypes", [] {
    py::list all;
    for (const Dtype& dtype : dtypes()) all.append(row_of(dtype));
    return all;
  });
  module.def("decode", &decoded, py::arg("codes"), py::arg("format"));
  module.def(
      "format_named",
      [](const std::string& text) -> std::optional<std::string> {
        const std::optional<Format> format = format_from_name(text);
        return format ? std::optional(std::string(name(*format))) : std::nullopt;
      },
      py::arg("name"));
  module.def(
      "bits_json",
      [](const std::string& input, const std::string& format, double scale, bool saturate) {
        return value_of(bits_json(options_of(input, format, scale, saturate, false)));
      },
      py::arg("input"), py::arg("format"), py::arg("scale"), py::arg("saturate"));
  module.def(
      "bits_text",
      [](const std::string& input, const std::string& format, double scale, bool saturate, bool ascii) {
        return value_of(bits_text(options_of(input, format, scale, saturate, ascii)));
      },
      py::arg("input"), py::arg("format"), py::arg("scale"), py::arg("saturate"), py::arg("ascii"));
}

}  // namespace nanscope::python
