#include "cli/run_attached.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "cli/command.h"

extern char** environ;

namespace nanscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libnanscope_inject.so";

/// Beside the program, as it is built, or in ../lib, as it is installed; empty: in neither.
fs::path injected_library() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& path : {folder / kLibrary, folder.parent_path() / "lib" / kLibrary}) {
    if (fs::exists(path, error)) return path;
  }
  return {};
}

/// Ours, with the variables replaced.
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

/// The keyboard's signals are the command's to answer; we wait for it.
class IgnoredSignals {
 public:
  IgnoredSignals() : interrupt_(std::signal(SIGINT, SIG_IGN)), quit_(std::signal(SIGQUIT, SIG_IGN)) {}
  ~IgnoredSignals() {
    std::signal(SIGINT, interrupt_);
    std::signal(SIGQUIT, quit_);
  }
  IgnoredSignals(const IgnoredSignals&) = delete;
  IgnoredSignals& operator=(const IgnoredSignals&) = delete;

 private:
  void (*interrupt_)(int);
  void (*quit_)(int);
};

/// The started process answers them as this one did before.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGQUIT);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) return kBadInput;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

int run_attached(const std::vector<std::string>& command, const live::LiveOptions& options) {
  const fs::path library = injected_library();
  if (library.empty()) {
    return complain(
        fmt::format("{} is not beside this program: it is built where the CUDA toolkit's headers are found", kLibrary));
  }
  if (auto fits = live::watch_options(options); !fits) return complain(fits.error().message);
  std::error_code error;
  if (fs::exists(options.output, error)) {
    return complain(fmt::format("{}: exists; name another file with -o, or use --force", options.output));
  }
  auto added = live::environment_of(options);
  added.emplace_back("CUDA_INJECTION64_PATH", library.string());
  std::vector<std::string> environment = environment_with(added);
  std::vector<std::string> arguments = command;
  pid_t process = 0;
  int code = 0;
  {
    const IgnoredSignals ignored;
    const SpawnAttributes attributes;
    const int failed = posix_spawnp(&process, arguments.front().c_str(), nullptr, attributes.get(),
                                    pointers(arguments).data(), pointers(environment).data());
    if (failed != 0) return complain(fmt::format("{}: {}", command.front(), std::strerror(failed)));
    code = wait_for(process);
  }
  if (!fs::exists(options.output, error)) {
    complain(fmt::format("nothing is recorded: {} started no CUDA driver in which CUPTI answered", command.front()));
  }
  return code;
}

}  // namespace nanscope::cli
