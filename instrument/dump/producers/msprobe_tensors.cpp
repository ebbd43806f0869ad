#include "instrument/dump/producers/msprobe_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/producers/text.h"

namespace nanscope {
namespace {

constexpr int kDeepestNesting = 8;
constexpr std::size_t kMaxDimensions = 16;
constexpr std::size_t kLongestPath = 1000;  ///< of a module: each of its parents is remembered
constexpr std::uint64_t kSplitName = 64;    ///< of each character of a name, while it is parted at its dots
constexpr std::uint64_t kRemembered = 80;   ///< a module's place in a map, beside its name

std::optional<double> statistic(const JsonView& tensor, std::string_view key) {
  const auto found = tensor.find(key);
  if (!found) return std::nullopt;
  return found->is_text() ? msprobe_number(found->text()) : found->number();
}

/// "Module.model.layers.0.mlp.SiluMLP.forward.0" is the first call of model.layers.0.mlp; "Functional.relu.2.forward"
/// the third of a function, which has no path of modules: "Functional.relu.2".
struct CalledName {
  std::string path;
  bool module = false;
};

CalledName called_name(const std::string& name) {
  std::vector<std::string_view> parts = split_at(name, ".");
  const bool backward = std::find(parts.begin(), parts.end(), "backward") != parts.end();
  CalledName called;
  called.module = parts.size() >= 5 && (parts.front() == "Module" || parts.front() == "Cell");
  if (called.module) {
    parts.erase(parts.begin());
    parts.resize(parts.size() - 3);  // the class, forward, and the number of the call
  } else if (parts.size() >= 4) {
    parts.pop_back();  // forward
  }
  called.path = fmt::format("{}", fmt::join(parts, "."));
  if (backward) called.path += ".backward";
  return called;
}

std::string msprobe_key(std::string_view port, const std::string& path, const std::string& index) {
  if (port == "parameters") return path + index;
  if (port == "kwargs") return path + (index == ".hidden_states" ? ".input.0" : index);
  // Only the first number is an index: a list in a list is written with an underscore.
  std::string flat = index;
  if (!flat.empty()) std::replace(flat.begin() + 1, flat.end(), '.', '_');
  return fmt::format("{}.{}{}", path, port, flat);
}

/// A list of numbers, or the text of one, as the database has it.
std::optional<std::vector<std::int64_t>> shape_of(const JsonView& value) {
  const std::string text = value.text();
  const auto inside = value.is_text() ? check_json(text) : value;
  if (!inside || !inside->is_array() || inside->size() > kMaxDimensions) return std::nullopt;
  std::vector<std::int64_t> shape;
  shape.reserve(inside->size());
  for (const auto& [key, extent] : inside->items()) {
    const auto number = extent.natural();
    if (!number) return std::nullopt;
    shape.push_back(*number);
  }
  return shape;
}

/// ".input.0" of a node: the port, and the rest as the directory writes it.
std::pair<std::string_view, std::string> port_of(std::string_view rest) {
  for (const std::string_view port : {"input", "output", "parameters"}) {
    if (rest.size() < port.size() + 1 || rest.substr(1, port.size()) != port) continue;
    const std::string_view index = rest.substr(port.size() + 1);
    const bool named = index.size() > 1 && (index[1] < '0' || index[1] > '9');
    return {port == "input" && named ? "kwargs" : port, std::string(index)};
  }
  return {"", ""};
}

}  // namespace

MsprobeTensors::MsprobeTensors(std::string file, std::string_view text, std::uint64_t bytes)
    : file_(std::move(file)), text_(text), budget_(bytes) {}

tl::unexpected<Error> MsprobeTensors::too_much(const JsonView& at) const {
  const std::string what =
      "the tensors listed up to here would take more than four times the file in memory, expected fewer";
  if (text_.empty()) return fail(fmt::format("{}: tensor {}: {}", file_, tensors_.size(), what));
  return refuse(file_, static_cast<std::uint64_t>(at.source().data() - text_.data()), what);
}

Status MsprobeTensors::expect(std::size_t tensors) {
  if (!budget_.take(tensors * sizeof(MsprobeTensor))) return too_much(JsonView(text_));
  tensors_.reserve(tensors);
  return {};
}

MsprobeTensors::Call MsprobeTensors::begin(const std::string& name) {
  const CalledName called = called_name(name);
  Call call{name, called.path, called.module, ++calls_, 0};
  call.begin = call.place;
  if (!called.module) return call;
  if (called.path.size() <= kLongestPath) {
    for (std::size_t dot = call.path.find('.'); dot != std::string::npos; dot = call.path.find('.', dot + 1)) {
      std::string module = call.path.substr(0, dot);
      if (first_inside_.contains(module)) continue;
      if (!budget_.take(kRemembered + text_bytes(dot))) {
        call.fits = false;
        return call;
      }
      first_inside_.emplace(std::move(module), call.place);
    }
  }
  // A module is written when it returns, after what is inside it.
  const auto inside = first_inside_.find(call.path);
  if (inside == first_inside_.end()) return call;
  call.begin = inside->second;
  first_inside_.erase(inside);  // the next call has others inside
  return call;
}

Status MsprobeTensors::add_call(const std::string& name, const JsonView& entry) {
  if (!budget_.fits(kSplitName * name.size())) return too_much(entry);
  const Call call = begin(name);
  if (!call.fits) return too_much(entry);
  for (const auto& [field, port] : {std::pair("input_args", "input"),
                                    {"input", "input"},
                                    {"input_kwargs", "kwargs"},
                                    {"parameters", "parameters"},
                                    {"output", "output"}}) {
    const auto found = entry.find(field);
    auto visited = found ? visit(*found, port, call, "", 0) : Status();
    if (!visited) return visited;
  }
  return {};
}

Status MsprobeTensors::add_node(const std::string& name, const std::string& folder, const JsonView& inputs,
                                const JsonView& outputs) {
  if (!budget_.fits(kSplitName * name.size())) return too_much(inputs);
  if (folder != folder_) first_inside_.clear();
  folder_ = folder;
  const Call call = begin(name);
  if (!call.fits) return too_much(inputs);
  for (const JsonView& side : {inputs, outputs}) {
    for (const auto& [key, value] : side.items()) {
      const std::string full = key.text();
      if (!full.starts_with(name) || !value.is_object()) continue;
      const auto [port, index] = port_of(std::string_view(full).substr(name.size()));
      auto visited = port.empty() ? Status() : visit(value, port, call, index, 0);
      if (!visited) return visited;
    }
  }
  return {};
}

Status MsprobeTensors::visit(const JsonView& value, std::string_view port, const Call& call, const std::string& index,
                             int depth) {
  if (depth > kDeepestNesting) return {};
  if (value.is_object() && value.find("shape") && value.find("dtype")) return add(value, port, call, index);
  std::size_t number = 0;
  for (const auto& [key, item] : value.items()) {
    if (!budget_.fits(2 * (index.size() + key.source().size() + 22))) return too_much(item);
    const std::string below = value.is_array() ? fmt::format("{}.{}", index, number++) : index + '.' + key.text();
    auto visited = visit(item, port, call, below, depth + 1);
    if (!visited) return visited;
  }
  return {};
}

Status MsprobeTensors::add(const JsonView& value, std::string_view port, const Call& call, const std::string& index) {
  MsprobeTensor tensor;
  std::string type = value.find("dtype")->text();
  tensor.dtype = find_dtype(type);
  std::transform(type.begin(), type.end(), type.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (tensor.dtype == nullptr) tensor.dtype = find_dtype(type);
  auto shape = shape_of(*value.find("shape"));
  if (tensor.dtype == nullptr || !shape) return {};
  tensor.shape = std::move(*shape);
  const auto count = checked_count(tensor.shape, *tensor.dtype);
  if (!count) return {};
  const auto stored = value.find("data_name");
  const std::uint64_t texts =
      2 * (call.name.size() + call.path.size() + 2 * index.size() + 64) + (stored ? 2 * stored->source().size() : 0);
  if (!budget_.fits(texts)) return too_much(value);
  tensor.stored = stored && stored->is_text() ? stored->text() : fmt::format("{}.{}{}.pt", call.name, port, index);
  tensor.stored.resize(std::min(tensor.stored.size(), tensor.stored.rfind('.')));
  tensor.key = msprobe_key(port, call.path, index);
  if (!folder_.empty()) tensor.key = joined_path(folder_, tensor.key);
  const bool full = tensors_.size() == tensors_.capacity();  // by keys with escapes, which were not counted
  const std::uint64_t growth = full ? 2 * (tensors_.size() + 1) * sizeof(MsprobeTensor) : 0;
  if (!budget_.take(growth + text_bytes(tensor.stored.capacity()) + text_bytes(tensor.key.capacity()) +
                    sizeof(std::int64_t) * tensor.shape.size())) {
    return too_much(value);
  }
  tensor.function = !call.module;
  tensor.order = port == "output" ? call.place * 4 + 3 : call.begin * 4 + (port == "parameters" ? 1 : 0);
  const auto max = statistic(value, "Max");
  const auto min = statistic(value, "Min");
  tensor.has_statistics = max && min;
  tensor.health = tensor.has_statistics
                      ? measured_health(*count, *max, *min, statistic(value, "Mean"), statistic(value, "Norm"))
                      : empty_health();
  tensors_.push_back(std::move(tensor));
  return {};
}

Health measured_health(std::uint64_t count, double max, double min, std::optional<double> mean,
                       std::optional<double> norm) {
  Health health = empty_health();
  health.count = count;
  if (std::isnan(max) || std::isnan(min)) health.nan = 1;
  if (std::isinf(max) && max > 0) health.pos_inf = 1;
  if (std::isinf(min) && min < 0) health.neg_inf = 1;
  if (std::isfinite(max)) health.max = static_cast<float>(max);
  if (std::isfinite(min)) health.min = static_cast<float>(min);
  if (std::isfinite(max)) health.absmax = static_cast<float>(std::abs(max));
  if (std::isfinite(min)) health.absmax = std::max(health.absmax, static_cast<float>(std::abs(min)));
  if (mean && std::isfinite(*mean)) health.sum = *mean * static_cast<double>(count);
  if (norm && std::isfinite(*norm)) health.sum_sq = *norm * *norm;
  return health;
}

std::optional<double> msprobe_number(std::string_view text) {
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "inf" || word == "infinity") return std::numeric_limits<double>::infinity();
  if (word == "-inf" || word == "-infinity") return -std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace nanscope
