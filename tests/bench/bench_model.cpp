#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/recording/writer.h"
#include "instrument/engine/engine.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/model_folder.h"
#include "instrument/recorder/recorder_probe.h"
#include "instrument/tokenizer/tokenizer.h"
#include "kernels/ops/gemm.h"
#include "kernels/pack.h"
#include "tests/bench/bench.h"
#include "tests/bench/plain_read.h"

/// bench_model MEASURE FOLDER: one measure of a checkpoint that large_checkpoint wrote, on two threads, against its
/// limit.
///   decode   a token of a decode step / reading the files once; with health and hash of every tensor / without
///   start    until the first op is done
///   memory   over the files, of the loaded model and of a request of 2048 tokens
///   prefill  of 128 tokens / its products' operations at the rate of our f32 product
///   batch    a decode step of 16 requests / 16 steps of one
/// Others may be at work on the machine: what is compared is measured in turns, and the best of each counts. Exit 1
/// when a limit is missed.
namespace nanscope {
namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 2;
constexpr int kTurns = 3;
constexpr double kGib = 1073741824.0;

double best(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

/// Anonymous memory of this process, in bytes: mapped files do not count.
double anonymous_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) * 1024;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// The safetensors files of a folder, mapped as the engine does.
class Files {
 public:
  explicit Files(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
      const std::size_t size = entry.file_size();
      void* memory = file < 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
      if (file >= 0) close(file);
      if (memory == MAP_FAILED) must(Status(fail(entry.path().string() + ": cannot be mapped")));
      maps_.emplace_back(static_cast<const std::byte*>(memory), size);
      bytes_ += size;
    }
    if (maps_.empty()) must(Status(fail(folder.string() + ": no safetensors files")));
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() {
    for (const auto& [data, size] : maps_) munmap(const_cast<std::byte*>(data), size);
  }
  std::size_t bytes() const { return bytes_; }

  /// Seconds to read all of them once.
  double read() const { return read_plainly(maps_, kThreads); }

 private:
  std::vector<Memory> maps_;
  std::size_t bytes_ = 0;
};

/// The time of each step of a run.
struct Steps {
  std::vector<double> seconds;
  double memory = 0;  ///< most at a step's end, bytes

  RunControl control() {
    last_ = Clock::now();
    RunControl control;
    control.progress = [this](const Progress&) {
      seconds.push_back(seconds_since(last_));
      memory = std::max(memory, anonymous_memory());
      last_ = Clock::now();
    };
    return control;
  }

 private:
  Clock::time_point last_;
};

/// Ends the run after the first op.
class FirstOp final : public Probe {
 public:
  Status on_op(const ProbeOp&) override {
    at = Clock::now();
    return fail("enough");
  }
  Clock::time_point at;
};

struct Bench {
  fs::path folder;
  EngineConfig config;
  std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<const Tokenizer>(must(Tokenizer::none()));
  std::unique_ptr<kernels::Device> device = must(kernels::make_device("cpu", kThreads));
  std::shared_ptr<const LoadedModel> model;

  explicit Bench(const fs::path& from) : folder(from) {
    must(use_model_folder(config, folder));
    config.threads = kThreads;
    config.kv.blocks = 8;
  }

  void load() {
    const auto source = must(make_weight_source(config.model));
    model = must(load_model(config, *device, *source, config.model.vocabulary));
  }
  std::unique_ptr<Engine> engine() const { return must(Engine::create(config, *device, model, tokenizer)); }

  static RequestSpec request(int prompt, int generated, int offset = 0) {
    TokensPart part;
    for (int i = 0; i < prompt; ++i) part.ids.push_back((i * 37 + offset + 5) % 250);
    return {.name = fmt::format("request {}", offset), .parts = {part}, .max_tokens = generated};
  }

  Steps run(std::span<const RequestSpec> requests) const {
    NullProbe probe;
    Steps steps;
    const auto runs = engine();
    must(runs->run(requests, probe, steps.control()));
    return steps;
  }

