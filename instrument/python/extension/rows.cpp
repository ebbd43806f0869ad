#include "instrument/python/extension/rows.h"

#include <pybind11/stl.h>

#include <string>

#include "core/recording/names.h"
#include "core/run/op_attributes.h"
#include "core/run/run.h"
#include "instrument/python/extension/bind.h"

namespace py = pybind11;

namespace nanscope::python {
namespace {

void bind_steps(py::module_& module) {
  py::class_<Span>(module, "Span")
      .def_readonly("request", &Span::request)
      .def_readonly("index", &Span::index)
      .def_readonly("row", &Span::row)
      .def_readonly("rows", &Span::rows)
      .def_readonly("first_token", &Span::first_token)
      .def_readonly("context", &Span::context);
  py::class_<Step>(module, "StepRow")
      .def_readonly("id", &Step::id)
      .def_property_readonly("kind", [](const Step& step) { return words::word(words::kStepKinds, step.kind); })
      .def_readonly("rank", &Step::rank)
      .def_readonly("name", &Step::pass)
      .def_readonly("rows", &Step::rows)
      .def_readonly("batch", &Step::batch)
      .def_readonly("spans", &Step::spans);
}

void bind_ops(py::module_& module) {
  py::class_<Op>(module, "OpRow")
      .def_readonly("id", &Op::id)
      .def_readonly("step", &Op::step)
      .def_readonly("layer", &Op::layer)
      .def_readonly("name", &Op::name)
      .def_property_readonly("kind", [](const Op& op) { return std::string(name(op.kind)); })
      .def_property_readonly("attributes_json", [](const Op& op) { return to_json(op.attributes); })
      .def_property_readonly("inputs",
                             [](const Op& op) {
                               py::list inputs;
                               for (const Input& one : op.inputs)
                                 inputs.append(py::make_tuple(one.role, one.tensor, one.weight));
                               return inputs;
                             })
      .def_readonly("outputs", &Op::outputs);
}

void bind_tensors(py::module_& module) {
  py::class_<TensorRowOf>(module, "TensorRow")
      .def_property_readonly("id", [](const TensorRowOf& t) { return t.tensor.id; })
      .def_property_readonly("op", [](const TensorRowOf& t) { return t.tensor.op; })
      .def_property_readonly("step", [](const TensorRowOf& t) { return t.tensor.step; })
      .def_property_readonly("role", [](const TensorRowOf& t) { return t.tensor.role; })
      .def_property_readonly("name", [](const TensorRowOf& t) { return t.tensor.name; })
      .def_readonly("place", &TensorRowOf::place)
      .def_property_readonly("format", [](const TensorRowOf& t) { return std::string(name(t.tensor.format)); })
      .def_property_readonly("tokens", [](const TensorRowOf& t) { return t.tensor.tokens; })
      .def_property_readonly("channels", [](const TensorRowOf& t) { return t.tensor.channels; })
      .def_property_readonly("heads", [](const TensorRowOf& t) { return t.tensor.heads; })
      .def_property_readonly("health", [](const TensorRowOf& t) { return t.tensor.health; })
      .def_property_readonly("known", [](const TensorRowOf& t) { return t.tensor.known; });
}

}  // namespace

void bind_rows(py::module_& module) {
  bind_steps(module);
  bind_ops(module);
  bind_tensors(module);
}

}  // namespace nanscope::python
