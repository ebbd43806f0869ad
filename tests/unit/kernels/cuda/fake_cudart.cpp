#include "tests/unit/kernels/cuda/fake_cudart.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "kernels/cuda/kernel_table.h"

namespace nanscope::fake_cuda {
namespace {

constexpr std::size_t kRegion = std::size_t{1} << 30;

struct Task {
  std::function<void()> run;
  std::shared_ptr<Task> after;   ///< of another stream
  const void* pinned = nullptr;  ///< what it copies from or to
  bool done = false;
};
using TaskPtr = std::shared_ptr<Task>;

struct FakeStream {
  std::deque<TaskPtr> queue;
};
struct FakeEvent {
  TaskPtr last;
  FakeStream* stream = nullptr;
};

/// A kernel with its arguments, or a copy, as a stream or a graph's node holds it.
struct Launch {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;  ///< 0: a kernel
  const void* function = nullptr;
  std::vector<std::uint64_t> args;
  std::int64_t warps = 0;
};
struct FakeNode {
  Launch launch;
};
struct FakeGraph {
  std::vector<std::unique_ptr<FakeNode>> nodes;
};
struct FakeExec {
  std::vector<std::pair<const FakeNode*, Launch>> nodes;
};

struct Machine {
  Schedule schedule = Schedule::late;
  std::mt19937_64 random;
  std::map<std::string, int> calls;
  struct Failure {
    cudaError_t error;
    int after;
  };
  std::map<std::string, Failure> failures;
  std::function<void(kernels::OpId)> told;
  std::vector<std::string> problems;
  std::set<FakeStream*> streams;
  std::map<TaskPtr, FakeStream*> home;  ///< of tasks that wait
  std::byte* region = nullptr;
  int access = PROT_NONE;
  std::map<std::size_t, std::size_t> device;  ///< offset to size
  std::map<const std::byte*, std::size_t> pinned;
  cudaError_t last = cudaSuccess;
};

Machine& machine() {
  static Machine instance;
  return instance;
}

void problem(const std::string& text) { machine().problems.push_back(text); }

/// Only late: opening and closing memory for every task of a random schedule takes most of a test's time.
void protect(int access) {
  if (machine().schedule != Schedule::late) access = PROT_READ | PROT_WRITE;
  if (access == machine().access) return;
  machine().access = access;
  if (machine().region != nullptr && ::mprotect(machine().region, kRegion, access) != 0) std::abort();
}

bool on_device(const void* p) {
  const auto* address = static_cast<const std::byte*>(p);
  return machine().region != nullptr && address >= machine().region && address < machine().region + kRegion;
}
bool is_pinned(const void* p, std::size_t bytes) {
  const auto* address = static_cast<const std::byte*>(p);
  auto next = machine().pinned.upper_bound(address);
  if (next == machine().pinned.begin()) return false;
  --next;
  return address + bytes <= next->first + next->second;
}

/// Runs the stream up to the task, and first what it waits for elsewhere. Device memory is open meanwhile.
void run_through(TaskPtr task) {  // a copy: the queue that it is taken from forgets it
  while (!task->done) {
    FakeStream* stream = machine().home.at(task);
    const TaskPtr front = stream->queue.front();
    if (front->after) run_through(front->after);
    stream->queue.pop_front();
    machine().home.erase(front);
    front->run();
    front->done = true;
  }
}

void run_until(TaskPtr task) {
  if (task == nullptr || task->done) return;
  protect(PROT_READ | PROT_WRITE);
  run_through(task);
  protect(PROT_NONE);
}

void run_all() {
  for (FakeStream* stream : machine().streams) {
    if (!stream->queue.empty()) run_until(stream->queue.back());
  }
}

/// Lets some stream get on with its next task.
void maybe_run_something() {
  if (machine().schedule != Schedule::random || machine().streams.empty() || machine().random() % 2 == 0) return;
  auto stream = machine().streams.begin();
  std::advance(stream, static_cast<std::ptrdiff_t>(machine().random() % machine().streams.size()));
  if (!(*stream)->queue.empty()) run_until((*stream)->queue.front());
}

TaskPtr enqueue(cudaStream_t handle, std::function<void()> run, TaskPtr after = nullptr, const void* pinned = nullptr) {
  auto* stream = reinterpret_cast<FakeStream*>(handle);
  auto task = std::make_shared<Task>(Task{std::move(run), std::move(after), pinned});
  stream->queue.push_back(task);
  machine().home[task] = stream;
  if (machine().schedule == Schedule::eager) run_until(task);
  return task;
}

cudaError_t begin(const std::string& call) {
  ++machine().calls[call];
  maybe_run_something();
  const auto failure = machine().failures.find(call);
  if (failure == machine().failures.end() || failure->second.after-- > 0) return cudaSuccess;
  machine().last = failure->second.error;
  machine().failures.erase(failure);
  return machine().last;
}

/// Whether it is one of the op's two kernels.
bool is_of(const kernels::cuda::Kernel& kernel, const void* function) {
  const auto* first = static_cast<const char*>(kernel.form(nullptr).function);
  return function == first || function == first + 1;
}

int op_of(const void* function) {
  for (int id = 0; id < kernels::kOpCount; ++id) {
    if (is_of(kernels::cuda::kernels.ops[id], function)) return id;
  }
  std::abort();
}

void run_launch(const Launch& launch) {
  if (launch.bytes > 0) {
    std::memmove(launch.to, launch.from, launch.bytes);
  } else {
    const int op = op_of(launch.function);
    if (kernels::cuda::kernels.ops[op].form(launch.args.data()).function != launch.function) {
      problem("a kernel that is not the one of its arguments");
    }
    kernels::NANSCOPE_FAKE_LANES::op_table.ops[op]->run_range(launch.args.data(), 0, launch.warps);
  }
}

Launch copy_of(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyDeviceToDevice || !on_device(to) || !on_device(from) || bytes == 0) {
    problem("a copy in a graph that is none");
  }
  Launch launch;
  launch.to = to;
  launch.from = from;
  launch.bytes = bytes;
  return launch;
}

Launch launch_of(const void* function, dim3 grid, dim3 block, void** parameters) {
  Launch launch;
  launch.function = function;
  for (const kernels::cuda::Kernel& kernel : kernels::cuda::kernels.ops) {
    if (!is_of(kernel, function)) continue;
    launch.args.resize((kernel.args_bytes + 7) / 8);
    std::memcpy(launch.args.data(), parameters[0], kernel.args_bytes);
    std::memcpy(&launch.warps, parameters[1], sizeof(launch.warps));
    const auto blocks = std::min<std::int64_t>((launch.warps + 3) / 4, 65535);
    if (grid.x != blocks || grid.y != 1 || grid.z != 1 || block.x != 128) problem("a grid that does not fit the warps");
    return launch;
  }
  problem("a kernel that does not exist");
  return launch;
}

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool reads_host = kind == cudaMemcpyHostToDevice;
  const bool writes_host = kind == cudaMemcpyDeviceToHost;
  if (reads_host && !is_pinned(from, bytes)) problem("an upload from pageable memory");
  if (writes_host && !is_pinned(to, bytes)) problem("a download to pageable memory");
  if (on_device(to) == writes_host || on_device(from) == reads_host) problem("a copy whose kind is wrong");
  if (writes_host) std::memset(to, 0xa5, bytes);
  const void* pinned = writes_host ? to : reads_host ? from : nullptr;
  enqueue(
      stream, [=] { std::memmove(to, from, bytes); }, nullptr, pinned);
}

