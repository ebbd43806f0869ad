#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/numbers/codec.h"
#include "core/tensor/health.h"
#include "instrument/probe.h"
#include "kernels/device.h"
#include "kernels/ops/content_hash.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/health_scan.h"
#include "kernels/pack.h"
#include "scenarios/record.h"
#include "tests/bench/bench.h"
#ifdef NANSCOPE_CUDA
#include "tests/gpu/gpu_peers.h"
#endif

/// bench_gpu [DEVICE [FOLDER]]: what observing costs on a GPU, each figure against a peer or a limit measured in the
/// same run, in turns (docs/measurements-gpu.md). Medians of wall clock. On a CPU, for trying the program itself,
/// everything is small and nothing is judged. Exit 1 when a limit is missed.
namespace nanscope::scenarios {
namespace {

constexpr int kTurns = 7;

/// cuBLAS as it is found when the program runs: nothing of nanscope needs it.
class Cublas {
 public:
  Cublas() {
    const char* named = std::getenv("NANSCOPE_CUBLAS");  // NOLINT(concurrency-mt-unsafe): nobody sets it meanwhile
    for (const char* name : {named, "libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
      if (library_ == nullptr && name != nullptr) library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library_ == nullptr) return;
    const auto create = reinterpret_cast<int (*)(void**)>(dlsym(library_, "cublasCreate_v2"));
    multiply_ = reinterpret_cast<Multiply>(dlsym(library_, "cublasSgemm_v2"));
    if (create == nullptr || create(&handle_) != 0) multiply_ = nullptr;
  }
  bool there() const { return multiply_ != nullptr; }
  /// out = weight^T x of `size` x `size` each, in f32; TF32 is off unless asked for.
  void run(const void* weight, const void* x, void* out, int size) const {
    const float one = 1;
    const float zero = 0;
    if (multiply_(handle_, 1, 0, size, size, size, &one, weight, size, x, size, &zero, out, size) != 0) std::exit(2);
  }

 private:
  using Multiply = int (*)(void*, int, int, int, int, int, const float*, const void*, int, const void*, int,
                           const float*, void*, int);
  void* library_ = nullptr;
  void* handle_ = nullptr;
  Multiply multiply_ = nullptr;
};

class Bench {
 public:
  Bench(Workbench& workbench, std::string device, std::filesystem::path folder)
      : workbench_(workbench),
        device_(workbench.device()),
        name_(std::move(device)),
        folder_(std::move(folder)),
        gpu_(!device_.host_addressable()) {}

  int run() {
    fmt::print("device {} ({}); medians of {} turns\n\n", device_.info().name, device_.info().isa, kTurns);
    fmt::print("| {:<52} | {:>8} | {:>8} | {:<3} | detail\n", "measure", "value", "limit", "met");
    observers(Format::f32, 0.9);
    observers(Format::bf16, 0.85);
    observers(Format::e4m3, 0.7);
    gemm();
    few_rows();
    prefill();
    decode();
    return missed_ ? 1 : 0;
  }

 private:
  /// `least`: the value must reach the limit; else it must not exceed it. A limit of 0 judges nothing.
  void row(const std::string& what, double value, double limit, bool least, const std::string& detail) {
    const bool judged = gpu_ && limit > 0;
    const bool met = !judged || (least ? value >= limit : value <= limit);
    missed_ = missed_ || !met;
    fmt::print("| {:<52} | {:>8.2f} | {:>8} | {:<3} | {}\n", what, value,
               judged ? fmt::format("{} {:g}", least ? ">=" : "<=", limit) : "", judged ? (met ? "yes" : "NO") : "",
               detail);
    std::fflush(stdout);
  }

  void launch(const auto& args) {
    must(device_.launch(args));
    must(device_.synchronize());
  }

