#include "instrument/live/timeline_writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

namespace nanscope::live {
namespace {

std::string json_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::filesystem::path with_process(const std::filesystem::path& path, std::int64_t process) {
  std::filesystem::path other = path;
  other.replace_filename(fmt::format("{}.{}{}", path.stem().string(), process, path.extension().string()));
  return other;
}

}  // namespace

Result<std::unique_ptr<TimelineWriter>> TimelineWriter::create(const std::filesystem::path& path,
                                                               const std::filesystem::path& beside, std::string command,
                                                               std::int64_t process, std::string version) {
  RunInfo info;
  info.nanscope_version = std::move(version);
  info.created = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  info.config = json_text({{"schema", "nanscope.live/1"}, {"command", command}, {"process", process}});
  info.device = "cuda";
  info.capture = "none";
  WriterOptions options;
  options.output.mode = 0600;
  options.output.durable = true;
  std::filesystem::path name = path;
  auto writer = RecordingWriter::create(beside.empty() ? path : beside, info, options);
  if (!writer) {
    name = with_process(path, process);
    auto other = RecordingWriter::create(name, info, options);
    // Where this fails too it is the folder's fault, which the first one says as well.
    if (!other) return tl::unexpected(other.error());
    writer = std::move(other);
  }
  RequestRow request;
  request.id = 1;
  request.name = std::move(command);
  request.prompt = "[]";
  std::unique_ptr<TimelineWriter> timeline(new TimelineWriter(name, std::move(*writer), std::move(request)));
  return timeline;
}

TimelineWriter::TimelineWriter(std::filesystem::path path, std::unique_ptr<RecordingWriter> writer, RequestRow request)
    : path_(std::move(path)), writer_(std::move(writer)), request_(std::move(request)) {
  writer_->add(request_);
}

void TimelineWriter::open_step() {
  StepRow step;
  step.id = ++steps_;
  step.request = request_.id;
  step.index = steps_ - 1;
  step.kind = steps_ == 1 ? StepKind::prefill : StepKind::decode;
  writer_->add(step);
  step_open_ = true;
  ops_in_step_ = 0;
}

std::int64_t TimelineWriter::add_op(std::string name, std::string kind, std::string attributes) {
  if (step_open_ && ops_in_step_ >= kStepOps && !commit()) return 0;
  if (!step_open_) open_step();
  OpRow op;
  op.id = ++ops_;
  op.step = steps_;
  op.name = std::move(name);
  op.kind = std::move(kind);
  op.attributes = std::move(attributes);
  writer_->add(op, {});
  ++ops_in_step_;
  return op.id;
}

void TimelineWriter::say(std::string text) {
  request_.output_text = std::move(text);
  writer_->update_request(request_);
}

Status TimelineWriter::commit() {
  if (!step_open_ && !work_added_) return {};
  step_open_ = false;
  work_added_ = false;
  return writer_->commit_step();
}

Status TimelineWriter::finish() {
  if (Status done = commit(); !done) return done;
  return writer_->finish(ops_);
}

}  // namespace nanscope::live