cudaGraphNode_t add_node(cudaGraph_t handle, const cudaGraphNode_t* after, std::size_t count, Launch launch) {
  auto* graph = reinterpret_cast<FakeGraph*>(handle);
  const bool in_order = graph->nodes.empty()
                            ? count == 0
                            : count == 1 && *after == reinterpret_cast<cudaGraphNode_t>(graph->nodes.back().get());
  if (!in_order) problem("a node that does not wait for the one before it");
  graph->nodes.push_back(std::make_unique<FakeNode>(FakeNode{std::move(launch)}));
  return reinterpret_cast<cudaGraphNode_t>(graph->nodes.back().get());
}

cudaError_t change_node(cudaGraphExec_t exec, cudaGraphNode_t node, Launch now) {
  for (auto& [key, launch] : reinterpret_cast<FakeExec*>(exec)->nodes) {
    if (key != reinterpret_cast<const FakeNode*>(node)) continue;
    const bool copies = now.function == nullptr && launch.function == nullptr;
    if (!copies && op_of(now.function) != op_of(launch.function)) problem("a node became another");
    launch = std::move(now);
    return cudaSuccess;
  }
  problem("a node of another graph");
  return cudaErrorInvalidValue;
}

}  // namespace

void reset(Schedule schedule, std::uint64_t seed) {
  run_all();
  machine().schedule = schedule;
  protect(PROT_NONE);
  machine().random.seed(seed);
  machine().calls.clear();
  machine().failures.clear();
  machine().told = nullptr;
  machine().problems.clear();
  machine().last = cudaSuccess;
}
void fail_next(const std::string& call, cudaError_t error, int after) { machine().failures[call] = {error, after}; }
void on_launch(std::function<void(kernels::OpId)> told) { machine().told = std::move(told); }
int calls(const std::string& call) { return machine().calls[call]; }
const std::vector<std::string>& problems() { return machine().problems; }
std::size_t pending() { return machine().home.size(); }
std::size_t allocations() { return machine().device.size() + machine().pinned.size(); }

}  // namespace nanscope::fake_cuda

