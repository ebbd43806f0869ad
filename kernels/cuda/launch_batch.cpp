#include "kernels/cuda/launch_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/cuda/kernel_table.h"

namespace nanscope::kernels::cuda {
namespace {

const Kernel& kernel(OpId id) { return kernels.ops[static_cast<int>(id)]; }

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

cudaKernelNodeParams node_of(OpId id, std::int64_t warps, Parameters& parameters) {
  cudaKernelNodeParams node{};
  node.func = const_cast<void*>(kernel(id).function);  // CUDA reads it only
  node.gridDim = dim3(blocks(warps));
  node.blockDim = dim3(kThreadsPerBlock);
  node.kernelParams = parameters.pointers();
  return node;
}

std::string launching(OpId id) { return fmt::format("launching {}", op_name(id)); }
constexpr std::string_view kGraphHint = "run on device 'cuda:nograph', and please report it";

}  // namespace

Status LaunchBatch::add(OpId id, const void* args) {
  if (!untold_) return std::exchange(untold_, Status{});
  const Kernel& op = kernel(id);
  const std::int64_t warps = op.warps(args);
  if (warps <= 0) return {};
  const std::size_t at = gathered_.args.size();
  gathered_.args.resize(at + (op.args_bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
  std::memcpy(&gathered_.args[at], args, op.args_bytes);
  gathered_.launches.push_back({id, warps, at});
  gathered_.work += warps * std::max<std::int64_t>(op.work_per_warp(args), 1);
  const bool enough = gathered_.work >= kBusyWork || gathered_.launches.size() == kMostOps;
  return !graphs_ || enough ? flush() : Status{};
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
  for (const Launch& launch : gathered_.launches) sequence.ops.push_back(launch.id);
  return launch_each();
}

LaunchBatch::Sequence* LaunchBatch::find() {
  const auto same = [](const Launch& launch, OpId id) { return launch.id == id; };
  const auto found = std::find_if(sequences_.begin(), sequences_.end(), [&](const Sequence& sequence) {
    return std::equal(gathered_.launches.begin(), gathered_.launches.end(), sequence.ops.begin(), sequence.ops.end(),
                      same);
  });
  if (found == sequences_.end()) return nullptr;
  sequences_.splice(sequences_.begin(), sequences_, found);
  return &sequences_.front();
}

Status LaunchBatch::launch_each() {
  for (const Launch& launch : gathered_.launches) {
    Parameters parameters(&gathered_.args[launch.args], launch.warps);
    const Status launched = checked(cudaLaunchKernel(kernel(launch.id).function, dim3(blocks(launch.warps)),
                                                     dim3(kThreadsPerBlock), parameters.pointers(), 0, stream_),
                                    launching(launch.id), kFaultHint);
    if (!launched) return launched;
  }
  return {};
}

Status LaunchBatch::launch_graph(Sequence& sequence) {
  if (Status told = sequence.exec ? renew(sequence) : build(sequence); !told) return told;
  std::swap(sequence.last, gathered_);
  const OpId first = sequence.ops.front();
  return checked(cudaGraphLaunch(sequence.exec.get(), stream_),
                 fmt::format("launching a graph of {} ops, {} the first", sequence.ops.size(), op_name(first)),
                 kFaultHint);
}

Status LaunchBatch::build(Sequence& sequence) {
  cudaGraph_t graph = nullptr;
  if (Status made = checked(cudaGraphCreate(&graph, 0), "making a graph", kGraphHint); !made) return made;
  sequence.graph.reset(graph);
  sequence.nodes.clear();
  for (const Launch& launch : gathered_.launches) {
    Parameters parameters(&gathered_.args[launch.args], launch.warps);
    const cudaKernelNodeParams params = node_of(launch.id, launch.warps, parameters);
    const cudaGraphNode_t* before = sequence.nodes.empty() ? nullptr : &sequence.nodes.back();
    cudaGraphNode_t node = nullptr;
    const Status added = checked(cudaGraphAddKernelNode(&node, graph, before, before == nullptr ? 0 : 1, &params),
                                 fmt::format("adding {} to a graph", op_name(launch.id)), kGraphHint);
    if (!added) return added;
    sequence.nodes.push_back(node);
  }
  cudaGraphExec_t exec = nullptr;
  const Status made = checked(cudaGraphInstantiate(&exec, graph, 0), "preparing a graph", kGraphHint);
  sequence.exec.reset(exec);
  return made;
}

Status LaunchBatch::renew(Sequence& sequence) {
  for (std::size_t i = 0; i < gathered_.launches.size(); ++i) {
    const Launch& now = gathered_.launches[i];
    const Launch& before = sequence.last.launches[i];
    const std::size_t bytes = kernel(now.id).args_bytes;
    const bool same = now.warps == before.warps &&
                      std::memcmp(&gathered_.args[now.args], &sequence.last.args[before.args], bytes) == 0;
    if (same) continue;
    Parameters parameters(&gathered_.args[now.args], now.warps);
    const cudaKernelNodeParams params = node_of(now.id, now.warps, parameters);
    const Status told = checked(cudaGraphExecKernelNodeSetParams(sequence.exec.get(), sequence.nodes[i], &params),
                                fmt::format("changing {} in a graph", op_name(now.id)), kGraphHint);
    if (!told) return told;
  }
  return {};
}

}  // namespace nanscope::kernels::cuda
