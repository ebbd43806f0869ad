#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "instrument/inspect/check.h"

/// Zero points of GPTQ that loaders read differently, or not at all.
namespace nanscope {
namespace {

bool has_zero_points(const Inspected& one) {
  return one.matrix && one.matrix->layout != nullptr && !one.matrix->layout->zero_points.empty();
}

/// Codes of bits that are all one among the stored zero points of a module: the first format's 0 - 1.
std::size_t stored_ones(const Inspected& one) {
  const CheckpointFiles::Tensor zeros = one.module->find("qzeros");
  const PackedWeight& weight = *one.matrix->layout;
  if (zeros.entry == nullptr) return 0;
  PackedCodes codes{.bytes = zeros.bytes(), .bits = weight.codes.bits};
  codes.next_line = codes.words(weight.rows);
  const unsigned ones = (1U << weight.codes.bits) - 1;
  std::size_t count = 0;
  for (std::int64_t group = 0; group < weight.groups; ++group) {
    for (std::int64_t row = 0; row < weight.rows; ++row) count += codes.at(group, row) == ones ? 1 : 0;
  }
  return count;
}

/// GPTQModel 7.7 adds 1 to a word of codes at once, with carries; AutoGPTQ 0.7.1 (qlinear_cuda_old) to each code modulo
/// 2^bits; vLLM's gptq_gemm and ExLlama to each code without that.
void check_wrapped(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  if (subject.config.method != QuantMethod::gptq || subject.config.format != "gptq") return;
  InspectFinding wrapped{
      .id = "zero-point-wraps", .severity = Severity::warning, .text = {}, .known_as = {}, .modules = {}};
  std::size_t points = 0;
  int bits = 0;
  for (const Inspected& one : subject.modules) {
    const std::size_t count = has_zero_points(one) ? stored_ones(one) : 0;
    if (count == 0) continue;
    points += count;
    bits = one.matrix->layout->codes.bits;
    wrapped.modules.push_back(one.module->path);
  }
  if (points == 0) return;
  wrapped.text = fmt::format(
      "{} of {} ({}) are stored as -1: GPTQModel reads 0 and one more for the next zero point of the word, AutoGPTQ "
      "reads 0, vLLM's gptq_gemm and ExLlama read {}; store it as gptq_v2",
      counted(points, "zero point"), counted(wrapped.modules.size(), "module"), some_of(wrapped.modules), 1 << bits);
  findings.push_back(std::move(wrapped));
}

void check_ignored(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  if (subject.config.method != QuantMethod::gptq || subject.loader.reads_gptq_zero_points) return;
  if (subject.config.groups.empty() || !subject.config.groups.front().symmetric) return;
  InspectFinding ignored{
      .id = "zero-points-ignored", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  std::size_t points = 0;
  for (const Inspected& one : subject.modules) {
    if (!has_zero_points(one)) continue;
    const PackedWeight& weight = *one.matrix->layout;
    const auto middle = static_cast<float>(1 << (weight.codes.bits - 1));
    const auto others =
        std::count_if(weight.zero_points.begin(), weight.zero_points.end(), [&](float zero) { return zero != middle; });
    if (others == 0) continue;
    points += static_cast<std::size_t>(others);
    ignored.modules.push_back(one.module->path);
  }
  if (points == 0) return;
  ignored.text =
      fmt::format("{} takes 2^(bits - 1) for each zero point and does not read qzeros; {} of {} ({}) are others",
                  subject.loader.name, counted(points, "zero point"), counted(ignored.modules.size(), "module"),
                  some_of(ignored.modules));
  findings.push_back(std::move(ignored));
}

}  // namespace

void check_zero_points(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  check_wrapped(subject, findings);
  check_ignored(subject, findings);
}

}  // namespace nanscope
