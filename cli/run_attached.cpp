#include "cli/run_attached.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>

#include "cli/command.h"
#include "core/files/output_file.h"
#include "core/files/program_files.h"
#include "core/files/temporary.h"
#include "core/recording/recording_file.h"
#include "core/system_reason.h"

extern char** environ;

namespace nanscope::cli {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

constexpr const char* kLibrary = "libnanscope_inject.so";
constexpr const char* kInjection = "CUDA_INJECTION64_PATH";
/// Time for a command to end after a signal: it writes its recording meanwhile.
constexpr auto kGrace = std::chrono::seconds(5);
constexpr timespec kBetweenLooks{0, 20'000'000};

/// This process's environment with the variables of `added` set.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& added) {
  std::map<std::string, std::string> variables;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string text = *one;
    variables[text.substr(0, text.find('='))] = text;
  }
  for (const auto& [name, value] : added) variables[name] = fmt::format("{}={}", name, value);
  std::vector<std::string> result;
  result.reserve(variables.size());
  for (const auto& [name, text] : variables) result.push_back(text);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Attributes of the child process: default handling of SIGPIPE and SIGXFSZ, and the signal mask `blocked`.
class SpawnAttributes {
 public:
  explicit SpawnAttributes(const sigset_t& blocked) {
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&signals, signal);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

/// The process and its living descendants.
std::vector<pid_t> with_descendants(pid_t process) {
  std::vector<pid_t> found{process};
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::error_code error;
    for (fs::directory_iterator task(fmt::format("/proc/{}/task", found[i]), error), end; !error && task != end;
         task.increment(error)) {
      std::ifstream children(task->path() / "children");
      for (pid_t child = 0; children >> child;) found.push_back(child);
    }
  }
  return found;
}

void send(pid_t process, int signal) {
  for (const pid_t one : with_descendants(process)) ::kill(one, signal);
}

/// A running command. Receives the signals of this process and forwards them.
class Attached {
 public:
  Attached(pid_t process, Interrupt& interrupt) : process_(process), interrupt_(interrupt) {}

  /// Returns the command's exit code; 128 + the signal's number if a signal ended it.
  int wait() {
    const sigset_t signals = Interrupt::signals();
    for (;;) {
      int status = 0;
      const pid_t ended = waitpid(process_, &status, WNOHANG);
      if (ended < 0 && errno != EINTR) return kBadInput;
      if (ended == process_) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      siginfo_t about{};
      const int signal = sigtimedwait(&signals, &about, &kBetweenLooks);
      if (signal > 0) take(signal, about);
      if (until_ && Clock::now() >= *until_) send(process_, SIGKILL);
    }
  }

 private:
  void take(int signal, const siginfo_t& about) {
    const bool keyboard = about.si_code == SI_KERNEL;
    if (keyboard) return;
    interrupt_.take(signal);
    if (until_) return send(process_, SIGKILL);  // a second signal
    until_ = Clock::now() + kGrace;
    send(process_, signal);
  }

  pid_t process_;
  Interrupt& interrupt_;
  std::optional<Clock::time_point> until_;
};

/// Checks the output, and chooses a temporary file for the new recording if an old one exists.
Status place_recording(live::LiveOptions& options, const OutputOptions& output) {
  if (Status allowed = check_output(options.output, output); !allowed) return allowed;
  if (is_stream(options.output)) return fail(options.output + ": is not a regular file");
  if (Status alone = check_beside(options.output); !alone) return alone;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(options.output, error))) return {};
  const auto beside = temporaries::name_beside(options.output);
  if (!beside) return tl::unexpected(beside.error());
  options.beside = *beside;
  return {};
}

void report_replaced_injection() {
  const char* before = std::getenv(kInjection);
  if (before == nullptr || *before == '\0') return;
  complain(fmt::format("{} is set to {}; nanscope replaces it for this command", kInjection, before));
}

Result<pid_t> start(std::vector<std::string> arguments, const live::LiveOptions& options, const fs::path& library,
                    const Interrupt& interrupt) {
  auto added = live::environment_of(options);
  added.emplace_back(kInjection, library.string());
  std::vector<std::string> environment = environment_with(added);
  pid_t process = 0;
  const SpawnAttributes attributes(interrupt.before());
  const int failed = posix_spawnp(&process, arguments.front().c_str(), nullptr, attributes.get(),
                                  pointers(arguments).data(), pointers(environment).data());
  if (failed != 0) return fail(fmt::format("{}: {}", arguments.front(), system_reason(failed)));
  return process;
}

/// Renames the new recording to its final name, also an incomplete one of a command that died.
Status take_recording(const live::LiveOptions& options, const OutputOptions& output) {
  std::error_code error;
  if (options.beside.empty() || !fs::exists(options.beside, error)) return {};
  return rename_recording(options.beside, options.output, output);
}

}  // namespace

int run_attached(const std::vector<std::string>& command, live::LiveOptions options, bool replace,
                 Interrupt& interrupt) {
  const fs::path library = library_file(kLibrary);
  if (library.empty()) {
    return complain(
        fmt::format("{} is not installed with nanscope: the build needs the headers of the CUDA toolkit", kLibrary));
  }
  if (auto fits = live::watch_options(options); !fits) return complain(fits.error().message);
  const OutputOptions output{.replace = replace};
  if (Status placed = place_recording(options, output); !placed) return complain(placed.error().message);
  report_replaced_injection();
  interrupt.hand_over();
  const auto process = start(command, options, library, interrupt);
  if (!process) return complain(process.error().message);
  const int code = Attached(*process, interrupt).wait();
  std::error_code error;
  if (!fs::exists(options.beside.empty() ? options.output : options.beside, error)) {
    complain(fmt::format("nothing is recorded: {} started no CUDA driver with a working CUPTI", command.front()));
  }
  if (Status taken = take_recording(options, output); !taken) return complain(taken.error().message);
  return code;
}

}  // namespace nanscope::cli
