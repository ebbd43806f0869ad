#include "core/files/temporary.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/system_reason.h"

namespace nanscope::temporaries {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz234567";
constexpr std::string_view kEnd = ".tmp";
constexpr std::size_t kRandom = 12;
constexpr std::size_t kMostName = 200;  ///< of the target's name: a name may have 255 bytes
/// Those who hold the lock only change a list: a thread that is stopped within may not stop the program's end.
constexpr auto kPatience = std::chrono::milliseconds(100);

std::timed_mutex mutex;
std::vector<fs::path> entered;  // guarded by mutex
bool ending = false;            // guarded by mutex

}  // namespace

Result<fs::path> name_beside(const fs::path& target) {
  std::array<unsigned char, kRandom> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return fail(fmt::format("{}: no name beside it: {}", target.string(), system_reason(errno)));
  }
  std::string name = target.filename().string().substr(0, kMostName) + '.';
  for (const unsigned char byte : random) name += kLetters[byte % kLetters.size()];
  return target.parent_path() / (name += kEnd);
}

bool is_beside(std::string_view name, std::string_view target) {
  const std::string begin = std::string(target.substr(0, kMostName)) + '.';
  return name.size() == begin.size() + kRandom + kEnd.size() && name.starts_with(begin) && name.ends_with(kEnd) &&
         name.substr(begin.size(), kRandom).find_first_not_of(kLetters) == std::string_view::npos;
}

Status enter(const fs::path& path) {
  // Absolute: the process may be elsewhere when it ends.
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  const std::lock_guard lock(mutex);
  if (ending) return fail(path.string() + ": stopped");
  entered.push_back(error ? path : absolute);
  return {};
}

void leave(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  const std::lock_guard lock(mutex);
  const auto found = std::find(entered.begin(), entered.end(), error ? path : absolute);
  if (found != entered.end()) entered.erase(found);
}

void discard(const fs::path& path) noexcept {
  try {
    std::error_code ignored;
    if (fs::is_directory(fs::symlink_status(path, ignored))) {
      fs::remove_all(path, ignored);
      return;
    }
    for (const std::string_view suffix : {"", "-journal"}) {
      fs::remove(path.string().append(suffix), ignored);
    }
  } catch (const std::exception&) {  // no memory for a name: it stays
  }
}

void remove_all() noexcept {
  try {
    const std::unique_lock lock(mutex, kPatience);
    if (!lock.owns_lock()) return;
    ending = true;
    for (const fs::path& path : entered) discard(path);
    // A thread may have made a file in a folder that was being removed.
    for (const fs::path& path : entered) discard(path);
  } catch (const std::exception&) {  // of the lock: nothing is known then
  }
}

}  // namespace nanscope::temporaries
