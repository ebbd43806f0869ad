#include "kernels/cuda/launch_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/cuda/kernel_table.h"

namespace nanscope::kernels::cuda {
namespace {

const Kernel& kernel(int op) { return kernels.ops[op]; }

unsigned blocks(std::int64_t warps) {
  return static_cast<unsigned>(std::min((warps + kWarpsPerBlock - 1) / kWarpsPerBlock, kMaxBlocks));
}

/// What a launch is told, as the runtime wants it; points into `args` and itself.
class Parameters {
 public:
  Parameters(const std::uint64_t* args, std::int64_t warps)
      : warps_(warps), pointers_{const_cast<std::uint64_t*>(args), &warps_} {}  // CUDA reads it only
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  void** pointers() { return pointers_.data(); }

 private:
  std::int64_t warps_;
  std::array<void*, 2> pointers_;
};

cudaKernelNodeParams node_of(int op, const std::uint64_t* args, std::int64_t warps, Parameters& parameters) {
  cudaKernelNodeParams node{};
  node.func = const_cast<void*>(kernel(op).form(args).function);  // CUDA reads it only
  node.gridDim = dim3(blocks(warps));
  node.blockDim = dim3(kThreadsPerBlock);
  node.kernelParams = parameters.pointers();
  return node;
}

/// "residual_add", "a copy".
std::string_view name_of(int kind) { return kind < 0 ? "a copy" : op_name(static_cast<OpId>(kind)); }

constexpr std::string_view kGraphHint = "run on device 'cuda:nograph', and please report it";

}  // namespace

Status LaunchBatch::add(OpId id, const void* args) {
  if (!untold_) return std::exchange(untold_, Status{});
  const int op = static_cast<int>(id);
  const std::int64_t warps = kernel(op).warps(args);
  if (warps <= 0) return {};
  const std::int64_t work = warps * std::max<std::int64_t>(kernel(op).work_per_warp(args), 1);
  std::memcpy(add(op, warps, kernel(op).args_bytes, work), args, kernel(op).args_bytes);
  return flush_if_enough();
}

Status LaunchBatch::add_copy(void* to, const void* from, std::size_t bytes) {
  if (!untold_) return std::exchange(untold_, Status{});
  const Copy copy{to, from, bytes};
  std::memcpy(add(kCopy, 0, sizeof(copy), static_cast<std::int64_t>(bytes / sizeof(float))), &copy, sizeof(copy));
  return flush_if_enough();
}

void* LaunchBatch::add(Kind kind, std::int64_t warps, std::size_t arg_bytes, std::int64_t work) {
  const std::size_t at = gathered_.args.size();
  const std::size_t words = (arg_bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  gathered_.args.resize(at + words);
  gathered_.launches.push_back({kind, warps, at, words});
  gathered_.work += work;
  return &gathered_.args[at];
}

Status LaunchBatch::flush_if_enough() {
  const bool enough = gathered_.work >= kBusyWork || gathered_.launches.size() == kMostOps;
  return !graphs_ || enough ? flush() : Status{};
}

LaunchBatch::Copy LaunchBatch::copy_of(const Launch& launch) const {
  Copy copy{};
  std::memcpy(&copy, &gathered_.args[launch.args], sizeof(copy));
  return copy;
}

Status LaunchBatch::flush() {
  if (!untold_) return std::exchange(untold_, Status{});
  if (gathered_.launches.empty()) return {};
  Status started = start();
  gathered_.launches.clear();
  gathered_.args.clear();
  gathered_.work = 0;
  return started;
}

void LaunchBatch::flush_later_told() {
  if (!untold_) return;
  untold_ = flush();
}

Status LaunchBatch::use_graphs(bool graphs) {
  Status flushed = flush();
  graphs_ = graphs;
  return flushed;
}

Status LaunchBatch::start() {
  if (!graphs_ || gathered_.launches.size() < kLeastOps) return launch_each();
  if (Sequence* known = find()) return launch_graph(*known);
  // Seen for the first time: most of these do not come again.
  if (sequences_.size() == kMostSequences) sequences_.pop_back();
  Sequence& sequence = sequences_.emplace_front();
  for (const Launch& launch : gathered_.launches) sequence.kinds.push_back(launch.kind);
  return launch_each();
}

LaunchBatch::Sequence* LaunchBatch::find() {
  const auto same = [](const Launch& launch, Kind kind) { return launch.kind == kind; };
  const auto found = std::find_if(sequences_.begin(), sequences_.end(), [&](const Sequence& sequence) {
    return std::equal(gathered_.launches.begin(), gathered_.launches.end(), sequence.kinds.begin(),
                      sequence.kinds.end(), same);
  });
  if (found == sequences_.end()) return nullptr;
  sequences_.splice(sequences_.begin(), sequences_, found);
  return &sequences_.front();
}

Status LaunchBatch::launch_each() {
  for (const Launch& launch : gathered_.launches) {
    cudaError_t error = cudaSuccess;
    if (launch.kind == kCopy) {
      const Copy copy = copy_of(launch);
      error = cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDeviceToDevice, stream_);
    } else {
      const std::uint64_t* args = &gathered_.args[launch.args];
      Parameters parameters(args, launch.warps);
      error = cudaLaunchKernel(kernel(launch.kind).form(args).function, dim3(blocks(launch.warps)),
                               dim3(kThreadsPerBlock), parameters.pointers(), 0, stream_);
    }
    const auto what = [&] { return fmt::format("launching {}", name_of(launch.kind)); };
    Status launched = checked(error, what, kFaultHint);
    if (!launched) return launched;
  }
  return {};
}

Status LaunchBatch::launch_graph(Sequence& sequence) {
  if (sequence.exec && !renew(sequence)) {
    // Some of its nodes may be changed, others not. What CUDA does not change it may still make anew; where the GPU
    // itself is in trouble, that fails too, and is told.
    cudaGetLastError();
    sequence.exec.reset();
  }
  if (!sequence.exec) {
    if (Status built = build(sequence); !built) return built;
  }
  std::swap(sequence.last, gathered_);
  const auto what = [&] {
    return fmt::format("launching a graph of {} ops, {} the first", sequence.kinds.size(),
                       name_of(sequence.kinds.front()));
  };
  return checked(cudaGraphLaunch(sequence.exec.get(), stream_), what, kFaultHint);
}

Status LaunchBatch::build(Sequence& sequence) {
  cudaGraph_t graph = nullptr;
  if (Status made = checked(cudaGraphCreate(&graph, 0), "making a graph", kGraphHint); !made) return made;
  sequence.graph.reset(graph);
  sequence.nodes.clear();
  for (const Launch& launch : gathered_.launches) {
    if (Status added = add_node(sequence, launch); !added) return added;
  }
  cudaGraphExec_t exec = nullptr;
  if (Status made = checked(cudaGraphInstantiate(&exec, graph, 0), "preparing a graph", kGraphHint); !made) return made;
  sequence.exec.reset(exec);
  return {};
}

Status LaunchBatch::add_node(Sequence& sequence, const Launch& launch) {
  const cudaGraphNode_t* before = sequence.nodes.empty() ? nullptr : &sequence.nodes.back();
  const std::size_t count = before == nullptr ? 0 : 1;
  cudaGraphNode_t node = nullptr;
  cudaError_t error = cudaSuccess;
  if (launch.kind == kCopy) {
    const Copy copy = copy_of(launch);
    error = cudaGraphAddMemcpyNode1D(&node, sequence.graph.get(), before, count, copy.to, copy.from, copy.bytes,
                                     cudaMemcpyDeviceToDevice);
  } else {
    const std::uint64_t* args = &gathered_.args[launch.args];
    Parameters parameters(args, launch.warps);
    const cudaKernelNodeParams params = node_of(launch.kind, args, launch.warps, parameters);
    error = cudaGraphAddKernelNode(&node, sequence.graph.get(), before, count, &params);
  }
  sequence.nodes.push_back(node);
  return checked(
      error, [&] { return fmt::format("adding {} to a graph", name_of(launch.kind)); }, kGraphHint);
}

bool LaunchBatch::renew(Sequence& sequence) {
  for (std::size_t i = 0; i < gathered_.launches.size(); ++i) {
    const Launch& now = gathered_.launches[i];
    const Launch& before = sequence.last.launches[i];
    const bool same =
        now.warps == before.warps && std::equal(&gathered_.args[now.args], &gathered_.args[now.args] + now.arg_words,
                                                &sequence.last.args[before.args]);
    if (!same && !renew_node(sequence, i)) return false;
  }
  return true;
}

bool LaunchBatch::renew_node(Sequence& sequence, std::size_t index) {
  const Launch& launch = gathered_.launches[index];
  if (launch.kind == kCopy) {
    const Copy copy = copy_of(launch);
    return cudaGraphExecMemcpyNodeSetParams1D(sequence.exec.get(), sequence.nodes[index], copy.to, copy.from,
                                              copy.bytes, cudaMemcpyDeviceToDevice) == cudaSuccess;
  }
  const std::uint64_t* args = &gathered_.args[launch.args];
  Parameters parameters(args, launch.warps);
  const cudaKernelNodeParams params = node_of(launch.kind, args, launch.warps, parameters);
  return cudaGraphExecKernelNodeSetParams(sequence.exec.get(), sequence.nodes[index], &params) == cudaSuccess;
}

}  // namespace nanscope::kernels::cuda
