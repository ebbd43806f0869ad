#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/inspect/check.h"

/// Codes without a scale, or with one under a name that the loader does not look for.
namespace nanscope {
namespace {

/// How much larger the codes are than weights of that width usually are: a product of n terms keeps the size of its
/// input where their root mean square is 1 / sqrt(n).
double times_too_large(const Inspected& one) {
  return one.code_rms * std::sqrt(static_cast<double>(one.matrix->columns));
}

void check_scale_names(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  if (subject.config.method != QuantMethod::fp8) return;
  InspectFinding wrong{
      .id = "scale-name", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}, .unfits = true};
  std::string found;
  for (const Inspected& one : subject.modules) {
    if (!one.matrix || !one.matrix->quantized() || one.matrix->element == Format::e2m1) continue;
    const bool blocks = one.matrix->block_columns < one.matrix->columns;
    const std::string_view wanted = blocks ? "weight_scale_inv" : subject.loader.fp8_tensor_scale;
    if (one.module->has(wanted)) continue;
    wrong.modules.push_back(one.module->path);
    found = one.module->has("weight_scale") ? "weight_scale" : "weight_scale_inv";
  }
  if (wrong.modules.empty()) return;
  wrong.text = fmt::format("{} ({}) have their scale as '{}', where {} looks for '{}': it is dropped; {}",
                           counted(wrong.modules.size(), "module"), some_of(wrong.modules), found, subject.loader.name,
                           found == "weight_scale" ? "weight_scale_inv" : "weight_scale", subject.loader.missing_scale);
  findings.push_back(std::move(wrong));
}

void check_global_missing(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding missing{.id = "global-scale-missing",
                         .severity = Severity::error,
                         .text = {},
                         .known_as = {},
                         .modules = {},
                         .unfits = true};
  for (const Inspected& one : subject.modules) {
    if (one.matrix && one.matrix->packed && one.matrix->scale == Format::e4m3 &&
        one.matrix->global == GlobalScale::none)
      missing.modules.push_back(one.module->path);
  }
  if (missing.modules.empty()) return;
  missing.text =
      fmt::format("{} ({}) of 4-bit blocks with e4m3 scales have no scale of the whole: {}",
                  counted(missing.modules.size(), "module"), some_of(missing.modules), subject.loader.missing_scale);
  findings.push_back(std::move(missing));
}

}  // namespace

void check_scale_missing(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding missing{.id = "scale-missing",
                         .severity = Severity::error,
                         .text = {},
                         .known_as = "unslothai/unsloth #6200",
                         .modules = {}};
  double least = 0;
  double most = 0;
  for (const Inspected& one : subject.modules) {
    const bool coded = one.matrix && !one.matrix->quantized() && info(one.matrix->element).bits == 8;
    if (!coded && one.unknown.text.find("no scale beside it") == std::string::npos) continue;
    missing.modules.push_back(one.module->path);
    if (!coded) continue;
    const double times = times_too_large(one);
    least = least == 0 ? times : std::min(least, times);
    most = std::max(most, times);
  }
  if (!missing.modules.empty()) {
    missing.text = fmt::format("{} ({}) hold codes and no scale: {}", counted(missing.modules.size(), "module"),
                               some_of(missing.modules), subject.loader.missing_scale);
    if (most > 0) {
      missing.text +=
          fmt::format("; read as weights, the codes are {} times larger than weights of that width are",
                      least == most ? fmt::format("{:.3g}", most) : fmt::format("{:.3g} to {:.3g}", least, most));
    }
    findings.push_back(std::move(missing));
  }
  check_scale_names(subject, findings);
  check_global_missing(subject, findings);
}

}  // namespace nanscope
