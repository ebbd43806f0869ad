#include "instrument/dump/producers/msprobe_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/containers/strict_json.h"
#include "instrument/dump/producers/text.h"

namespace nanscope {
namespace {

using json = nlohmann::ordered_json;

constexpr int kDeepest = 8;
constexpr std::size_t kLongestPath = 1000;  ///< of a module: each of its parents is remembered

/// Python writes NaN and Infinity as bare words, which JSON has not: they become texts.
std::string with_quoted_words(std::string_view text) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      out += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      const auto word = std::find_if(std::begin(kWords), std::end(kWords),
                                     [&](std::string_view one) { return text.substr(i).starts_with(one); });
      if (word != std::end(kWords)) {
        out += fmt::format("\"{}\"", *word);
        i += word->size() - 1;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

std::optional<double> statistic(const json& tensor, const char* key) {
  const auto found = tensor.find(key);
  if (found == tensor.end()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  return found->is_string() ? msprobe_number(found->get_ref<const std::string&>()) : std::nullopt;
}

/// An extreme that is a NaN says that there is one, an infinite one that there is an Inf: how many is not known.
Health health_of(std::uint64_t count, double max, double min, std::optional<double> mean, std::optional<double> norm) {
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

/// "Module.model.layers.0.mlp.SiluMLP.forward.0" is the first call of model.layers.0.mlp; "Functional.relu.2.forward"
/// the third of a function, which has no path of modules.
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
    parts.resize(parts.size() - 2);  // the number of the call, and forward
  }
  called.path = fmt::format("{}", fmt::join(parts, "."));
  if (backward) called.path += ".backward";
  return called;
}

class DirectoryReader {
 public:
  std::vector<MsprobeTensor> read(const json& data) {
    for (const auto& [name, entry] : data.items()) {
      if (!entry.is_object()) continue;
      const CalledName called = called_name(name);
      const std::int64_t place = ++calls_;
      remember(called, place);
      const std::int64_t begin = begin_of(called, place);
      side(entry, "input_args", "input", name, called, begin * 4);
      side(entry, "input", "input", name, called, begin * 4);
      side(entry, "input_kwargs", "kwargs", name, called, begin * 4);
      side(entry, "parameters", "parameters", name, called, begin * 4 + 1);
      side(entry, "output", "output", name, called, place * 4 + 3);
    }
    return std::move(tensors_);
  }

 private:
  void remember(const CalledName& called, std::int64_t place) {
    if (!called.module || called.path.size() > kLongestPath) return;
    for (std::size_t dot = called.path.find('.'); dot != std::string::npos; dot = called.path.find('.', dot + 1)) {
      first_inside_.emplace(called.path.substr(0, dot), place);
    }
  }

  /// A module is written when it returns, after what is inside it.
  std::int64_t begin_of(const CalledName& called, std::int64_t place) {
    const auto inside = first_inside_.find(called.path);
    if (!called.module || inside == first_inside_.end()) return place;
    const std::int64_t begin = inside->second;
    first_inside_.erase(inside);  // the next call has others inside
    return begin;
  }

  void side(const json& entry, const char* field, std::string_view port, const std::string& name,
            const CalledName& called, std::int64_t order) {
    const auto found = entry.find(field);
    if (found != entry.end()) visit(*found, port, name, called, "", order, 0);
  }

  void visit(const json& value, std::string_view port, const std::string& name, const CalledName& called,
             const std::string& index, std::int64_t order, int depth) {
    if (depth > kDeepest) return;
    if (value.is_array()) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        visit(value[i], port, name, called, index + fmt::format(".{}", i), order, depth + 1);
      }
    } else if (value.is_object() && value.contains("shape") && value.contains("dtype")) {
      add(value, port, name, called, index, order);
    } else if (value.is_object()) {
      for (const auto& [key, item] : value.items())
        visit(item, port, name, called, index + '.' + key, order, depth + 1);
    }
  }

  void add(const json& value, std::string_view port, const std::string& name, const CalledName& called,
           const std::string& index, std::int64_t order) {
    MsprobeTensor tensor;
    const auto dtype = value.find("dtype");
    std::string type = dtype->is_string() ? dtype->get<std::string>() : "";
    tensor.dtype = find_dtype(type);
    std::transform(type.begin(), type.end(), type.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    if (tensor.dtype == nullptr) tensor.dtype = find_dtype(type);
    if (tensor.dtype == nullptr || !value["shape"].is_array() || value["shape"].size() > 16) return;
    for (const json& extent : value["shape"]) {
      if (!extent.is_number_integer() || extent.get<std::int64_t>() < 0) return;
      tensor.shape.push_back(extent.get<std::int64_t>());
    }
    const auto count = checked_count(tensor.shape, *tensor.dtype);
    if (!count) return;
    const auto stored = value.find("data_name");
    tensor.stored = stored != value.end() && stored->is_string() ? stored->get<std::string>()
                                                                 : fmt::format("{}.{}{}.pt", name, port, index);
    tensor.stored = tensor.stored.substr(0, tensor.stored.rfind('.'));
    tensor.key = key_of(port, called, index);
    tensor.order = order;
    const auto max = statistic(value, "Max");
    const auto min = statistic(value, "Min");
    tensor.has_statistics = max && min;
    tensor.health = tensor.has_statistics
                        ? health_of(*count, *max, *min, statistic(value, "Mean"), statistic(value, "Norm"))
                        : empty_health();
    tensors_.push_back(std::move(tensor));
  }

  static std::string key_of(std::string_view port, const CalledName& called, const std::string& index) {
    if (port == "parameters") return called.path + index;
    if (port == "kwargs") return called.path + (index == ".hidden_states" ? ".input.0" : index);
    // Only the first number is an index: a list in a list is written with an underscore.
    std::string flat = index;
    if (!flat.empty()) std::replace(flat.begin() + 1, flat.end(), '.', '_');
    return fmt::format("{}.{}{}", called.path, port, flat);
  }

  std::vector<MsprobeTensor> tensors_;
  std::map<std::string, std::int64_t> first_inside_;  ///< of each module that has not returned yet
  std::int64_t calls_ = 0;
};

}  // namespace

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

Result<std::optional<std::vector<MsprobeTensor>>> read_msprobe_directory(std::string_view text,
                                                                         const std::string& file) {
  const std::string quoted = with_quoted_words(text);
  if (const auto checked = parse_strict_json(quoted, file, 0); !checked) return tl::unexpected(checked.error());
  const json whole = json::parse(quoted, nullptr, false);
  const auto data = whole.find("data");
  const bool ours = whole.is_object() && data != whole.end() && data->is_object() &&
                    (whole.contains("level") || whole.contains("task"));
  if (!ours) return std::optional<std::vector<MsprobeTensor>>();
  return std::optional(DirectoryReader().read(*data));
}

}  // namespace nanscope
