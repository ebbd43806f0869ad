#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/recording/writer.h"
#include "core/tensor/pyramid.h"
#include "instrument/recorder/recorder_probe.h"
#include "kernels/device.h"
#include "kernels/ops/content_hash.h"
#include "kernels/ops/health_scan.h"
#include "tests/bench/bench.h"

/// bench_observing [FOLDER]: what the host pays to record a GPU's run, without a GPU: a device that takes no time puts
/// health and hashes that were made before where a GPU would, and the recorder takes them from there. Of the prefill of
/// bench_gpu (540 tokens, two layers as wide as a 7B Llama's: 266,000 tiles) and of decode steps of the same layers.
/// The thread that launches must not be held; for what others do, a long run has to wait. Medians of turns, by the
/// clock and of the time that threads ran (docs/measurements-gpu.md).
namespace nanscope {
namespace {

constexpr int kTurns = 9;

double cpu_seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// One tensor as an op of a layer leaves it.
struct Output {
  const char* op;
  const char* kind;
  const char* role;
  std::int64_t channels;
  bool masked = false;  ///< minus infinities and zeros among the numbers, as behind a mask
};

constexpr std::int64_t kWidth = 4096;
constexpr std::int64_t kScores = 544 * 32;
constexpr Output kLayer[] = {
    {"attn_norm", "layer_norm", "out", kWidth},
    {"q_proj", "gemm", "out", kWidth},
    {"k_proj", "gemm", "out", kWidth},
    {"v_proj", "gemm", "out", kWidth},
    {"q_rope", "rope", "out", kWidth},
    {"k_rope", "rope", "out", kWidth},
    {"k_read", "kv_read", "k_read", kWidth},
    {"v_read", "kv_read", "v_read", kWidth},
    {"scores", "attention_scores", "out", kScores, true},
    {"softmax", "softmax", "probs", kScores, true},
    {"attn_mix", "attention_mix", "out", kWidth},
    {"o_proj", "gemm", "out", kWidth},
    {"attn_residual", "residual_add", "out", kWidth},
    {"mlp_norm", "layer_norm", "out", kWidth},
    {"gate_proj", "gemm", "out", 11008},
    {"up_proj", "gemm", "out", 11008},
    {"mlp_act", "activation", "out", 11008},
    {"down_proj", "gemm", "out", kWidth},
    {"mlp_residual", "residual_add", "out", kWidth},
};

/// A GPU that takes no time: its memory is the host's, though nobody may look there, and a scan of health puts tiles
/// that were made before where it is told. What it does itself is not counted.
class NoTimeGpu final : public kernels::Device {
 public:
  /// Seconds since the last call that were spent here, which a GPU would do.
  double take_seconds() { return std::exchange(seconds_, 0); }
  double take_cpu() { return std::exchange(cpu_, 0); }
  bool masked = false;  ///< what the next scan finds
  /// Host memory that was asked for and not there: a GPU's host would have pinned it.
  std::size_t pinned() const { return pinned_->made; }

  const kernels::DeviceInfo& info() const override { return info_; }
  bool host_addressable() const override { return false; }
  Result<kernels::Buffer> allocate(std::size_t bytes, bool) override {
    const Timed timed(*this);
    return kernels::Buffer(memory_->take(bytes, memory_), bytes);
  }
  Result<kernels::Buffer> allocate_host(std::size_t bytes) override {
    const Timed timed(*this);
    return kernels::Buffer(pinned_->take(bytes, pinned_), bytes);
  }
  Status upload(void*, std::span<const std::byte>) override { return {}; }
  Status download(std::span<std::byte>, const void*) override { return {}; }
  Status copy(void* to, const void* from, std::size_t bytes) override {
    const Timed timed(*this);
    std::memcpy(to, from, bytes);
    return {};
  }
  Status gather(void* to, const void* from, const kernels::Rows& rows) override { return copy(to, from, rows.bytes()); }
  Result<kernels::Transfer> start_download(std::span<std::byte> host, const void* device) override {
    const Timed timed(*this);
    std::memcpy(host.data(), device, host.size());
    return kernels::Transfer();
  }
  Status wait(const kernels::Transfer&) override { return {}; }
  Status synchronize() override { return {}; }
  Status launch_raw(kernels::OpId id, const void* args) override {
    if (id != kernels::OpOf<kernels::HealthScanArgs>::id) return fail("only health is scanned here");
    const Timed timed(*this);
    const auto& scan = *static_cast<const kernels::HealthScanArgs*>(args);
    const std::int64_t columns = (scan.x.columns + kTileChannels - 1) / kTileChannels;
    for (std::int64_t tile = 0; tile < scan.x.rows * columns; ++tile) {
      const std::int64_t first = tile % columns * kTileChannels;
      scan.tiles[tile] = health(static_cast<std::uint64_t>(std::min(kTileChannels, scan.x.columns - first)));
    }
    const auto chunks = static_cast<std::uint64_t>(kernels::hash_chunks(scan.x));
    for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) scan.chunks[chunk] = chunk * 0x9e3779b97f4a7c15U;
    return {};
  }

