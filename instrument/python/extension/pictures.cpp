#include "instrument/python/extension/pictures.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "core/place.h"
#include "core/run/find_place.h"
#include "gui/prepare/run_map.h"
#include "gui/prepare/tensor_sheet.h"
#include "instrument/python/extension/bind.h"
#include "instrument/python/extension/grid_drawing.h"
#include "scenarios/report/run_report.h"

namespace py = pybind11;

namespace nanscope::python {
namespace {

using gui::Cell;
using scenarios::OpenRun;

constexpr std::int64_t kRuler = 10;  ///< columns between positions that are named

gui::Theme theme_named(const std::string& name) {
  const std::optional<gui::Theme> theme = gui::find_theme(name);
  if (!theme) throw Failure("unknown theme '" + name + "' (known: dark, light)");
  return *theme;
}

py::bytes python_bytes(const std::vector<std::byte>& png) {
  return {reinterpret_cast<const char*>(png.data()), png.size()};
}

Cell cell_of(CellHealth health) {
  switch (health) {
    case CellHealth::absent:
      return gui::kAbsent;
    case CellHealth::healthy:
      return (gui::kHealthyFirst + gui::kHealthyLast) / 2;
    case CellHealth::clipped:
      return gui::kClipped;
    case CellHealth::inf:
      return gui::kInf;
    case CellHealth::nan:
      break;
  }
  return gui::kNan;
}

std::vector<GridPart> ruler(std::int64_t first, std::int64_t count) {
  std::vector<GridPart> parts;
  for (std::int64_t column = 0; column < count; column += kRuler) {
    parts.push_back({column, std::to_string(first + column)});
  }
  return parts;
}

py::bytes front_png(const Front& front, int width, int height, const std::string& theme) {
  std::vector<Cell> cells;
  GridDrawing drawing;
  for (const FrontRow& row : front.rows) {
    drawing.rows.push_back({static_cast<std::int64_t>(drawing.rows.size()), row.label});
    for (const CellHealth cell : row.cells) cells.push_back(cell_of(cell));
  }
  drawing.title = fmt::format("request {} step {}", front.request, front.step);
  drawing.grid = {cells, front.tokens, static_cast<std::int64_t>(front.rows.size())};
  drawing.columns = ruler(front.first_token, front.tokens);
  return python_bytes(value_of(draw_grid(drawing, theme_named(theme), width, height)));
}

std::string front_text(const Front& front, int width, bool ascii) {
  report::Terminal terminal;
  terminal.width = width;
  terminal.utf8 = !ascii;
  return report::front_text(front, terminal);
}

/// Request and index of the first step that something bad is in, else of the first.
std::pair<std::int64_t, std::int64_t> first_bad_step(RunView& view) {
  const std::vector<StepId> bad = view.bad_steps();
  for (const StepId id : bad) {
    const Step* step = view.step(id);
    if (step != nullptr && !step->spans.empty()) return {step->request(), step->index()};
  }
  for (const Step& step : view.steps()) {
    if (!step.spans.empty()) return {step.request(), step.index()};
  }
  return {0, 0};
}

GridDrawing drawing_of(const gui::RunMap& map, const std::string& target) {
  GridDrawing drawing;
  drawing.title = std::filesystem::path(target).filename().string();
  drawing.grid = {map.cells, map.columns, static_cast<std::int64_t>(map.rows.size())};
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    if (row > 0 && map.rows[row].group == map.rows[row - 1].group) continue;
    drawing.rows.push_back({static_cast<std::int64_t>(row), map.rows[row].group});
  }
  std::optional<std::pair<std::int64_t, std::int64_t>> last;
  for (const gui::MapSpan& span : map.spans) {
    const std::pair whose(span.rank, span.request);
    const std::string rank = span.rank > 0 ? fmt::format("@{} ", span.rank) : "";
    drawing.columns.push_back({span.begin, whose == last ? "" : fmt::format("{}request {}", rank, span.request)});
    last = whose;
  }
  drawing.healthy = fmt::format("|x| 10^{} to 10^{}", gui::kRampFrom, gui::kRampTo);
  return drawing;
}

GridDrawing drawing_of(const gui::TensorSheet& sheet, const std::string& title) {
  GridDrawing drawing;
  drawing.title = title;
  if (sheet.query_by_key && sheet.heads > 1) drawing.title += fmt::format(" head {}", sheet.head);
  drawing.grid = {sheet.cells, sheet.columns, sheet.rows};
  for (std::int64_t row = 0; row < sheet.rows; row += kRuler) {
    const gui::RowName name = sheet.subject.row_name(row);
    drawing.rows.push_back({row, name.nobodys ? "padding" : std::to_string(name.token)});
  }
  drawing.ruled = true;
  drawing.columns = ruler(sheet.first_channel, sheet.columns);
  drawing.healthy = fmt::format("|x| {:.3g} to {:.3g}", sheet.low, sheet.high);
  return drawing;
}

}  // namespace

Front front_of(Run& run, std::optional<std::int64_t> request, std::optional<std::int64_t> step) {
  return run.ask_long([&](OpenRun& open) {
    const auto [bad_request, bad_step] = first_bad_step(open.view());
    return value_of(front(open.view(), request.value_or(bad_request), step.value_or(request ? 0 : bad_step)));
  });
}

py::bytes map_png(Run& run, int width, int height, const std::string& theme) {
  const gui::Theme colors = theme_named(theme);
  return python_bytes(run.ask_long([&](OpenRun& open) {
    const gui::RunMap map = value_of(gui::make_run_map(open.view(), open.rows(), run.stop_token()));
    return value_of(draw_grid(drawing_of(map, open.target()), colors, width, height));
  }));
}

py::bytes tensor_png(Run& run, std::int64_t tensor, std::optional<std::int64_t> head, int width, int height,
                     const std::string& theme) {
  const gui::Theme colors = theme_named(theme);
  return python_bytes(run.ask_long([&](OpenRun& open) {
    RunView& view = open.view();
    const Tensor* found = view.tensor(tensor);
    if (found == nullptr) throw Failure(open.target() + ": there is no tensor " + std::to_string(tensor));
    const std::string place = place_of(view, *found);
    const auto sheet = value_of(gui::make_tensor_sheet(view, value_of(parse_place(place)), {.head = head}, nullptr));
    return value_of(draw_grid(drawing_of(*sheet, found->name.empty() ? place : found->name), colors, width, height));
  }));
}

void bind_pictures(py::module_& module) {
  py::class_<FrontRow>(module, "FrontRow")
      .def_readonly("label", &FrontRow::label)
      .def_readonly("layer", &FrontRow::layer)
      .def_readonly("detailed", &FrontRow::detailed)
      .def_property_readonly("cells", [](const FrontRow& row) {
        return py::bytes(reinterpret_cast<const char*>(row.cells.data()), row.cells.size());
      });
  py::class_<Front>(module, "FrontMap")
      .def_readonly("request", &Front::request)
      .def_readonly("step", &Front::step)
      .def_readonly("first_token", &Front::first_token)
      .def_readonly("tokens", &Front::tokens)
      .def_readonly("rows", &Front::rows)
      .def("text", &front_text, py::arg("width"), py::arg("ascii"))
      .def("png", &front_png, py::arg("width"), py::arg("height"), py::arg("theme"));
}

}  // namespace nanscope::python