using namespace nanscope::fake_cuda;

// Definitions of CUDA's own functions: their names and parameters are given.
extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return begin("cudaGetDeviceCount");
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memcpy(properties->name, "fake", sizeof("fake"));
  properties->major = 9;
  properties->multiProcessorCount = 1;
  return begin("cudaGetDeviceProperties");
}
cudaError_t cudaSetDevice(int) { return begin("cudaSetDevice"); }
cudaError_t cudaGetLastError() { return std::exchange(machine().last, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "fake trouble"; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorIllegalAddress";
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (const cudaError_t error = begin("cudaMalloc"); error != cudaSuccess) return error;
  if (machine().region == nullptr) {
    void* region = ::mmap(nullptr, kRegion, machine().access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) std::abort();
    // In large pages it is opened and closed at once, not page by page: most of the time of a test that runs late.
    ::madvise(region, kRegion, MADV_HUGEPAGE);
    machine().region = static_cast<std::byte*>(region);
  }
  const std::size_t wanted = (bytes + 511) / 512 * 512;
  std::size_t at = 0;
  for (const auto& [offset, size] : machine().device) {
    if (offset - at >= wanted) break;
    at = offset + size;
  }
  if (at + wanted > kRegion) return cudaErrorMemoryAllocation;
  machine().device[at] = wanted;
  *memory = machine().region + at;
  protect(PROT_READ | PROT_WRITE);
  std::memset(*memory, 0xff, wanted);
  protect(PROT_NONE);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  run_all();
  const auto found =
      machine().device.find(static_cast<std::size_t>(static_cast<std::byte*>(memory) - machine().region));
  if (found == machine().device.end()) {
    problem("memory freed twice");
    return begin("cudaFree");
  }
  protect(PROT_READ | PROT_WRITE);
  std::memset(memory, 0xff, found->second);
  protect(PROT_NONE);
  machine().device.erase(found);
  return begin("cudaFree");
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  if (const cudaError_t error = begin("cudaMallocHost"); error != cudaSuccess) return error;
  *memory = std::malloc(bytes);
  machine().pinned[static_cast<std::byte*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  const auto found = machine().pinned.find(static_cast<std::byte*>(memory));
  if (found == machine().pinned.end()) {
    problem("pinned memory freed twice");
    return begin("cudaFreeHost");
  }
  for (const auto& [task, stream] : machine().home) {
    const auto* copied = static_cast<const std::byte*>(task->pinned);
    if (copied >= found->first && copied < found->first + found->second) problem("pinned memory freed under a copy");
  }
  machine().pinned.erase(found);
  std::free(memory);
  return begin("cudaFreeHost");
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t error = begin("cudaStreamCreateWithFlags"); error != cudaSuccess) return error;
  auto* made = new FakeStream;
  machine().streams.insert(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  auto* gone = reinterpret_cast<FakeStream*>(stream);
  if (!gone->queue.empty()) problem("a stream was destroyed that had work");
  machine().streams.erase(gone);
  delete gone;
  return begin("cudaStreamDestroy");
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  auto* waited = reinterpret_cast<FakeStream*>(stream);
  if (!waited->queue.empty()) run_until(waited->queue.back());
  return begin("cudaStreamSynchronize");
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t error = begin("cudaStreamWaitEvent"); error != cudaSuccess) return error;
  enqueue(
      stream, [] {}, reinterpret_cast<FakeEvent*>(event)->last);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (const cudaError_t error = begin("cudaEventCreateWithFlags"); error != cudaSuccess) return error;
  *event = reinterpret_cast<cudaEvent_t>(new FakeEvent);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<FakeEvent*>(event);
  return begin("cudaEventDestroy");
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = begin("cudaEventRecord"); error != cudaSuccess) return error;
  reinterpret_cast<FakeEvent*>(event)->last = enqueue(stream, [] {});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  run_until(reinterpret_cast<FakeEvent*>(event)->last);
  return begin("cudaEventSynchronize");
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t error = begin("cudaMemcpyAsync"); error != cudaSuccess) return error;
  copy(to, from, bytes, kind, stream);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t error = begin("cudaMemcpy2DAsync"); error != cudaSuccess) return error;
  if (kind != cudaMemcpyDeviceToDevice || width > to_pitch || width > from_pitch) problem("a 2D copy that is none");
  enqueue(stream, [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch,
                  width);
    }
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = begin("cudaMemsetAsync"); error != cudaSuccess) return error;
  enqueue(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** parameters, std::size_t,
                             cudaStream_t stream) {
  if (const cudaError_t error = begin("cudaLaunchKernel"); error != cudaSuccess) return error;
  if (machine().told) machine().told(static_cast<nanscope::kernels::OpId>(op_of(function)));
  enqueue(stream, [launch = launch_of(function, grid, block, parameters)] { run_launch(launch); });
  return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  if (const cudaError_t error = begin("cudaGraphCreate"); error != cudaSuccess) return error;
  *graph = reinterpret_cast<cudaGraph_t>(new FakeGraph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<FakeGraph*>(graph);
  return begin("cudaGraphDestroy");
}
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   std::size_t count, const cudaKernelNodeParams* params) {
  if (const cudaError_t error = begin("cudaGraphAddKernelNode"); error != cudaSuccess) return error;
  *node =
      add_node(graph, after, count, launch_of(params->func, params->gridDim, params->blockDim, params->kernelParams));
  return cudaSuccess;
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                     std::size_t count, void* to, const void* from, std::size_t bytes,
                                     cudaMemcpyKind kind) {
  if (const cudaError_t error = begin("cudaGraphAddMemcpyNode1D"); error != cudaSuccess) return error;
  *node = add_node(graph, after, count, copy_of(to, from, bytes, kind));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {  // NOLINT: CUDA's type
  if (const cudaError_t error = begin("cudaGraphInstantiate"); error != cudaSuccess) return error;
  auto* made = new FakeExec;
  for (const auto& node : reinterpret_cast<FakeGraph*>(graph)->nodes)
    made->nodes.emplace_back(node.get(), node->launch);
  *exec = reinterpret_cast<cudaGraphExec_t>(made);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete reinterpret_cast<FakeExec*>(exec);
  return begin("cudaGraphExecDestroy");
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* params) {
  if (const cudaError_t error = begin("cudaGraphExecKernelNodeSetParams"); error != cudaSuccess) return error;
  return change_node(exec, node, launch_of(params->func, params->gridDim, params->blockDim, params->kernelParams));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* to, const void* from,
                                               std::size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = begin("cudaGraphExecMemcpyNodeSetParams1D"); error != cudaSuccess) return error;
  return change_node(exec, node, copy_of(to, from, bytes, kind));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (const cudaError_t error = begin("cudaGraphLaunch"); error != cudaSuccess) return error;
  for (const auto& node : reinterpret_cast<FakeExec*>(exec)->nodes) {
    enqueue(stream, [launch = node.second] { run_launch(launch); });
  }
  return cudaSuccess;
}

}  // extern "C"