 private:
  class Timed {
   public:
    explicit Timed(NoTimeGpu& gpu) : gpu_(gpu) {}
    ~Timed() {
      gpu_.seconds_ += seconds_since(begin_);
      gpu_.cpu_ += cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_begin_;
    }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

   private:
    NoTimeGpu& gpu_;
    double cpu_begin_ = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    Clock::time_point begin_ = Clock::now();
  };

  /// Blocks that were freed wait for the next who wants half as much or more, as pinned memory does.
  struct Pool {
    struct Block {
      std::size_t bytes = 0;
      std::unique_ptr<std::byte[]> memory;
    };
    std::mutex mutex;
    std::vector<Block> waiting;
    std::size_t made = 0;

    std::shared_ptr<void> take(std::size_t bytes, const std::shared_ptr<Pool>& self) {
      const std::scoped_lock lock(mutex);
      auto best = waiting.end();
      for (auto block = waiting.begin(); block != waiting.end(); ++block) {
        const bool fits = block->bytes >= bytes && block->bytes / 2 <= bytes;
        if (fits && (best == waiting.end() || block->bytes < best->bytes)) best = block;
      }
      auto block = std::make_shared<Block>();
      if (best == waiting.end()) {
        *block = {bytes, std::make_unique<std::byte[]>(bytes)};
        made += bytes;
      } else {
        *block = std::move(*best);
        waiting.erase(best);
      }
      return {block->memory.get(), [self, block](void*) {
                const std::scoped_lock back(self->mutex);
                self->waiting.push_back(std::move(*block));
              }};
    }
  };

  Health health(std::uint64_t count) const {
    Health health = empty_health();
    health.count = count;
    health.sum = 1.25;
    health.sum_sq = 3.5;
    health.min = -1.5F;
    health.max = 1.0F;
    health.absmax = 1.5F;
    if (masked) health.zero = count / 2;
    return health;
  }

  kernels::DeviceInfo info_{"a GPU that takes no time", "none", "", "", 1};
  std::shared_ptr<Pool> memory_ = std::make_shared<Pool>();
  std::shared_ptr<Pool> pinned_ = std::make_shared<Pool>();
  double seconds_ = 0;
  double cpu_ = 0;
};

struct Shape {
  std::int64_t tokens = 0;
  std::int64_t steps = 0;
  std::int64_t layers = 0;
  std::string_view capture = "none";
  bool to_file = false;
};

struct Cost {
  double held = 0;      ///< seconds of the launching thread in the recorder, by the clock
  double held_cpu = 0;  ///< the same while it was running
  double others = 0;    ///< seconds in which other threads were running
  double total = 0;     ///< until the recording is closed, without the device's own
};

class Bench {
 public:
  explicit Bench(std::filesystem::path folder) : path_(folder / "bench_observing.nanscope") {
    elements_ = must(gpu_.allocate(static_cast<std::size_t>(kTokens * kScores) * sizeof(float), false));
    std::memset(elements_.data(), 0, elements_.bytes());
  }

  void run() {
    fmt::print("| {:<36} | {:>9} | {:>9} | {:>9} | {:>9} | {:>9} | {:>9} | {:>9} |\n", "", "held, ms", "CPU, ms",
               "ns a tile", "ns an op", "others", "ns a tile", "all, ms");
    measure("prefill, in memory", {.tokens = kTokens, .steps = 1, .layers = 2});
    measure("prefill of 8 layers, in memory", {.tokens = kTokens, .steps = 1, .layers = 8});
    measure("prefill, to a file", {.tokens = kTokens, .steps = 1, .layers = 2, .to_file = true});
    measure("prefill with all elements, to a file",
            {.tokens = kTokens, .steps = 1, .layers = 2, .capture = "all", .to_file = true});
    measure("64 decode steps, in memory", {.tokens = 1, .steps = 64, .layers = 2});
    fmt::print("all elements / a plain file of as many bytes, in turns: {:.2f} of its rate\n", median(ratios_));
    fmt::print("host memory that was pinned: {} MiB\n", gpu_.pinned() >> 20);
  }

 private:
  static constexpr std::int64_t kTokens = 540;

