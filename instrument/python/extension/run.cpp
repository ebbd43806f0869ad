#include <fmt/format.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "core/run/find_place.h"
#include "instrument/python/extension/bind.h"
#include "instrument/python/extension/elements.h"
#include "instrument/python/extension/open_run.h"
#include "instrument/python/extension/pictures.h"
#include "instrument/python/extension/rows.h"
#include "scenarios/analysis.h"
#include "scenarios/report/diagnoses.h"
#include "scenarios/report/run_json.h"
#include "scenarios/target_kind.h"

namespace py = pybind11;

namespace nanscope::python {
namespace {

using scenarios::Analysis;
using scenarios::OpenRun;
using scenarios::OpenRunOptions;
/// Name, dtype, shape, bytes.
using GivenTensor = std::tuple<std::string, std::string, std::vector<std::int64_t>, py::buffer>;

std::vector<NamedTensor> named(const std::vector<GivenTensor>& given) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, dtype, shape, buffer] : given) {
    const Dtype* found = find_dtype(dtype);
    if (found == nullptr) throw Failure(fmt::format("'{}': unknown dtype '{}'", name, dtype));
    tensors.push_back({name, found, shape, bytes_of(buffer)});
  }
  return tensors;
}

std::unique_ptr<Run> open(const std::filesystem::path& path, bool follow_links, const std::filesystem::path& model) {
  const std::stop_source stop;
  OpenRunOptions options;
  options.stop = stop.get_token();
  options.follow_links = follow_links;
  options.model = model;
  auto run = run_interruptibly(stop, [&] {
    throw_if(scenarios::check_target(path.string(), scenarios::Takes::runs));
    return value_of(OpenRun::open(path, options));
  });
  return std::make_unique<Run>(std::move(run), stop);
}

std::unique_ptr<Run> of_tensors(const std::string& target, const std::vector<GivenTensor>& given) {
  const std::stop_source stop;
  OpenRunOptions options;
  options.stop = stop.get_token();
  std::vector<NamedTensor> tensors = named(given);
  auto run = run_interruptibly(stop, [&] { return value_of(OpenRun::of(target, std::move(tensors), options)); });
  return std::make_unique<Run>(std::move(run), stop);
}

Analysis diagnose(Run& run, bool recompute) {
  return run.ask_long([&](OpenRun& open) {
    DiagnoseOptions options;
    options.target = open.target();
    options.recompute = recompute;
    options.stop = run.stop_token();
    return value_of(scenarios::analyse(open, options));
  });
}

std::string json_of(const Analysis& analysis) {
  const report::Diagnosed one{.target = analysis.target, .diagnosis = analysis.diagnosis, .error = {}};
  return report::json_of({&one, 1});
}

report::RunContext context_of(const Analysis& analysis) {
  return {.command = "diagnose", .title = {}, .recording = analysis.target, .missed = {}};
}

std::string text_of(const Analysis& analysis, int width, bool ascii) {
  report::Terminal terminal;
  terminal.width = width;
  terminal.utf8 = !ascii;
  return safe_lines(report::run_text(analysis, context_of(analysis), terminal), terminal.charset());
}

py::dict info_of(Run& run) {
  const auto [info, counts, interrupted, is_recording] = run.ask([](OpenRun& open) {
    RunView& view = open.view();
    return std::tuple(view.info(), view.counts(), view.interrupted(), open.recording() != nullptr);
  });
  py::dict all;
  all["recording"] = is_recording;
  all["interrupted"] = interrupted;
  all["nanscope_version"] = info.nanscope_version;
  all["created"] = info.created;
  all["scenario"] = info.scenario;
  all["config"] = info.config;
  all["device"] = info.device;
  all["isa"] = info.isa;
  all["requests"] = counts.requests;
  all["steps"] = counts.steps;
  all["ops"] = counts.ops;
  all["expected_ops"] = counts.expected_ops;
  all["tensors"] = counts.tensors;
  all["stored_tensors"] = counts.stored_tensors;
  return all;
}

py::list requests_of(Run& run) {
  const auto rows = run.ask([](OpenRun& open) {
    const std::span<const RequestRow> requests = open.view().requests();
    return std::vector<RequestRow>(requests.begin(), requests.end());
  });
  py::list all;
  for (const RequestRow& row : rows) {
    // What was answered is bytes, which may be no UTF-8.
    all.append(py::make_tuple(row.id, py::bytes(row.name), row.prompt_tokens, row.cached_tokens, row.output_tokens,
                              py::bytes(row.output_text)));
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> notes_of(std::span<const RunNote> notes) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const RunNote& note : notes) all.emplace_back(note.tensor, note.text);
  return all;
}

