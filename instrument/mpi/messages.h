#pragma once
#include <cstdint>

/// Messages among the processes of an MPI job, as a library that is loaded when the program runs. All functions are for
/// the thread that joined. They return 0, or an error of MPI.
extern "C" {
struct NanscopeMessage {
  int from = 0;
  int tag = 0;
  std::uint64_t size = 0;
};
int nanscope_mpi_join(int* rank, int* size);
int nanscope_mpi_send(int to, int tag, const void* bytes, std::uint64_t size);
/// The next message that has come, without waiting; `found` is 0 where there is none.
int nanscope_mpi_look(int* found, NanscopeMessage* message);
int nanscope_mpi_take(const NanscopeMessage* message, void* into);
/// Waits for all processes.
int nanscope_mpi_leave();
}
