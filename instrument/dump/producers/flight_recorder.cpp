#include <fmt/format.h>

#include <array>
#include <optional>
#include <regex>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/containers/json_lines.h"
#include "instrument/dump/producers/producer.h"

/// The flight recorder of nanscope_capture.py: step folders as its dumps have, and beside them counters_00000.jsonl,
/// with a line for the file and one for each step that was counted, dumped or not:
///   {"nanscope_counters": 1, "columns": ["elements", "nan", "inf", ...], "fault": [5, "model.layers.1.output", "NaN"]}
///   {"step": 5, "written": true, "left_out": 0, "tensors": {"model.layers.1.output": [64, 1, 0, 0, 0, 0, 7.5, 12345]}}
namespace nanscope {
namespace {

struct Counted {
  std::int64_t steps = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::string bad;  ///< the first tensor with a NaN or an Inf, and its step
};

constexpr std::array<std::string_view, 3> kBad = {"NaN", "+Inf", "-Inf"};  // columns 1 to 3

/// What a tensor's counters say of NaN and Inf; nothing where there is none.
std::optional<std::string_view> bad_in(const JsonView& row) {
  std::size_t column = 0;
  for (const JsonMember& counter : row.items()) {
    if (column >= 1 && column <= kBad.size() && counter.value.natural().value_or(0) > 0) return kBad[column - 1];
    ++column;
  }
  return std::nullopt;
}

Status take(const JsonLine& line, Counted& counted) {
  if (line.number == 1) {
    const auto version = line.object.find("nanscope_counters");
    if (!version || version->natural() != 1) return fail("line 1: expected \"nanscope_counters\": 1");
    return {};
  }
  const auto step = line.object.find("step");
  const auto tensors = line.object.find("tensors");
  if (!step || !step->natural() || !tensors || !tensors->is_object()) {
    return fail(fmt::format("line {}: expected a step and its tensors", line.number));
  }
  if (counted.steps++ == 0) counted.first = *step->natural();
  counted.last = *step->natural();
  for (const JsonMember& tensor : tensors->items()) {
    if (!counted.bad.empty()) break;
    if (const auto bad = bad_in(tensor.value)) {
      counted.bad = fmt::format("the first {} is in step {}, {}", *bad, counted.last, tensor.key.text());
    }
  }
  return {};
}

class FlightRecorder final : public Producer {
 public:
  std::string_view name() const override { return "nanscope's flight recorder"; }

  void look(const DumpListing& listing, const ProducerOptions&, ProducerFindings& findings) override {
    static const std::regex counters(R"(counters_\d+\.jsonl)");
    for (const DumpFile& file : listing.files) {
      if (std::regex_match(file.filename(), counters)) read(file, findings);
    }
  }

  bool claims(const DumpFile&) const override { return false; }
  Naming name_of(const DumpFile&, const Container&, std::size_t) override { return {}; }

 private:
  static void read(const DumpFile& file, ProducerFindings& findings) {
    Counted counted;
    findings.sparse = file.shown;
    const auto data = map_file(file.path);
    const Status done =
        !data ? Status(tl::unexpected(data.error()))
              : for_each_json_line(data->bytes, data->name, [&](const JsonLine& line) { return take(line, counted); });
    if (!done) {
      findings.unread.push_back({file.shown, done.error().message});
      return;
    }
    if (counted.steps > 0) {
      findings.notes.push_back(
          {file.shown, fmt::format("counters of {} steps, {} to {}: {}", counted.steps, counted.first, counted.last,
                                   counted.bad.empty() ? "none counts a NaN or an Inf" : counted.bad)});
    }
  }
};

}  // namespace

std::unique_ptr<Producer> flight_recorder_producer() { return std::make_unique<FlightRecorder>(); }

}  // namespace nanscope
