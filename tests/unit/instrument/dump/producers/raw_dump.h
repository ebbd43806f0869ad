#pragma once
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/files/output_file.h"
#include "instrument/dump/open_dump.h"
#include "instrument/files/file.h"
#include "tests/temporary_folder.h"

namespace nanscope {

/// A folder of raw files of zeros with manifests, as tests need it.
class RawDump {
 public:
  RawDump() { std::filesystem::create_directories(root()); }

  std::filesystem::path root() const { return folder_ / "dump"; }

  void add(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape,
           const std::string& folder = "") {
    std::size_t size = static_cast<std::size_t>(find_dtype(dtype)->bits) / 8;
    for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
    const std::string file = "data" + std::to_string(++files_) + ".raw";
    write(folder.empty() ? file : folder + '/' + file, std::string(size, '\0'));
    const nlohmann::json entry{{"name", name}, {"file", file}, {"dtype", dtype}, {"shape", shape}};
    std::string& manifest = manifests_[folder];
    manifest += entry.dump() + '\n';
    write((folder.empty() ? "" : folder + '/') + "manifest.jsonl", manifest);
  }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root() / name).parent_path());
    if (!write_output(root() / name, std::as_bytes(std::span(text)), {.replace = true}))
      throw std::runtime_error("cannot write " + name);
  }

  Result<std::unique_ptr<OpenDump>> open() const {
    return OpenDump::open(root(), {.threads = 1, .progress = {}, .stop = {}});
  }

 private:
  TemporaryFolder folder_;
  std::map<std::string, std::string> manifests_;
  int files_ = 0;
};

inline const DumpTensor& find_tensor(const OpenDump& dump, const std::string& name) {
  const auto& tensors = dump.dump().tensors;
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const DumpTensor& t) { return t.name == name; });
  if (found == tensors.end()) throw std::runtime_error("no tensor " + name);
  return *found;
}

}  // namespace nanscope
