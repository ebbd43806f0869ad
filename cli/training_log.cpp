#include "cli/training_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

#include "instrument/files/file.h"

namespace nanscope::cli {

namespace {

constexpr std::string_view kStepsHeader = "step,loss,gradient_norm,learning_rate,loss_scale,skipped,seconds\n";
constexpr std::string_view kScalesHeader = "step,layer,target,head,scale,absmax,used\n";
constexpr std::uint64_t kMostCurves = std::uint64_t{1} << 30;

/// The header and the rows of steps before `first_step`. Drops an incomplete last row, which a killed process leaves.
/// Errors: not a file of curves; a row of step `end_step` or later.
Result<std::string> rows_before(const std::filesystem::path& path, std::string_view header, std::int64_t first_step,
                                std::int64_t end_step) {
  const auto bytes = read_file(path, kMostCurves);
  if (!bytes) return tl::unexpected(bytes.error());
  std::string_view text = as_text(*bytes);
  if (!text.starts_with(header)) return fail(path.string() + ": holds no curves of a training run");
  text.remove_prefix(header.size());
  std::string rows(header);
  for (;;) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return rows;
    const std::string_view row = text.substr(0, end + 1);
    std::int64_t step = -1;
    const auto [after, error] = std::from_chars(row.data(), row.data() + row.size(), step);
    if (error != std::errc() || *after != ',') return fail(path.string() + ": holds no curves of a training run");
    if (step >= end_step) return fail(path.string() + ": holds curves of another run; name another file");
    if (step < first_step) rows += row;
    text.remove_prefix(end + 1);
  }
}

// The shortest digits that restore the same double.

std::string step_row(const train::StepReport& report, double seconds) {
  return fmt::format("{},{},{},{},{},{},{:.6f}\n", report.step, report.loss, report.gradient_norm, report.learning_rate,
                     report.loss_scale, report.skipped ? 1 : 0, seconds);
}

std::string scale_rows(const train::StepReport& report) {
  std::string rows;
  for (const ScoreBook::StepUse& use : report.scores) {
    const std::string head = use.head < 0 ? std::string("all") : std::to_string(use.head);
    rows += fmt::format("{},{},{},{},{},{},{}\n", report.step, use.layer, name(use.target), head, use.scale, use.absmax,
                        use.used());
  }
  return rows;
}

}  // namespace

Result<TrainingCurves> TrainingCurves::open(CurvesOf what, const std::filesystem::path& path, std::int64_t first_step,
                                            std::int64_t end_step, bool resume, OutputOptions output) {
  std::error_code error;
  const std::string_view header = what == CurvesOf::steps ? kStepsHeader : kScalesHeader;
  std::string rows(header);
  if (resume && std::filesystem::is_regular_file(path, error)) {
    auto kept = rows_before(path, header, first_step, end_step);
    if (!kept) return tl::unexpected(kept.error());
    rows = std::move(*kept);
    output.replace = true;
  }
  TrainingCurves curves(what, path);
  if (is_stream(path)) {
    curves.file_.open(path, std::ios::binary);
    curves.file_ << rows << std::flush;
  } else {
    if (Status begun = write_output(path, rows, output); !begun) return tl::unexpected(begun.error());
    curves.file_.open(path, std::ios::binary | std::ios::app);
  }
  if (!curves.file_) return fail(path.string() + ": cannot be written");
  return curves;
}

Status TrainingCurves::add(const train::StepReport& report, double seconds) {
  file_ << (what_ == CurvesOf::steps ? step_row(report, seconds) : scale_rows(report)) << std::flush;
  return file_ ? Status() : fail(path_.string() + ": cannot be written; the disk may be full");
}

void ScaleUsage::add(const train::StepReport& report) {
  for (const ScoreBook::StepUse& use : report.scores) {
    ++uses_;
    const double used = use.used() <= 1 ? use.used() : 1;
    sum_ += used;
    ++counts_.at(use.overflows() ? kParts : std::min(kParts - 1, static_cast<std::size_t>(used * kParts)));
  }
}

/// The part of the format below which that part of the uses lies, to a thousandth.
double ScaleUsage::at(double part) const {
  const auto below = static_cast<std::int64_t>(part * static_cast<double>(uses_ - 1));
  std::int64_t count = 0;
  for (std::size_t i = 0; i < kParts; ++i) {
    count += counts_.at(i);
    if (count > below) return (static_cast<double>(i) + 0.5) / kParts;
  }
  return 1;
}

std::string ScaleUsage::text() const {
  if (uses_ == 0) return {};
  return fmt::format(
      "scales of attention: {} of {} overflowed; used of the format: mean {:.1f} %, median {:.1f} %, 10th and 90th "
      "percentile {:.1f} and {:.1f} %\n",
      counts_.back(), uses_, 100 * sum_ / static_cast<double>(uses_), 100 * at(0.5), 100 * at(0.1), 100 * at(0.9));
}

std::string step_text(const train::StepReport& report) {
  std::string text = fmt::format("loss {:.5g}, gradient norm {:.3g}, learning rate {:.3g}", report.loss,
                                 report.gradient_norm, report.learning_rate);
  if (report.loss_scale != 1) text += fmt::format(", loss scale {:g}", report.loss_scale);
  return report.skipped ? text + ", skipped" : text;
}

TrainingLog::TrainingLog(std::int64_t first_step, std::int64_t steps, std::int64_t every, std::int64_t tokens_a_step)
    : first_step_(first_step),
      steps_(steps),
      every_(every > 0 ? every : std::max<std::int64_t>(1, (steps - first_step) / 20)),
      tokens_(tokens_a_step),
      terminal_(isatty(STDERR_FILENO) == 1),
      line_("steps"),
      start_(Clock::now()) {}

void TrainingLog::show(const train::StepReport& report) {
  const std::int64_t done = report.step + 1;
  const std::int64_t here = done - first_step_;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(here * tokens_) / seconds : 0;
  const std::string label = fmt::format("{}, {:.3g} tokens/s", step_text(report), rate);
  if (terminal_) return line_.show(here, steps_ - first_step_, label);
  if (here % every_ != 0 && done != steps_) return;
  const std::string line = fmt::format("step {} of {}: {}\n", done, steps_, label);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace nanscope::cli
