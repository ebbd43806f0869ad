#include "cli/ranks.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "core/files/program_files.h"
#include "instrument/mpi/messages.h"

namespace nanscope::cli {
namespace {

constexpr const char* kMessageLibrary = "libnanscope_mpi.so";

bool is_several(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::strtol(value, nullptr, 10) > 1;
}

}  // namespace

std::string_view started_by() {
  if (is_several("OMPI_COMM_WORLD_SIZE")) return "mpirun";
  if (is_several("PMI_SIZE")) return "mpiexec";
  // A batch script has SLURM_NTASKS too, and is one process.
  if (is_several("SLURM_STEP_NUM_TASKS") && std::getenv("SLURM_PROCID") != nullptr) return "srun";
  return "";
}

struct Ranks::Library {
  void* handle = nullptr;
  decltype(&nanscope_mpi_join) join = nullptr;
  decltype(&nanscope_mpi_send) send = nullptr;
  decltype(&nanscope_mpi_look) look = nullptr;
  decltype(&nanscope_mpi_take) take = nullptr;
  decltype(&nanscope_mpi_leave) leave = nullptr;
  bool joined = false;

  template <class Function>
  bool find(const char* name, Function& into) {
    into = reinterpret_cast<Function>(::dlsym(handle, name));
    return into != nullptr;
  }
};

Ranks::Ranks(std::unique_ptr<Library> library) : mpi_(std::move(library)) {}
Ranks::Ranks(Ranks&&) noexcept = default;
Ranks::~Ranks() { leave(); }

Result<Ranks> Ranks::join() {
  const std::string started = fmt::format("{} started several processes", started_by());
  const std::filesystem::path path = library_file(kMessageLibrary);
  if (path.empty())
    return fail(
        fmt::format("{}, and this nanscope was built without MPI ({} is missing): install libopenmpi-dev and "
                    "build again, or use 'nanscope scan --part K/N'",
                    started, kMessageLibrary));
  auto library = std::make_unique<Library>();
  // MPI's own modules look for its symbols among those of all.
  library->handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library->handle == nullptr) return fail(fmt::format("{}: {}", path.string(), ::dlerror()));
  if (!library->find("nanscope_mpi_join", library->join) || !library->find("nanscope_mpi_send", library->send) ||
      !library->find("nanscope_mpi_look", library->look) || !library->find("nanscope_mpi_take", library->take) ||
      !library->find("nanscope_mpi_leave", library->leave))
    return fail(path.string() + ": is of another nanscope");
  Ranks ranks(std::move(library));
  if (const int error = ranks.mpi_->join(&ranks.rank_, &ranks.size_); error != 0)
    return fail(fmt::format("{}, and MPI does not start (error {})", started, error));
  ranks.mpi_->joined = true;
  if (ranks.size_ < 2)
    return fail(started + ", and MPI sees one: start them with the mpirun of the same MPI, or with srun --mpi=pmix");
  return ranks;
}

Status Ranks::send(int to, int tag, std::string_view bytes) {
  const int error = mpi_->send(to, tag, bytes.data(), bytes.size());
  return error == 0 ? Status() : fail(fmt::format("rank {} cannot be reached (MPI error {})", to, error));
}

Result<std::optional<Ranks::Message>> Ranks::look() {
  int found = 0;
  NanscopeMessage message;
  if (const int error = mpi_->look(&found, &message); error != 0)
    return fail(fmt::format("messages of other ranks cannot be read (MPI error {})", error));
  if (found == 0) return std::optional<Message>();
  Message taken{message.from, message.tag, std::string(static_cast<std::size_t>(message.size), '\0')};
  if (const int error = mpi_->take(&message, taken.bytes.data()); error != 0)
    return fail(fmt::format("a message of rank {} cannot be read (MPI error {})", message.from, error));
  return std::optional(std::move(taken));
}

void Ranks::leave() {
  if (mpi_ == nullptr || !mpi_->joined) return;
  mpi_->joined = false;
  mpi_->leave();
}

}  // namespace nanscope::cli