std::vector<Step> steps_of(Run& run) {
  return run.ask([](OpenRun& open) {
    const std::span<const Step> steps = open.view().steps();
    return std::vector<Step>(steps.begin(), steps.end());
  });
}

std::vector<Op> ops_of(Run& run, StepId step) {
  return run.ask([&](OpenRun& open) { return open.view().content(step).ops; });
}

std::vector<TensorRowOf> tensors_of(Run& run, StepId step) {
  return run.ask([&](OpenRun& open) {
    std::vector<TensorRowOf> all;
    for (const Tensor& tensor : open.view().content(step).tensors)
      all.push_back({tensor, place_of(open.view(), tensor)});
    return all;
  });
}

/// With the element that the text names, where it names one.
using Found = std::tuple<TensorRowOf, std::optional<std::int64_t>, std::optional<std::int64_t>>;

Found find(Run& run, const std::string& text) {
  return run.ask_long([&](OpenRun& open) -> Found {
    const FoundPlace found = value_of(find_place(open.view(), text));
    return {{*found.tensor, place_of(open.view(), *found.tensor)}, found.row, found.channel};
  });
}

const Tensor& tensor_of(OpenRun& open, TensorId id) {
  const Tensor* tensor = open.view().tensor(id);
  throw_if(open.view().status());
  if (tensor == nullptr) throw Failure(open.target() + ": there is no tensor " + std::to_string(id));
  return *tensor;
}

TensorRowOf tensor_row(Run& run, TensorId id) {
  return run.ask([&](OpenRun& open) -> TensorRowOf {
    const Tensor& tensor = tensor_of(open, id);
    return {tensor, place_of(open.view(), tensor)};
  });
}

/// Where they lie, when the storage has them as they are; else read, unpacked or made again, once.
Elements elements(Run& run, TensorId id) {
  return run.ask_long([&](OpenRun& open) -> Elements {
    RunView& view = open.view();
    const Tensor& tensor = tensor_of(open, id);
    if (std::optional<ElementBytes> held = view.stored(tensor)) {
      throw_if(open.check());
      return {std::move(*held)};
    }
    auto read = view.read(tensor, 0, tensor.tokens);
    throw_if(open.check());
    if (!read) throw Failure(open.target() + ": " + place_of(view, tensor) + ": " + read.error().text);
    return elements_of(std::move(read->bytes));
  });
}

std::vector<Health> row_health(Run& run, TensorId id) {
  return run.ask_long([&](OpenRun& open) { return open.view().rows(tensor_of(open, id)); });
}

void bind_analysis(py::module_& module) {
  py::class_<Analysis>(module, "Analysis")
      .def_property_readonly("json", &json_of)
      .def("text", &text_of, py::arg("width"), py::arg("ascii"))
      .def_property_readonly(
          "markdown", [](const Analysis& analysis) { return report::run_markdown(analysis, context_of(analysis)); })
      .def_readonly("front", &Analysis::front);
}

}  // namespace

void bind_run(py::module_& module) {
  bind_analysis(module);
  py::class_<Run>(module, "Run")
      .def_static("open", &open, py::arg("path"), py::arg("follow_links"), py::arg("model"))
      .def_static("of_tensors", &of_tensors, py::arg("target"), py::arg("tensors"))
      .def("close", &Run::close)
      .def_property_readonly("closed", &Run::closed)
      .def_property_readonly("unread",
                             [](Run& run) { return run.ask([](OpenRun& open) { return notes_of(open.unread()); }); })
      .def("info", &info_of)
      .def("requests", &requests_of)
      .def("notes", [](Run& run) { return run.ask([](OpenRun& open) { return notes_of(open.view().notes()); }); })
      .def("steps", &steps_of)
      .def("ops", &ops_of, py::arg("step"))
      .def("tensors", &tensors_of, py::arg("step"))
      .def("tensor", &tensor_row, py::arg("id"))
      .def("find", &find, py::arg("place"))
      .def("elements", &elements, py::arg("tensor"))
      .def("row_health", &row_health, py::arg("tensor"))
      .def("diagnose", &diagnose, py::arg("recompute"))
      .def("front", &front_of, py::arg("request"), py::arg("step"))
      .def("map_png", &map_png, py::arg("width"), py::arg("height"), py::arg("theme"))
      .def("tensor_png", &tensor_png, py::arg("tensor"), py::arg("head"), py::arg("width"), py::arg("height"),
           py::arg("theme"));
}

}  // namespace nanscope::python
