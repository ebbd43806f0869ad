#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/inspect/check.h"
#include "instrument/inspect/requantize.h"

/// Scales of weights that a server runs as one: q, k and v, gate and up.
namespace nanscope {
namespace {

std::string names_of(std::span<const Inspected* const> parts) {
  std::vector<std::string> leaves;
  for (const Inspected* part : parts) leaves.emplace_back(part->module->leaf());
  return fmt::format("{}", fmt::join(leaves, ", "));
}

/// The scale of all of a weight, or 0 where it has many.
float whole_scale(const Inspected& one) {
  const StoredMatrix& matrix = *one.matrix;
  if (matrix.global != GlobalScale::none) return matrix.global_scale;
  if (!matrix.quantized() || matrix.block_columns < matrix.columns || matrix.block_rows < matrix.rows) return 0;
  float scale = 0;
  matrix.scales_of_row(0, std::span(&scale, 1));
  return scale;
}

struct Fused {
  std::vector<const Inspected*> parts;
  float least = 0;
  float most = 0;
  double ratio() const { return double{most} / least; }
};

/// Those whose parts all have a scale of the whole, which are not equal.
std::vector<Fused> unequal(const InspectSubject& subject, bool global) {
  std::vector<Fused> all;
  for (const Inspected& one : subject.modules) {
    Fused fused{subject.fused_with(one)};
    for (const Inspected* part : fused.parts) {
      const bool counts = part->matrix && (part->matrix->global != GlobalScale::none) == global;
      const float scale = counts ? whole_scale(*part) : 0;
      if (!(scale > 0) || !std::isfinite(scale)) {
        fused.most = 0;
        break;
      }
      fused.least = fused.most == 0 ? scale : std::min(fused.least, scale);
      fused.most = std::max(fused.most, scale);
    }
    if (fused.most > fused.least) all.push_back(std::move(fused));
  }
  return all;
}

std::size_t count_fused(const InspectSubject& subject) {
  return static_cast<std::size_t>(
      std::count_if(subject.modules.begin(), subject.modules.end(),
                    [&](const Inspected& one) { return !subject.fused_with(one).empty(); }));
}

const Fused& widest(const std::vector<Fused>& all) {
  return *std::max_element(all.begin(), all.end(),
                           [](const Fused& a, const Fused& b) { return a.ratio() < b.ratio(); });
}

void check_fused_global(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  // Which scale torchao's fused tensors get is not known.
  if (subject.loader.fused_global != FusedScales::largest || subject.config.method == QuantMethod::torchao) return;
  const std::vector<Fused> all = unequal(subject, true);
  if (all.empty()) return;
  const Fused& worst = widest(all);
  const bool divisor = worst.parts.front()->matrix->global == GlobalScale::divisor;
  InspectFinding finding{.id = "global-scales-differ",
                         .severity = worst.ratio() > 1.1 ? Severity::error : Severity::warning,
                         .text = {},
                         .known_as = "vllm-project/vllm #47515",
                         .modules = {}};
  for (const Fused& fused : all) {
    for (const Inspected* part : fused.parts) {
      const double ratio = double{fused.most} / whole_scale(*part);
      if (ratio == 1) continue;
      finding.modules.push_back(part->module->path);
      finding.changes.push_back(divisor ? 1 - 1 / ratio : ratio - 1);
    }
  }
  finding.text = fmt::format(
      "{} runs {} as one weight with the largest of their scales of the whole, and leaves codes and block scales as "
      "they are; they differ in {} of {}, by up to {:.3g} times in {}: that part's weights become up to {:.3g} times "
      "{}",
      subject.loader.name, names_of(worst.parts), all.size(), count_fused(subject), worst.ratio(),
      some_of(std::vector<std::string>{worst.parts.front()->module->path}), worst.ratio(),
      divisor ? "smaller" : "larger");
  findings.push_back(std::move(finding));
}

void check_fused_codes(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  if (subject.loader.fused_fp8 != FusedScales::requantized) return;
  const std::vector<Fused> all = unequal(subject, false);
  if (all.empty()) return;
  double worst = 0;
  std::string where;
  InspectFinding finding{
      .id = "fused-requantized", .severity = Severity::warning, .text = {}, .known_as = {}, .modules = {}};
  for (const Fused& fused : all) {
    for (const Inspected* part : fused.parts) {
      if (whole_scale(*part) == fused.most) continue;
      const double change = change_by_scale(*part->matrix, subject.rows_of(*part->matrix), fused.most);
      if (change > worst) worst = change, where = part->module->path;
      finding.modules.push_back(part->module->path);
      finding.changes.push_back(change);
    }
  }
  finding.text = fmt::format(
      "{} runs {} as one weight, whose codes it makes anew by the largest of their scales; they differ in {} of {}: "
      "the "
      "weights change by up to {:.2g} % (root mean square), most in {}",
      subject.loader.name, names_of(all.front().parts), all.size(), count_fused(subject), 100 * worst,
      some_of(std::vector<std::string>{where}));
  findings.push_back(std::move(finding));
}

/// One scale of all for what the file holds fused, where the loader makes room for one of each part.
void check_fused_scalars(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  if (!subject.loader.fused_scalar_fills_one) return;
  InspectFinding finding{.id = "fused-scalar",
                         .severity = Severity::warning,
                         .text = {},
                         .known_as = "sgl-project/sglang PR 29151",
                         .modules = {}};
  for (const Inspected& one : subject.modules) {
    const std::string_view leaf = one.module->leaf();
    if (leaf != "qkv_proj" && leaf != "gate_up_proj") continue;
    if (one.matrix && one.matrix->quantized() && whole_scale(one) > 0) finding.modules.push_back(one.module->path);
  }
  if (finding.modules.empty()) return;
  finding.text = fmt::format(
      "{} ({}) are fused in the file and have one scale; versions of {} before the mend give it to the first part, and "
      "leave the others' unset",
      counted(finding.modules.size(), "weight"), some_of(finding.modules), subject.loader.name);
  findings.push_back(std::move(finding));
}

}  // namespace

void check_fused_scales(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  check_fused_global(subject, findings);
  check_fused_codes(subject, findings);
  check_fused_scalars(subject, findings);
}

}  // namespace nanscope