  /// The same recorded: health and hash of every tensor, no bytes.
  Steps recorded(std::span<const RequestSpec> requests, WeightFacts& weights) const {
    const fs::path path = fs::temp_directory_path() / fmt::format("bench_model_{}.nanscope", getpid());
    Steps steps;
    {
      const auto writer = must(RecordingWriter::create(path, {}, {}));
      RecorderProbe probe(*writer, *device, weights, must(CapturePolicy::parse("none")));
      must(engine()->run(requests, probe, steps.control()));
    }
    fs::remove(path);
    return steps;
  }
};

bool bench_decode(Bench& bench) {
  const Files files(bench.folder);
  files.read();
  bench.load();
  WeightFacts weights(*bench.device);
  const std::vector<RequestSpec> requests{Bench::request(8, 4)};
  std::vector<double> reads;
  std::vector<double> plain;
  std::vector<double> recorded;
  for (int turn = 0; turn < kTurns; ++turn) {
    reads.push_back(files.read());
    const Steps steps = bench.run(requests);
    plain.push_back(*std::min_element(steps.seconds.begin() + 1, steps.seconds.end()));
    reads.push_back(files.read());
    const Steps seen = bench.recorded(requests, weights);
    recorded.push_back(*std::min_element(seen.seconds.begin() + 1, seen.seconds.end()));
  }
  const double read = best(reads);
  const double token = best(plain);
  const std::string what = fmt::format("{:.2f}, {:.0f} of {:.0f} ms", token / read, token * 1e3, read * 1e3);
  fmt::print("{:.2f} GiB read at {:.1f} GB/s\n", static_cast<double>(files.bytes()) / kGib,
             static_cast<double>(files.bytes()) / read * 1e-9);
  const bool fast = row("decode of a token / reading the files once", what, "<= 1.25", token / read <= 1.25);
  const double observed = best(recorded) / token;
  return row("the same with health and hash / without", fmt::format("{:.3f}", observed), "<= 1.10", observed <= 1.10) &&
         fast;
}

bool bench_start(Bench& bench) {
  Files(bench.folder).read();
  FirstOp probe;
  const auto begin = Clock::now();
  bench.load();
  const std::vector<RequestSpec> requests{Bench::request(8, 1)};
  if (bench.engine()->run(requests, probe)) must(Status(fail("no op was executed")));
  const double start = std::chrono::duration<double>(probe.at - begin).count();
  return row("start: mapped and first op done", fmt::format("{:.2f} s", start), "<= 2 s", start <= 2);
}

bool bench_memory(Bench& bench) {
  bench.config.kv.blocks = 2049 / bench.config.kv.block_size + 1;
  const double before = anonymous_memory();
  bench.load();
  const double loaded = anonymous_memory() - before;
  const bool kept = row("memory of the loaded model over its files", fmt::format("{:.1f} MiB", loaded / 1048576),
                        "<= 64 MiB", loaded <= 64 * 1048576.0);
  const bool chunks = set_knob(bench.config, "engine.batch", "2").has_value() &&
                      set_knob(bench.config, "engine.chunk", "64").has_value();
  const std::vector<RequestSpec> requests{Bench::request(2046, 2)};
  const double taken = bench.run(requests).memory - before;
  return row(fmt::format("memory over the files, 2048 tokens{}", chunks ? ", chunks of 64" : ", prompt in one step"),
             fmt::format("{:.2f} GiB", taken / kGib), "<= 1.5 GiB", taken <= 1.5 * kGib) &&
         kept;
}

/// Operations a second of an f32 product with packed weights, as bench_kernels has it, on all threads.
double gemm_rate(kernels::Device& device) {
  constexpr std::int64_t kSize = 1024;
  const auto matrix = [&](const kernels::Buffer& buffer) {
    return kernels::TensorView{buffer.data(), Format::f32, kSize, kSize, kSize};
  };
  const auto buffer = [&] { return must(device.allocate(kSize * kSize * sizeof(float), true)); };
  const kernels::Buffer x = buffer();
  const kernels::Buffer panels = buffer();
  const kernels::Buffer out = buffer();
  const kernels::GemmArgs args{.x = matrix(x),
                               .weight = {},
                               .packed = kernels::packed_view(static_cast<float*>(panels.data()), kSize, kSize),
                               .bias = {},
                               .out = matrix(out)};
  std::vector<double> times;
  for (int turn = 0; turn < 5; ++turn) times.push_back(seconds([&] { must(device.launch(args)); }));
  return 2.0 * kSize * kSize * kSize / best(times);
}

bool bench_prefill(Bench& bench) {
  constexpr int kTokens = 128;
  Files(bench.folder).read();
  bench.load();
  bench.config.kv.blocks = kTokens / bench.config.kv.block_size + 2;
  double weights = 0;  // that products read: all matrices, the embedding where it is the head
  for (const Weight& weight : bench.model->weights) {
    const bool looked_up = &weight == bench.model->embed.weight && !bench.config.model.tied_head;
    if (weight.view.rows > 1 && !looked_up) weights += static_cast<double>(weight.view.elements());
  }
  const double operations = 2 * kTokens * weights;
  const std::vector<RequestSpec> requests{Bench::request(kTokens, 1)};
  std::vector<double> rates;
  std::vector<double> times;
  for (int turn = 0; turn < 2 * kTurns; ++turn) {
    rates.push_back(-gemm_rate(*bench.device));
    times.push_back(bench.run(requests).seconds.front());
  }
  const double rate = -best(rates);
  const double ratio = best(times) / (operations / rate);
  return row("prefill of 128 tokens / its products at the f32 rate",
             fmt::format("{:.2f}, {:.2f} s, {:.0f} GFLOP/s", ratio, best(times), rate * 1e-9), "<= 1.3", ratio <= 1.3);
}

/// Seconds for all products of a step of so many rows.
double products(const Bench& bench, std::int64_t rows) {
  std::int64_t widest = 0;
  std::int64_t deepest = 0;
  for (const Weight& weight : bench.model->weights) {
    widest = std::max(widest, weight.view.rows);
    deepest = std::max(deepest, weight.view.columns);
  }
  const auto buffer = [&](std::int64_t columns) {
    return must(bench.device->allocate(static_cast<std::size_t>(rows * columns) * sizeof(float), true));
  };
  const kernels::Buffer x = buffer(deepest);
  const kernels::Buffer out = buffer(widest);
  return seconds([&] {
    for (const Weight& weight : bench.model->weights) {
      const kernels::TensorView& view = weight.view;
      if (view.rows == 1) continue;
      must(bench.device->launch(kernels::GemmArgs{.x = {x.data(), Format::f32, rows, view.columns, view.columns},
                                                  .weight = view,
                                                  .packed = {},
                                                  .bias = {},
                                                  .out = {out.data(), Format::f32, rows, view.rows, view.rows},
                                                  .scaled = weight.scaled}));
    }
  });
}

bool bench_batch(Bench& bench) {
  constexpr int kRequests = 16;
  Files(bench.folder).read();
  bench.load();
  bench.config.kv.blocks = 2 * kRequests;
  const EngineConfig alone = bench.config;
  EngineConfig together = bench.config;
  const bool batches = set_knob(together, "engine.batch", std::to_string(kRequests)).has_value();
  std::vector<RequestSpec> requests;
  for (int i = 0; i < kRequests; ++i) requests.push_back(Bench::request(4, 4, 11 * i));
  std::vector<double> one;
  std::vector<double> all;
  const auto decode = [](const Steps& steps) {
    return *std::min_element(steps.seconds.begin() + 1, steps.seconds.end());
  };
  for (int turn = 0; turn < kTurns; ++turn) {
    bench.config = alone;
    one.push_back(batches ? decode(bench.run(std::span(requests).first(1))) : products(bench, 1));
    bench.config = together;
    all.push_back(batches ? decode(bench.run(requests)) : products(bench, kRequests));
  }
  const double ratio = best(all) / (kRequests * best(one));
  return row(batches ? "decode step of 16 requests / 16 steps of one" : "products of 16 rows / 16 times of one row",
             fmt::format("{:.3f}, {:.0f} and {:.0f} ms", ratio, best(all) * 1e3, best(one) * 1e3), "<= 0.5",
             ratio <= 0.5);
}

bool measure(std::string_view name, const fs::path& folder) {
  Bench bench(folder);
  if (name == "decode") return bench_decode(bench);
  if (name == "start") return bench_start(bench);
  if (name == "memory") return bench_memory(bench);
  if (name == "prefill") return bench_prefill(bench);
  if (name == "batch") return bench_batch(bench);
  must(Status(fail(fmt::format("no measure '{}'; there are decode, start, memory, prefill, batch", name))));
  return false;
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: bench_model decode|start|memory|prefill|batch FOLDER\n");
    return 2;
  }
  return nanscope::measure(argv[1], argv[2]) ? 0 : 1;
}
