#include "instrument/python/extension/bind.h"
#include "instrument/python/extension/elements.h"
#include "instrument/python/extension/failure.h"
#include "scenarios/version.h"

namespace nanscope::python {
namespace {

void bind_elements(pybind11::module_& module) {
  pybind11::class_<Elements>(module, "Elements", pybind11::buffer_protocol(),
                             "Read-only bytes, with the buffer protocol. They live as long as anybody looks at them.")
      .def_buffer([](const Elements& elements) {
        const std::span<const std::byte> bytes = elements.held.bytes;
        // Readers cannot write: the buffer is read-only.
        auto* data = const_cast<std::byte*>(bytes.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
        return pybind11::buffer_info(reinterpret_cast<std::uint8_t*>(data),
                                     static_cast<pybind11::ssize_t>(bytes.size()), true);
      })
      .def("__len__", [](const Elements& elements) { return elements.held.bytes.size(); });
}

/// nanscope.Error, which has its name from where people find it.
void bind_error(pybind11::module_& module) {
  static PyObject* error = PyErr_NewExceptionWithDoc(
      "nanscope.Error", "What nanscope cannot do, in one line: what, where, why; the line that the command prints.",
      PyExc_Exception, nullptr);
  if (error == nullptr) throw pybind11::error_already_set();
  module.add_object("Error", pybind11::reinterpret_borrow<pybind11::object>(error));
  pybind11::register_exception_translator([](std::exception_ptr exception) {
    try {
      if (exception) std::rethrow_exception(exception);
    } catch (const Failure& failure) {
      PyErr_SetString(error, failure.what());
    }
  });
}

}  // namespace
}  // namespace nanscope::python

PYBIND11_MODULE(_nanscope, module) {
  namespace python = nanscope::python;
  module.doc() = "The compiled part of nanscope. Use the package nanscope, which wraps it.";
  module.attr("__version__") = std::string(nanscope::scenarios::kVersion);
  python::bind_error(module);
  python::bind_elements(module);
  python::bind_numbers(module);
  python::bind_health(module);
  python::bind_kv(module);
  python::bind_rows(module);
  python::bind_pictures(module);
  python::bind_run(module);
}