  /// Memory of the device with numbers from 1 to 2, as no zero or subnormal slows the scan then.
  kernels::Buffer memory(std::size_t bytes, Format format = Format::f32) {
    kernels::Buffer buffer = must(device_.allocate(bytes, true));
    const auto element = static_cast<std::size_t>(kernels::storage_size(format));
    std::vector<std::byte> from(std::size_t{4} << 20);
    for (std::size_t i = 0; i < from.size(); i += element) {
      const float value = 1.0F + static_cast<float>(i / element % 8) / 8.0F;
      const std::uint32_t code = encode(format, value, Overflow::saturate);
      std::memcpy(from.data() + i, &code, element);
    }
    for (std::size_t at = 0; at < bytes; at += from.size()) {
      const std::size_t count = std::min(from.size(), bytes - at);
      must(device_.upload(static_cast<std::byte*>(buffer.data()) + at, std::span(from).first(count)));
    }
    must(device_.synchronize());  // peers run on a stream of their own
    return buffer;
  }

  void observers(Format format, double limit) {
    const std::int64_t bytes = std::int64_t{gpu_ ? 8192 : 16} << 20;
    constexpr std::int64_t kColumns = 4096;
    const kernels::Buffer data = memory(static_cast<std::size_t>(bytes), format);
    const std::int64_t rows = bytes / kernels::storage_size(format) / kColumns;
    const kernels::TensorView view{data.data(), format, rows, kColumns, kColumns};
    const auto tiles = static_cast<std::size_t>(rows * kColumns / kTileChannels);
    const kernels::Buffer health = must(device_.allocate(tiles * sizeof(Health), true));
    const kernels::Buffer chunks =
        must(device_.allocate(static_cast<std::size_t>(kernels::hash_chunks(view)) * sizeof(std::uint64_t), true));
    kernels::HealthScanArgs scan;
    scan.x = view;
    scan.tiles = static_cast<Health*>(health.data());
    scan.chunks = static_cast<std::uint64_t*>(chunks.data());
    std::vector<double> ours;
    std::vector<double> ratios;
    for (int turn = 0; turn <= kTurns; ++turn) {
      const double plain = read(data);
      const double observed = seconds([&] { launch(scan); });
      if (turn == 0) continue;  // warms up
      ours.push_back(static_cast<double>(bytes) / observed * 1e-9);
      ratios.push_back(plain / observed);
    }
    row(fmt::format("health + hash of {} MiB {} / plain read", bytes >> 20, name(format)), median(ratios), limit, true,
        fmt::format("{:.1f} GB/s", median(ours)));
  }

  double read([[maybe_unused]] const kernels::Buffer& data) {
#ifdef NANSCOPE_CUDA
    if (gpu_) {
      const kernels::Buffer sink = must(device_.allocate(sizeof(unsigned), true));
      return seconds([&] { must(bench::plain_read(data.data(), data.bytes(), sink.data())); });
    }
#endif
    return 0;
  }

  void gemm() {
    const std::int64_t size = gpu_ ? 4096 : 128;
    const auto bytes = static_cast<std::size_t>(size * size) * sizeof(float);
    const kernels::Buffer x = memory(bytes);
    const kernels::Buffer weight = memory(bytes);
    const kernels::Buffer out = memory(bytes);
    const auto matrix = [&](const kernels::Buffer& buffer) {
      return kernels::TensorView{buffer.data(), Format::f32, size, size, size};
    };
    const kernels::GemmArgs args{matrix(x), matrix(weight), {}, {}, matrix(out)};
    const Cublas cublas;
    std::vector<double> ours;
    std::vector<double> ratios;
    for (int turn = 0; turn <= kTurns; ++turn) {
      const double time = seconds([&] { launch(args); });
      double peer = 0;
      if (gpu_ && cublas.there()) {
        peer = seconds([&] {
          cublas.run(weight.data(), x.data(), out.data(), static_cast<int>(size));
          wait();
        });
      }
      if (turn == 0) continue;
      ours.push_back(2.0 * static_cast<double>(size * size * size) / time * 1e-12);
      ratios.push_back(peer / time);
    }
    row(fmt::format("gemm f32 {0}x{0}x{0} / cuBLAS without TF32", size), median(ratios), cublas.there() ? 0.35 : 0,
        true, fmt::format("{:.2f} TFLOP/s{}", median(ours), cublas.there() ? "" : ", cuBLAS was not found"));
  }

