#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/recording/reader.h"
#include "core/recording/writer.h"
#include "core/tensor/content_hash.h"

/// kill -9 at random moments of a recording run. A child records steps in a loop and tells through a
/// pipe how many are committed; the parent kills it, opens what is left and demands that every step
/// that was told is whole, with its bytes. The moments are random, and fall into creation, small
/// and large transactions, and recovery.
///
///     kill_test [ROUNDS [SEED]]     exit status 0 when every round passed
namespace nanscope {
namespace {

constexpr int kOpsPerStep = 6;
constexpr std::int64_t kTokens = 16;

std::int64_t channels(std::int64_t step) { return step % 7 == 0 ? 4096 : 64; }

std::vector<std::byte> contents(std::int64_t tensor, std::int64_t step) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(kTokens * channels(step)) * 4);
  std::uint64_t state = static_cast<std::uint64_t>(tensor) * 0x9e3779b97f4a7c15U + 1;
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(&bytes[i], &state, 8);
  }
  return bytes;
}

void add_step(RecordingWriter& writer, std::int64_t id) {
  StepRow step;
  step.id = id;
  step.index = id - 1;
  step.tokens = kTokens;
  writer.add(step);
  for (int i = 0; i < kOpsPerStep; ++i) {
    OpRow op;
    op.id = (id - 1) * kOpsPerStep + i + 1;
    op.step = id;
    op.layer = i;
    op.name = "op";
    op.kind = "gemm";
    writer.add(op, {});
    TensorRow tensor;
    tensor.id = op.id;
    tensor.op = op.id;
    tensor.role = "out";
    tensor.tokens = kTokens;
    tensor.channels = channels(id);
    tensor.health.count = static_cast<std::uint64_t>(kTokens * tensor.channels);
    TensorDetail detail;
    Health row;
    row.count = static_cast<std::uint64_t>(tensor.channels);
    detail.tokens.assign(kTokens, row);
    if (tensor.channels > kTileChannels) {
      detail.tiles.assign(static_cast<std::size_t>(level_shape(kTokens, tensor.channels, 0).tiles()), Health{});
    }
    std::vector<std::byte> bytes = contents(op.id, id);
    ContentHash hash;
    hash.add(bytes);
    tensor.hash = hash.finish();
    writer.add(tensor, std::move(detail), std::move(bytes));
  }
}

[[noreturn]] void child(const std::filesystem::path& path, int pipe, int interval_ms) {
  WriterOptions options;
  options.commit_interval = std::chrono::milliseconds(interval_ms);
  options.commit_bytes = std::size_t{4} << 20;
  auto writer = RecordingWriter::create(path, {}, options);
  if (!writer) _exit(3);
  std::int64_t told = 0;
  for (std::int64_t step = 1;; ++step) {
    add_step(**writer, step);
    if (!(*writer)->commit_step()) _exit(4);
    const std::int64_t committed = (*writer)->committed_steps();
    if (committed == told) continue;
    told = committed;
    if (::write(pipe, &told, sizeof told) != sizeof told) _exit(5);
  }
}

/// Nothing when the step is whole.
std::optional<std::string> check_step(const Recording& recording, std::int64_t id) {
  OpFilter filter;
  filter.step = id;
  const auto ops = recording.ops(filter);
  if (!ops) return ops.error().message;
  if (ops->size() != kOpsPerStep) return fmt::format("step {} has {} ops", id, ops->size());
  for (const OpRow& op : *ops) {
    const auto tensors = recording.tensors_of(op.id);
    if (!tensors) return tensors.error().message;
    if (tensors->size() != 1) return fmt::format("op {} has {} tensors", op.id, tensors->size());
    const auto bytes = recording.tensor_bytes(tensors->front().id);
    if (!bytes) return bytes.error().message;
    if (!*bytes || **bytes != contents(op.id, id)) return fmt::format("tensor {} has other bytes", op.id);
    const auto health = recording.token_health(tensors->front().id);
    if (!health) return health.error().message;
    if (health->size() != kTokens) return fmt::format("tensor {} has other health", op.id);
  }
  return std::nullopt;
}

/// What is left after the kill; `told` steps must be there.
std::optional<std::string> check(const std::filesystem::path& path, std::int64_t told) {
  std::error_code ignored;
  if (told == 0 && (!std::filesystem::exists(path) || std::filesystem::file_size(path, ignored) == 0)) {
    return std::nullopt;  // killed before there was a recording
  }
  auto recording = Recording::open(path);
  if (!recording) {
    const bool unborn = told == 0 && recording.error().message.find("empty file") != std::string::npos;
    return unborn ? std::nullopt : std::optional(recording.error().message);
  }
  if (const auto status = recording->check(); !status) return status.error().message;
  if (recording->state().value_or(RunState::recording) != RunState::interrupted)
    return "it does not count as interrupted";
  const auto steps = recording->steps();
  if (!steps) return steps.error().message;
  const auto found = static_cast<std::int64_t>(steps->size());
  if (found < told) return fmt::format("{} steps were told to be committed, {} are there", told, found);
  for (std::int64_t id = 1; id <= found; ++id) {
    if (auto wrong = check_step(*recording, id)) return wrong;
  }
  return std::nullopt;
}

struct Outcome {
  std::int64_t told = 0;
  bool hot_journal = false;
  std::optional<std::string> wrong;
};

Outcome round(const std::filesystem::path& path, std::mt19937& random) {
  std::filesystem::remove(path);
  int ends[2];
  if (pipe(ends) != 0) std::exit(2);
  const int intervals[] = {0, 0, 1, 10};
  const int interval = intervals[random() % 4];
  // Mostly within the run; sometimes while the file is being created.
  const auto delay = std::chrono::microseconds(random() % 8 == 0 ? random() % 3'000 : 2'000 + random() % 150'000);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    child(path, ends[1], interval);
  }
  close(ends[1]);
  std::this_thread::sleep_for(delay);
  kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  Outcome outcome;
  for (std::int64_t told = 0; read(ends[0], &told, sizeof told) == sizeof told;) outcome.told = told;
  close(ends[0]);
  if (!WIFSIGNALED(status)) {
    outcome.wrong = fmt::format("the child ended by itself with status {}", WEXITSTATUS(status));
    return outcome;
  }
  std::error_code none;
  const auto journal = std::filesystem::file_size(path.string() + "-journal", none);
  outcome.hot_journal = !none && journal > 0;
  outcome.wrong = check(path, outcome.told);
  return outcome;
}

int run(int rounds, unsigned seed) {
  std::string name = (std::filesystem::temp_directory_path() / "nanscope-kill-XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(name.data());
  std::mt19937 random(seed);
  int failed = 0;
  int hot = 0;
  std::int64_t steps = 0;
  for (int i = 0; i < rounds; ++i) {
    const auto path = folder / "killed.nanscope";
    const Outcome outcome = round(path, random);
    steps += outcome.told;
    hot += outcome.hot_journal ? 1 : 0;
    if (!outcome.wrong) continue;
    ++failed;
    const auto kept = folder / fmt::format("round-{}.nanscope", i);
    std::filesystem::rename(path, kept);
    fmt::print("round {}: {} (kept as {})\n", i, *outcome.wrong, kept.string());
  }
  fmt::print(
      "kill -9: {} of {} rounds open clean with every committed step intact; {} steps, {} with a transaction to "
      "undo; seed {}\n",
      rounds - failed, rounds, steps, hot, seed);
  if (failed == 0) std::filesystem::remove_all(folder);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const unsigned seed = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : std::random_device{}();
  return nanscope::run(rounds, seed);
}
