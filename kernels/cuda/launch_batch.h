#pragma once
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "core/result.h"
#include "kernels/cuda/runtime.h"
#include "kernels/op_ids.h"

namespace nanscope::kernels::cuda {

/// Gathers launches, and copies between them, and starts them together. Where a GPU finishes small ops as fast as a
/// host can launch them, launching is what a step takes: a sequence of ops that comes again (a decode step does, with
/// other arguments) becomes a CUDA graph, of which only the nodes that changed are told their new arguments, and which
/// is one launch. All run in the order in which they were added, each after the one before.
class LaunchBatch {
 public:
  /// Started when so many are gathered, or when they keep the GPU busy while the next are gathered (element
  /// operations).
  static constexpr std::size_t kMostOps = 512;
  static constexpr std::int64_t kBusyWork = std::int64_t{1} << 24;
  /// Fewer are launched one by one.
  static constexpr std::size_t kLeastOps = 4;
  /// Sequences that are remembered, the most recently used.
  static constexpr std::size_t kMostSequences = 16;

  /// Without `graphs` every op is launched when it is added.
  LaunchBatch(cudaStream_t stream, bool graphs) : stream_(stream), graphs_(graphs) {}

  /// `args` is copied. Errors: those of this launch and of earlier ones that were only now started.
  Status add(OpId id, const void* args);
  /// A copy in device memory.
  Status add_copy(void* to, const void* from, std::size_t bytes);
  /// Starts what is gathered. To be called before anything else is put on the stream.
  Status flush();
  /// flush() where nobody can be told: the next call that can fails.
  void flush_later_told();
  /// Starts what is gathered; from now on with or without graphs.
  Status use_graphs(bool graphs);

 private:
  /// What is done: an op, by its id, or a copy.
  using Kind = int;
  static constexpr Kind kCopy = -1;
  struct Launch {
    Kind kind = kCopy;
    std::int64_t warps = 0;     ///< of an op
    std::size_t args = 0;       ///< where they begin in Gathered::args: an op's, or a Copy
    std::size_t arg_words = 0;  ///< and how many
  };
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  struct Gathered {
    std::vector<Launch> launches;
    std::vector<std::uint64_t> args;  ///< words, for alignment
    std::int64_t work = 0;
  };
  /// A sequence that was seen, and its graph from the second time on.
  struct Sequence {
    std::vector<Kind> kinds;
    Gathered last;  ///< what the graph's nodes were told
    Graph graph;
    GraphExec exec;
    std::vector<cudaGraphNode_t> nodes;
  };

  /// Room for the arguments of what comes next.
  void* add(Kind kind, std::int64_t warps, std::size_t arg_bytes, std::int64_t work);
  Copy copy_of(const Launch& launch) const;
  Status flush_if_enough();
  Status start();
  Status launch_each();
  Status launch_graph(Sequence& sequence);
  Status build(Sequence& sequence);
  Status add_node(Sequence& sequence, const Launch& launch);
  /// Tells the graph's nodes what is gathered. False when CUDA refuses a change.
  bool renew(Sequence& sequence);
  bool renew_node(Sequence& sequence, std::size_t index);
  Sequence* find();

  cudaStream_t stream_;
  bool graphs_;
  Gathered gathered_;
  std::list<Sequence> sequences_;  ///< the most recently used first
  Status untold_;
};

}  // namespace nanscope::kernels::cuda
