#include "gui/export/exporter.h"

#include <fmt/format.h>

#include <exception>
#include <span>
#include <utility>

#include "core/files/output_file.h"
#include "core/system_reason.h"
#include "gui/export/new_file.h"

namespace nanscope::gui {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Result<std::vector<std::byte>> Exporter::guarded(const Task& task) {
  try {
    return task.make();
  } catch (const std::exception& error) {
    return fail(fmt::format("{}.{} cannot be written: {}", task.stem, task.extension, reason_of(error)));
  }
}

Exporter::Exporter(const std::filesystem::path& recording)
    : stem_(recording.stem().string()),
      folders_(folders_beside(recording)),
      thread_([this](const std::stop_token& stop) { serve(stop); }) {}

Exporter::~Exporter() {
  thread_.request_stop();
  thread_.join();
}

void Exporter::save(const std::string& what, std::string extension, Make make) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({fmt::format("{}-{}", stem_, what), std::move(extension), std::move(make)});
  }
  wake_.notify_one();
}

std::vector<Exporter::Saved> Exporter::poll() {
  const std::lock_guard lock(mutex_);
  return std::exchange(saved_, {});
}

bool Exporter::busy() const {
  const std::lock_guard lock(mutex_);
  return writing_ || !waiting_.empty() || !saved_.empty();
}

void Exporter::serve(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, stop, [this] { return !waiting_.empty(); });
    if (waiting_.empty()) return;  // only when it is to stop
    const Task task = std::move(waiting_.front());
    waiting_.pop_front();
    writing_ = true;
    lock.unlock();
    Saved saved = carry_out(task);
    lock.lock();
    writing_ = false;
    saved_.push_back(std::move(saved));
  }
}

Exporter::Saved Exporter::carry_out(const Task& task) const {
  const auto content = guarded(task);
  if (!content) return tl::unexpected(content.error());
  return write_new_file(folders_, task.stem, task.extension, [&](OutputFile& file) { return file.write(*content); });
}

}  // namespace nanscope::gui