  void measure(const char* what, const Shape& shape) {
    std::vector<Cost> costs;
    for (int turn = 0; turn <= kTurns; ++turn) {
      const Cost cost = record(shape);
      if (turn == 0) continue;  // warms up
      costs.push_back(cost);
      if (shape.capture == "all") ratios_.push_back(plain_file(elements(shape)) / cost.total);
    }
    const auto middle = [&](double Cost::*part) {
      std::vector<double> values;
      for (const Cost& cost : costs) values.push_back(cost.*part);
      return median(values);
    };
    const double held = middle(&Cost::held_cpu);
    const double others = middle(&Cost::others);
    const double a_tile = 1e9 / static_cast<double>(tiles(shape));
    fmt::print("| {:<36} | {:>9.2f} | {:>9.2f} | {:>9.1f} | {:>9.0f} | {:>9.2f} | {:>9.1f} | {:>9.2f} |\n", what,
               middle(&Cost::held) * 1e3, held * 1e3, held * a_tile, held * 1e9 / static_cast<double>(ops(shape)),
               others * 1e3, others * a_tile, middle(&Cost::total) * 1e3);
    std::fflush(stdout);
  }

  /// Seconds to write as much as `bytes` to a plain file.
  double plain_file(std::int64_t bytes) const {
    const std::filesystem::path path = path_.string() + ".plain";
    const double taken = seconds([&] {
      const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
      const auto* from = static_cast<const char*>(elements_.data());
      constexpr std::int64_t kPiece = std::int64_t{1} << 20;
      for (std::int64_t at = 0; at < bytes; at += kPiece) {
        if (::write(file, from + at % (kTokens * kScores), kPiece) != kPiece) must(Status(fail("cannot write")));
      }
      ::close(file);
    });
    std::filesystem::remove(path);
    return taken;
  }

  static std::int64_t elements(const Shape& shape) {
    std::int64_t channels = 0;
    for (const Output& output : kLayer) channels += output.channels;
    return shape.steps * shape.layers * shape.tokens * channels * static_cast<std::int64_t>(sizeof(float));
  }
  static std::int64_t ops(const Shape& shape) {
    return shape.steps * shape.layers * static_cast<std::int64_t>(std::size(kLayer));
  }
  static std::int64_t tiles(const Shape& shape) {
    std::int64_t columns = 0;
    for (const Output& output : kLayer) columns += (output.channels + kTileChannels - 1) / kTileChannels;
    return shape.steps * shape.layers * shape.tokens * columns;
  }

  Cost record(const Shape& shape) {
    WriterOptions options;
    options.output.replace = true;
    gpu_.take_seconds();
    gpu_.take_cpu();
    const double others_begin = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    const auto total_begin = Clock::now();
    auto writer =
        must(shape.to_file ? RecordingWriter::create(path_, {}, options) : RecordingWriter::create_in_memory({}));
    WeightFacts weights(gpu_);
    Cost cost;
    {
      RecorderProbe probe(*writer, gpu_, weights, must(CapturePolicy::parse(shape.capture)));
      const double cpu_begin = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
      const auto begin = Clock::now();
      launch(shape, probe);
      cost.held = seconds_since(begin);
      cost.held_cpu = cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_begin;
    }
    if (shape.to_file) {
      must(writer->finish(ops(shape)));
    } else {
      must(writer->finish_in_memory(ops(shape)));
    }
    writer.reset();
    cost.total = seconds_since(total_begin);
    cost.others = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - others_begin;
    const double device = gpu_.take_seconds();
    cost.held -= device;
    cost.total -= device;
    cost.held_cpu -= gpu_.take_cpu();
    if (shape.to_file) std::filesystem::remove(path_);
    return cost;
  }

  void launch(const Shape& shape, RecorderProbe& probe) {
    std::int64_t op = 0;
    for (std::int64_t step = 1; step <= shape.steps; ++step) {
      StepRow row;
      row.id = step;
      row.index = step - 1;
      row.tokens = shape.tokens;
      must(probe.on_step_begin(row));
      for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
        for (const Output& output : kLayer) must(tell(probe, output, layer, ++op, shape.tokens));
      }
      must(probe.on_step_end(row));
    }
  }

  Status tell(RecorderProbe& probe, const Output& output, std::int64_t layer, std::int64_t id, std::int64_t tokens) {
    gpu_.masked = output.masked;
    const ProbeInput inputs[] = {{"x", id - 1, {}}, {"weight", 0, "layers.0.q_proj.weight"}};
    ProbeTensor tensor;
    tensor.id = id;
    tensor.role = output.role;
    tensor.view = {elements_.data(), Format::f32, tokens, output.channels, output.channels};
    return probe.on_op({id, layer, output.op, output.kind, "{}", inputs, std::span(&tensor, 1)});
  }

  NoTimeGpu gpu_;
  kernels::Buffer elements_;
  std::filesystem::path path_;
  std::vector<double> ratios_;
};

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) { nanscope::Bench(argc > 1 ? argv[1] : std::filesystem::temp_directory_path()).run(); }
