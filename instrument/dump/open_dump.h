#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/dump/dump.h"
#include "instrument/dump/container.h"
#include "kernels/device.h"

namespace nanscope {

struct OpenDumpOptions {
  int threads = 0;  ///< 0: one a core
  /// Bytes scanned so far and in all, from the calling thread.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  std::stop_token stop;
};

/// A file or folder of tensors, found, named, put in order and scanned. Elements are read when they are asked for.
class OpenDump final : public DumpElements {
 public:
  /// Errors: nothing there that holds tensors, a file that is damaged or hostile, stopped.
  static Result<std::unique_ptr<OpenDump>> open(const std::filesystem::path& path, const OpenDumpOptions& options = {});

  const Dump& dump() const { return dump_; }

  Result<std::vector<float>> values(const DumpTensor& tensor, std::int64_t first, std::int64_t count) override;
  Result<std::vector<std::uint32_t>> codes(const DumpTensor& tensor, std::int64_t first, std::int64_t count) override;
  Result<std::vector<Health>> row_health(const DumpTensor& tensor) override;
  /// All stored bytes.
  Result<TensorBytes> bytes(const DumpTensor& tensor) const;

 private:
  struct Source {
    std::shared_ptr<Container> container;
    std::size_t tensor = 0;
  };

  OpenDump() = default;
  Status find_files(const std::filesystem::path& path);
  Status open_file(const std::filesystem::path& file, const std::string& shown);
  void add_tensors(const std::shared_ptr<Container>& container, const std::string& shown);
  Status scan(const OpenDumpOptions& options);

  Dump dump_;
  std::filesystem::path root_;
  std::vector<Source> sources_;
  std::unique_ptr<kernels::Device> device_;
};

}  // namespace nanscope
