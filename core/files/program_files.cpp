#include "core/files/program_files.h"

#include <sys/auxv.h>

#include <system_error>

#include "core/files/install_folders.h"

namespace nanscope {

namespace fs = std::filesystem;

namespace {

fs::path first_that_exists(const fs::path& installed, const fs::path& built) {
  std::error_code error;
  for (const fs::path& path : {installed.lexically_normal(), built}) {
    if (fs::exists(path, error)) return path;
  }
  return {};
}

}  // namespace

fs::path program_folder() {
  std::error_code error;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", error); !error) return program.parent_path();
  // Without /proc, as in a bare chroot: the name that it was started by.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel gives pointers as numbers.
  const auto* started = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  if (started == nullptr) return {};
  return fs::canonical(started, error).parent_path();
}

fs::path shared_file(std::string_view name, const fs::path& program) {
  if (program.empty()) return {};
  return first_that_exists(program / kInstalledShare / name, program / "share/nanscope" / name);
}

fs::path library_file(std::string_view name, const fs::path& program) {
  if (program.empty()) return {};
  return first_that_exists(program / kInstalledLibraries / name, program / name);
}

}  // namespace nanscope
