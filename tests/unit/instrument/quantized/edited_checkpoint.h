#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "instrument/weights/safetensors.h"
#include "tests/read_text.h"
#include "tests/temporary_folder.h"

namespace nanscope {

/// A checkpoint as a producer wrote it, with something changed, in a folder of its own.
class EditedCheckpoint {
 public:
  explicit EditedCheckpoint(const std::string& name) {
    const std::filesystem::path from =
        std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / name;
    config = read_text(from / "config.json");
    const auto file = SafetensorsFile::open(from / "model.safetensors").value();
    for (const SafetensorsEntry& entry : file.entries()) {
      const auto bytes = file.bytes(entry);
      tensors[entry.name] = {entry.dtype, entry.shape, {bytes.begin(), bytes.end()}};
    }
  }

  struct Tensor {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };

  /// A tensor of f32.
  void set(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    tensors[name] = {"F32", std::move(shape), {bytes.begin(), bytes.end()}};
  }
  float number(const std::string& name) const {
    float value = 0;
    std::memcpy(&value, tensors.at(name).bytes.data(), sizeof value);
    return value;
  }
  void rename(const std::string& from, const std::string& to) {
    tensors[to] = tensors.at(from);
    tensors.erase(from);
  }
  /// Every tensor whose name ends so.
  std::vector<std::string> ending(std::string_view end) const {
    std::vector<std::string> found;
    for (const auto& [name, tensor] : tensors) {
      if (name.ends_with(end)) found.push_back(name);
    }
    return found;
  }
  void replace_in_config(const std::string& from, const std::string& to) {
    const std::size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    config.replace(at, from.size(), to);
  }

  /// Writes it and says where.
  std::filesystem::path write() const {
    std::vector<SafetensorsInput> inputs;
    for (const auto& [name, tensor] : tensors) inputs.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
    const std::vector<std::byte> bytes = encode_safetensors(inputs, metadata).value();
    std::ofstream(*folder_ / "model.safetensors", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    std::ofstream(*folder_ / "config.json") << config;
    return folder_->path();
  }

  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
  std::string config;

 private:
  std::shared_ptr<TemporaryFolder> folder_ = std::make_shared<TemporaryFolder>();
};

}  // namespace nanscope
