#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace nanscope::cli {

/// Whether mpirun or srun started this process as one of several, by the variables that they set. "" where they did
/// not.
std::string_view started_by();
inline bool started_as_rank() { return !started_by().empty(); }

/// The processes of an MPI job, by libnanscope_mpi.so, which is loaded here. For the thread that joined.
class Ranks {
 public:
  struct Message {
    int from = 0;
    int tag = 0;
    std::string bytes;
  };

  /// Errors: nanscope was built without MPI; MPI does not start, or sees one process.
  static Result<Ranks> join();
  Ranks(Ranks&&) noexcept;
  Ranks& operator=(Ranks&&) = delete;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks();

  int rank() const { return rank_; }
  int size() const { return size_; }
  Status send(int to, int tag, std::string_view bytes);
  /// The next message that has come; nothing where there is none.
  Result<std::optional<Message>> look();
  /// Waits for all ranks.
  void leave();

 private:
  struct Library;
  explicit Ranks(std::unique_ptr<Library> library);

  std::unique_ptr<Library> mpi_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace nanscope::cli
