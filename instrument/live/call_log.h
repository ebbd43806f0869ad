#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace nanscope::live {

/// A kernel by its names, made once.
struct KernelName {
  std::string symbol;     ///< as the driver has it
  std::string demangled;  ///< as its source has it
  std::string short_name;
  std::string json;  ///< demangled, quoted
};

/// A launch as the program made it.
struct Call {
  const KernelName* kernel = nullptr;  ///< null: a graph
  std::array<unsigned, 3> grid{};
  std::array<unsigned, 3> block{};
  unsigned shared = 0;
  std::uint64_t stream = 0;
  std::uint32_t correlation = 0;          ///< CUPTI's id of the driver's call
  std::uint32_t runtime_correlation = 0;  ///< of the runtime's call in which that lies; 0: none
};

/// Launches on their way from the threads that make them to the one that writes them down. A program launches kernels
/// every few microseconds: what is done while it waits must take a small part of that, and everything else is done
/// elsewhere.
class CallLog {
 public:
  /// Launches that wait at most; what comes beyond them is counted.
  static constexpr std::size_t kMost = std::size_t{1} << 20;
  using Demangle = std::string (*)(const char* symbol);

  explicit CallLog(Demangle demangle, std::size_t most = kMost) : demangle_(demangle), most_(most) {}

  /// A launch of a kernel; its name lives as long as the log.
  const KernelName& add_kernel(const char* symbol, Call call);
  void add_graph(const Call& call);
  /// All that was added since the last call, in order. `calls` is emptied first; its memory is used for what comes
  /// next.
  void take(std::vector<Call>& calls);
  /// Launches that found no room.
  std::int64_t lost() const;

 private:
  const KernelName& named(const char* symbol);
  void push(const Call& call);

  Demangle demangle_;
  std::size_t most_;
  mutable std::mutex mutex_;
  std::vector<Call> calls_;
  std::int64_t lost_ = 0;
  // By text, and in front of it by address: the text there is compared, as a module may go and another take its place.
  std::map<std::string, std::unique_ptr<KernelName>, std::less<>> names_;
  std::unordered_map<const char*, const KernelName*> by_address_;
};

/// An op's attributes, JSON: {"symbol", "grid", "block", "shared", "stream"}, or of a graph {"stream"}.
std::string attributes(const Call& call);

}  // namespace nanscope::live