  static void wait() {
#ifdef NANSCOPE_CUDA
    must(bench::wait_for_gpu());
#endif
  }

  /// A decode step's products, whose time is the weight's way from memory.
  void few_rows() {
    const std::int64_t size = gpu_ ? 4096 : 128;
    const std::int64_t columns = gpu_ ? 11008 : 256;
    const auto bytes = static_cast<std::size_t>(size * columns) * sizeof(float);
    const kernels::Buffer weight = memory(bytes);
    for (const std::int64_t rows : {1, 4}) {
      const kernels::Buffer x = memory(static_cast<std::size_t>(rows * size) * sizeof(float));
      const kernels::Buffer out = memory(static_cast<std::size_t>(rows * columns) * sizeof(float));
      const kernels::GemmArgs args{{x.data(), Format::f32, rows, size, size},
                                   {weight.data(), Format::f32, columns, size, size},
                                   {},
                                   {},
                                   {out.data(), Format::f32, rows, columns, columns}};
      std::vector<double> ours;
      std::vector<double> ratios;
      for (int turn = 0; turn <= kTurns; ++turn) {
        const double plain = read(weight);
        const double time = seconds([&] { launch(args); });
        if (turn == 0) continue;
        ours.push_back(static_cast<double>(bytes) / time * 1e-9);
        ratios.push_back(plain / time);
      }
      row(fmt::format("gemm f32 {}x{}x{} / plain read of the weight", rows, columns, size), median(ratios), 0, true,
          fmt::format("{:.0f} GB/s", median(ours)));
    }
  }

  /// Two layers as wide as those of a 7B Llama; on a CPU two small ones.
  RunSpec wide_layers() const {
    RunSpec spec;
    ModelConfig& model = spec.config.model;
    model.weights = "random";
    model.layers = 2;
    model.width = gpu_ ? 4096 : 128;
    model.heads = model.kv_heads = gpu_ ? 32 : 4;
    model.head_dim = gpu_ ? 128 : 32;
    model.mlp_width = gpu_ ? 11008 : 256;
    model.norm = kernels::NormKind::rms_norm;
    spec.config.device = name_;
    std::string text;
    for (int i = 0; i < (gpu_ ? 36 : 4); ++i) text += "Every evening the old keeper lights the great lamp. ";
    RequestSpec request;
    request.name = "prompt";
    request.parts.emplace_back(TextPart{text});
    request.max_tokens = 1;
    spec.requests.push_back(std::move(request));
    return spec;
  }

  void prefill() {
    const RunSpec spec = wide_layers();
    const std::filesystem::path path = folder_ / "bench_gpu.nanscope";
    RecordOptions all;
    all.path = path;
    all.output.replace = true;
    all.capture = "all";
    std::vector<double> ratios;
    std::vector<double> rates;
    double limit = 0;
    std::size_t tokens = 0;
    std::size_t bytes = 0;
    for (int turn = 0; turn <= kTurns; ++turn) {
      auto engine = must(workbench_.engine(spec.config));
      NullProbe nobody;
      const double plain = seconds([&] { must(engine->run(spec.requests, nobody)); });
      const double observed = must(record(workbench_, spec)).seconds;
      const Recorded captured = must(record(workbench_, spec, all));
      tokens = must(captured.recording.requests()).front().prompt_tokens.size();
      bytes = stored_bytes(captured.recording);
      if (turn == 0) continue;
      ratios.push_back(observed / plain);
      rates.push_back(static_cast<double>(bytes) / std::max(captured.total_seconds - plain, 1e-9));
      limit = std::max(limit, std::min(bus_rate(), disk_rate(path)));
    }
    std::filesystem::remove(path);
    row("prefill with health + hash at every op / without", median(ratios), 1.15, false,
        fmt::format("{} tokens, 2 layers {} wide", tokens, spec.config.model.width));
    row("all tensors captured / min(copy over the bus, disk)", median(rates) / limit, 0.7, true,
        fmt::format("{:.0f} MB at {:.2f} GB/s of {:.2f}", static_cast<double>(bytes) * 1e-6, median(rates) * 1e-9,
                    limit * 1e-9));
  }

