#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/system_reason.h"
#include "core/threads/team.h"
#include "kernels/cpu/float_environment.h"
#include "kernels/device.h"
#include "kernels/op_table.h"

namespace nanscope::kernels {
namespace {

/// Below this many element operations a launch runs in the caller's thread: waking another one costs
/// more than the work.
constexpr std::int64_t kInlineWork = 1 << 17;
/// What a thread takes at least: the last one to finish holds up the launch by no more than that.
constexpr std::int64_t kLeastWork = kInlineWork / 8;
constexpr std::size_t kAlignment = 64;
constexpr int kMaxThreads = 1024;

struct Build {
  Isa isa;
  const char* name;
  const OpTable* table;
  bool supported;
};

std::string cpu_features() {
  std::string text;
#if defined(__x86_64__)
  const auto add = [&](const char* name, bool has) {
    if (!has) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add("sse2", __builtin_cpu_supports("sse2") != 0);
  add("sse4.2", __builtin_cpu_supports("sse4.2") != 0);
  add("avx", __builtin_cpu_supports("avx") != 0);
  add("avx2", __builtin_cpu_supports("avx2") != 0);
  add("fma", __builtin_cpu_supports("fma") != 0);
  add("bmi2", __builtin_cpu_supports("bmi2") != 0);
  add("avx512f", __builtin_cpu_supports("avx512f") != 0);
  add("avx512bw", __builtin_cpu_supports("avx512bw") != 0);
  add("avx512dq", __builtin_cpu_supports("avx512dq") != 0);
  add("avx512vl", __builtin_cpu_supports("avx512vl") != 0);
#endif
  return text;
}

#if defined(__x86_64__)
/// Every CPU with these also has the rest of x86-64-v3 (F16C, MOVBE, LZCNT came with or before them).
[[maybe_unused]] bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2");
}
[[maybe_unused]] bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

/// The builds in rising order of speed.
std::vector<Build> builds() {
  std::vector<Build> list;
#if defined(NANSCOPE_LANES_BASELINE)
  list.push_back({Isa::baseline, "baseline", &baseline::op_table, true});
#endif
#if defined(NANSCOPE_LANES_AVX2)
  list.push_back({Isa::avx2, "avx2", &avx2::op_table, has_avx2()});
#endif
#if defined(NANSCOPE_LANES_AVX512)
  list.push_back({Isa::avx512, "avx512", &avx512::op_table, has_avx512()});
#endif
  return list;
}

Result<Build> choose(Isa isa) {
  const std::vector<Build> list = builds();
  if (isa == Isa::best) {
    const auto best = std::find_if(list.rbegin(), list.rend(), [](const Build& build) { return build.supported; });
    if (best != list.rend()) return *best;
    return fail(
        fmt::format("this build of nanscope has lane code for {} alone, which this CPU lacks (it has: {}); build it "
                    "with -DNANSCOPE_LANES=all",
                    list.back().name, cpu_features()));
  }
  for (const Build& build : list) {
    if (build.isa != isa) continue;
    if (build.supported) return build;
    return fail(fmt::format("this CPU has no {} (it has: {}); use device 'cpu'", build.name, cpu_features()));
  }
  return fail(fmt::format("this build of nanscope has lane code for {} alone; use device 'cpu'", list.back().name));
}

class CpuDevice final : public Device {
 public:
  CpuDevice(const Build& build, int threads) : table_(*build.table), team_(threads) {
    team_.start();
    info_.name = "cpu";
    info_.isa = build.name;
    info_.cpu_features = cpu_features();
    info_.float_environment = current_float_environment().text();
    info_.threads = team_.size();
  }

  const DeviceInfo& info() const override { return info_; }
  bool reads_host_memory() const override { return true; }
  bool host_addressable() const override { return true; }

  Result<Buffer> allocate(std::size_t bytes, bool zeroed) override {
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
    if (memory == nullptr) return fail(fmt::format("cpu: cannot allocate {} bytes: {}", bytes, out_of_memory()));
    if (zeroed) std::memset(memory, 0, rounded);
    return Buffer(std::shared_ptr<void>(memory, [](void* p) { std::free(p); }), bytes);
  }
  Status upload(void* device, std::span<const std::byte> host) override {
    return copy(device, host.data(), host.size());
  }
  Status download(std::span<std::byte> host, const void* device) override {
    return copy(host.data(), device, host.size());
  }
  Status copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memmove(to, from, bytes);
    return {};
  }
  Status gather(void* to, const void* from, const Rows& rows) override {
    for (std::size_t row = 0; row < rows.count; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * rows.row_bytes,
                  static_cast<const std::byte*>(from) + row * rows.stride_bytes, rows.row_bytes);
    }
    return {};
  }
  Result<Buffer> allocate_host(std::size_t bytes) override { return allocate(bytes, false); }
  Result<Transfer> start_download(std::span<std::byte> host, const void* device) override {
    return copy(host.data(), device, host.size()).map([] { return Transfer(); });
  }
  Status wait(const Transfer&) override { return {}; }
  Status synchronize() override { return {}; }

  Status launch_raw(OpId id, const void* args) override {
    if (Status checked = check_args(id, args); !checked) return checked;
    if (const FloatEnvironment found = current_float_environment(); !found.is_default()) {
      return fail(fmt::format(
          "{}: the float environment is '{}', expected nearest-even with FTZ and DAZ off; a library loaded into this "
          "process has changed it",
          op_name(id), found.text()));
    }
    const OpEntry& op = *table_.ops[static_cast<int>(id)];
    const std::int64_t warps = op.warps(args);
    if (warps <= 0) return {};
    const std::int64_t per_warp = std::max<std::int64_t>(op.work_per_warp(args), 1);
    if (team_.size() == 1 || warps == 1 || warps <= kInlineWork / per_warp) {
      op.run_range(args, 0, warps);
      return {};
    }
    team_.run(warps, kLeastWork / per_warp, [&](std::int64_t first, std::int64_t last, int member) {
      if (member > 0) set_default_float_environment();
      op.run_range(args, first, last);
    });
    return {};
  }

 private:
  const OpTable& table_;
  Team team_;
  DeviceInfo info_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device(Isa isa, int threads) {
  const Result<Build> build = choose(isa);
  if (!build) return tl::unexpected(build.error());
  if (threads < 0 || threads > kMaxThreads) {
    return fail(fmt::format("cpu: {} threads asked for, expected 0 (one a core) to {}", threads, kMaxThreads));
  }
  if (const FloatEnvironment found = current_float_environment(); !found.is_default()) {
    return fail(
        fmt::format("cpu: the float environment is '{}', expected nearest-even with FTZ and DAZ off", found.text()));
  }
  const int wanted = threads == 0 ? std::min(usable_cpus(), kMaxThreads) : threads;
  try {
    return std::make_unique<CpuDevice>(*build, wanted);
  } catch (const std::exception& error) {
    return fail(fmt::format("cpu: {} threads cannot be started: {}", wanted, reason_of(error)));
  }
}

}  // namespace nanscope::kernels
