#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "instrument/inspect/check.h"
#include "instrument/inspect/requantize.h"

/// Weights that a loader decodes to fewer bits than they have.
namespace nanscope {
namespace {

/// compressed-tensors 0.20: nvfp4 is decompressed to bf16, and codes under a scale of 16 bits to the scale's dtype.
bool through_bf16(const StoredMatrix& matrix) {
  return matrix.scale == Format::bf16 || (matrix.element == Format::e2m1 && matrix.global == GlobalScale::divisor);
}

}  // namespace

void check_decoding(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  if (!subject.loader.decodes_by_bf16 || subject.config.method != QuantMethod::compressed_tensors) return;
  InspectFinding finding{
      .id = "decoded-by-bf16", .severity = Severity::note, .text = {}, .known_as = {}, .modules = {}};
  double worst = 0;
  for (const Inspected& one : subject.modules) {
    if (!one.matrix || !one.matrix->quantized() || !through_bf16(*one.matrix)) continue;
    finding.modules.push_back(one.module->path);
    finding.changes.push_back(change_by_bf16(*one.matrix, subject.rows_of(*one.matrix)));
    worst = std::max(worst, finding.changes.back());
  }
  if (!(worst > 0)) return;
  finding.text = fmt::format(
      "{} decodes {} ({}) by way of bf16, also where the model is loaded in f32: the weights change by up to {:.2g} % "
      "(root mean square)",
      subject.loader.name, counted(finding.modules.size(), "weight"), some_of(finding.modules), 100 * worst);
  findings.push_back(std::move(finding));
}

}  // namespace nanscope