  /// Steps of one token in a small model, where launches are all that takes time: started as graphs and one by one.
  void decode() {
    RunSpec spec;
    spec.config.model.weights = "random";
    spec.config.device = name_;
    RequestSpec request;
    request.name = "decode";
    request.parts.emplace_back(TextPart{"Every evening"});
    request.max_tokens = gpu_ ? 128 : 8;
    spec.requests.push_back(std::move(request));
    const auto run = [&](bool graphs, bool observed) {
      must(device_.use_graphs(graphs));
      if (observed) return must(record(workbench_, spec)).seconds;
      auto engine = must(workbench_.engine(spec.config));
      NullProbe nobody;
      return seconds([&] { must(engine->run(spec.requests, nobody)); });
    };
    for (const bool observed : {false, true}) {
      std::vector<double> ratios;
      std::vector<double> steps;
      for (int turn = 0; turn <= kTurns; ++turn) {
        const double single = run(false, observed);
        const double together = run(true, observed);
        if (turn == 0) continue;
        ratios.push_back(together / single);
        steps.push_back(together / spec.requests.front().max_tokens * 1e6);
      }
      row(observed ? "decode step with health + hash, graphs / launches" : "decode step, graphs / launches",
          median(ratios), 0, false, fmt::format("{:.0f} us a token", median(steps)));
    }
  }

  static std::size_t stored_bytes(const Recording& recording) {
    std::size_t bytes = 0;
    must(recording.for_each_tensor({}, [&](const TensorRow& row) {
      bytes += static_cast<std::size_t>(row.tokens * row.channels) * info(row.format).storage_bytes();
      return true;
    }));
    return bytes;
  }

  /// Bytes a second from the GPU to pinned memory; without a GPU the bus is no limit.
  double bus_rate() {
#ifdef NANSCOPE_CUDA
    if (gpu_) {
      const kernels::Buffer data = memory(kPiece);
      return static_cast<double>(kPiece) / must(bench::pinned_copy(data.data(), kPiece));
    }
#endif
    return 1e30;
  }

  /// Bytes a second of a plain file, until they are on the disk.
  static double disk_rate(const std::filesystem::path& beside) {
    const std::filesystem::path path = beside.string() + ".plain";
    const std::vector<char> piece(std::size_t{1} << 20, 'x');
    const double time = seconds([&] {
      const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
      for (std::size_t at = 0; at < kPiece; at += piece.size()) {
        if (::write(file, piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) std::exit(2);
      }
      if (::fdatasync(file) != 0) std::exit(2);
      ::close(file);
    });
    std::filesystem::remove(path);
    return static_cast<double>(kPiece) / time;
  }

  static constexpr std::size_t kPiece = std::size_t{256} << 20;

  Workbench& workbench_;
  kernels::Device& device_;
  std::string name_;
  std::filesystem::path folder_;
  bool gpu_;
  bool missed_ = false;
};

}  // namespace
}  // namespace nanscope::scenarios

int main(int argc, char** argv) {
  using namespace nanscope::scenarios;
  const std::string device = argc > 1 ? argv[1] : "cuda";
  const std::filesystem::path folder = argc > 2 ? argv[2] : std::filesystem::temp_directory_path();
  const auto workbench = must(Workbench::open(device, 0));
  return Bench(*workbench, device, folder).run();
}
