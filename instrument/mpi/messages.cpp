#include "instrument/mpi/messages.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <limits>

extern "C" {

int nanscope_mpi_join(int* rank, int* size) {
  int provided = 0;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided); error != MPI_SUCCESS)
    return error;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  return error != MPI_SUCCESS ? error : MPI_Comm_size(MPI_COMM_WORLD, size);
}

int nanscope_mpi_send(int to, int tag, const void* bytes, std::uint64_t size) {
  if (size > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) return MPI_ERR_COUNT;
  return MPI_Send(bytes, static_cast<int>(size), MPI_BYTE, to, tag, MPI_COMM_WORLD);
}

int nanscope_mpi_look(int* found, NanscopeMessage* message) {
  MPI_Status status;
  const int error = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, found, &status);
  if (error != MPI_SUCCESS || *found == 0) return error;
  int size = 0;
  message->from = status.MPI_SOURCE;
  message->tag = status.MPI_TAG;
  const int counted = MPI_Get_count(&status, MPI_BYTE, &size);
  message->size = static_cast<std::uint64_t>(size);
  return counted;
}

int nanscope_mpi_take(const NanscopeMessage* message, void* into) {
  return MPI_Recv(into, static_cast<int>(message->size), MPI_BYTE, message->from, message->tag, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE);
}

int nanscope_mpi_leave() { return MPI_Finalize(); }
}
