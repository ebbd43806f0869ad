#include "instrument/inspect/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/parse_json.h"
#include "core/text/safe_text.h"
#include "instrument/files/file.h"
#include "instrument/inspect/check.h"
#include "instrument/quantized/module_kinds.h"

namespace nanscope {

namespace {

constexpr std::uint64_t kMostConfig = 16u << 20;
constexpr std::size_t kNamed = 3;

/// Codes of weights, as opposed to floats that a loader converts.
bool is_coded(const SafetensorsEntry& entry) {
  return entry.dtype == "U8" || entry.dtype == "I8" || entry.dtype == "I32" || entry.dtype.starts_with("F8_E4") ||
         entry.dtype.starts_with("F8_E5");
}

void measure(const InspectSubject& subject, Inspected& one) {
  const StoredMatrix& matrix = *one.matrix;
  std::vector<float> values(static_cast<std::size_t>(matrix.columns));
  double sum = 0;
  double codes = 0;
  double count = 0;
  for (const std::int64_t row : subject.rows_of(matrix)) {
    matrix.row(row, values);
    for (const float value : values) sum += double{value} * value;
    if (matrix.quantized()) matrix.codes_of_row(row, values);
    for (const float value : values) codes += double{value} * value;
    count += static_cast<double>(values.size());
  }
  one.rms = std::sqrt(sum / count);
  one.code_rms = std::sqrt(codes / count);
}

std::uint64_t bytes_of(const StoredModule& module) {
  std::uint64_t bytes = 0;
  for (const auto& [part, tensor] : module.tensors) bytes += tensor.entry->end - tensor.entry->begin;
  return bytes;
}

Result<std::string> model_type(const std::filesystem::path& folder) {
  const auto bytes = read_file(folder / "config.json", kMostConfig);
  if (!bytes) return tl::unexpected(bytes.error());
  const auto json = parse_json_or_none(as_text(*bytes));
  const auto found = json.is_object() ? json.find("model_type") : json.end();
  return json.is_object() && found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// What findings say of single modules.
void add_to_modules(const InspectFinding& finding, std::map<std::string_view, InspectedModule*>& modules) {
  for (std::size_t i = 0; i < finding.modules.size(); ++i) {
    const auto module = modules.find(finding.modules[i]);
    if (module == modules.end()) continue;
    if (finding.unfits) module->second->fate = Fate::unclassified;
    if (i < finding.changes.size()) module->second->change = std::max(module->second->change, finding.changes[i]);
  }
}

Fate fate_of(const Inspected& one, const QuantizationConfig& config) {
  if (!one.matrix) return Fate::unclassified;
  const bool coded = one.matrix->quantized() || is_coded(*one.module->weight().entry);
  if (config.method == QuantMethod::none) return coded ? Fate::unclassified : Fate::ignored;
  if (!coded) return one.candidate && !one.listed ? Fate::unclassified : Fate::ignored;
  return one.listed || !one.matrix->quantized() ? Fate::unclassified : Fate::quantized;
}

}  // namespace

std::vector<std::int64_t> InspectSubject::rows_of(const StoredMatrix& matrix) const {
  const std::int64_t count = rows == 0 ? matrix.rows : std::min(rows, matrix.rows);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(i * matrix.rows / count);
  return all;
}

std::vector<const Inspected*> InspectSubject::fused_with(const Inspected& first) const {
  const std::span<const std::string_view> parts = fused_parts(first.module->leaf());
  if (parts.empty() || first.module->leaf() != parts.front()) return {};
  std::vector<const Inspected*> found;
  for (const std::string_view part : parts) {
    const std::string path = std::string(first.module->parent()) + std::string(part);
    const auto one = by_path.find(path);
    if (one != by_path.end()) found.push_back(one->second);
  }
  return found.size() > 1 ? found : std::vector<const Inspected*>();
}

bool InspectSubject::is_expert(const StoredModule& module) { return module.path.find(".experts") != std::string::npos; }

std::span<const Check> inspect_checks() {
  static constexpr std::array all = {
#define NANSCOPE_CHECK(name) &check_##name,
#include "instrument/inspect/checks.def"
#undef NANSCOPE_CHECK
  };
  return all;
}

std::string some_of(std::span<const std::string> names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i) text += (i == 0 ? "" : ", ") + one_line(names[i]);
  if (names.size() > kNamed) text += fmt::format(" and {} more", names.size() - kNamed);
  return text;
}

std::size_t Inspection::count(Fate fate) const {
  return static_cast<std::size_t>(
      std::count_if(modules.begin(), modules.end(), [&](const InspectedModule& one) { return one.fate == fate; }));
}

std::size_t Inspection::count(Severity severity) const {
  return static_cast<std::size_t>(std::count_if(findings.begin(), findings.end(),
                                                [&](const InspectFinding& one) { return one.severity == severity; }));
}

Result<Inspection> inspect_checkpoint(const std::filesystem::path& folder, const InspectOptions& options) {
  const auto config = read_quantization_config(folder);
  if (!config) return tl::unexpected(config.error());
  const auto type = model_type(folder);
  if (!type) return tl::unexpected(type.error());
  const auto files = CheckpointFiles::open(folder);
  if (!files) return tl::unexpected(files.error());
  const std::vector<StoredModule> stored = stored_modules(*files);
  std::vector<Inspected> modules;
  modules.reserve(stored.size());
  std::map<std::string_view, const Inspected*> by_path;
  for (const StoredModule& module : stored) {
    Inspected& one = modules.emplace_back();
    one.module = &module;
    by_path[module.path] = &one;
  }
  const InspectSubject subject{*config, *options.loader, modules, by_path, options.rows, options.kv_cache_dtype};
  Inspection out{.target = folder.string(),
                 .model_type = *type,
                 .quantization = config->text(),
                 .loader = options.loader,
                 .modules = {},
                 .findings = {}};
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (options.stop.stop_requested()) return fail("stopped");
    if (options.progress) options.progress(i, modules.size());
    Inspected& one = modules[i];
    const CheckpointFiles::Tensor weight = one.module->weight();
    if (weight.entry == nullptr || weight.entry->shape.size() < 2) continue;
    // MXFP4 is made of experts alone: their own loaders quantize no other product.
    one.candidate = !is_kept_as_floats(one.module->leaf()) &&
                    (config->method != QuantMethod::mxfp4 || InspectSubject::is_expert(*one.module));
    one.listed = options.loader->ignores(*config, one.module->path);
    auto matrix = stored_matrix(*one.module, *config);
    if (matrix) {
      one.matrix = *matrix;
      measure(subject, one);
    } else {
      one.unknown = matrix.error();
    }
    out.modules.push_back({.path = one.module->path,
                           .fate = fate_of(one, *config),
                           .storage = one.matrix ? one.matrix->text() : one.unknown.text,
                           .rows = one.matrix ? one.matrix->rows : 0,
                           .columns = one.matrix ? one.matrix->columns : 0,
                           .bytes = bytes_of(*one.module),
                           .rms = one.rms});
  }
  for (const Check check : inspect_checks()) {
    if (options.stop.stop_requested()) return fail("stopped");
    check(subject, out.findings);
  }
  std::map<std::string_view, InspectedModule*> told;
  for (InspectedModule& one : out.modules) told[one.path] = &one;
  for (const InspectFinding& finding : out.findings) add_to_modules(finding, told);
  if (Status same = files->check_unchanged(); !same) return tl::unexpected(same.error());
  out.files = files->file_count();
  out.tensors = files->tensors().size();
  for (const auto& [name, tensor] : files->tensors()) out.bytes += tensor.entry->end - tensor.entry->begin;
  std::stable_sort(out.findings.begin(), out.findings.end(),
                   [](const InspectFinding& a, const InspectFinding& b) { return a.severity > b.severity; });
  return out;
}

}  // namespace nanscope
