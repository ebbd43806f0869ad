#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Builds files of GGUF from the format's description, so that what is read comes from no writer.
namespace nanscope::testing_gguf {

class Bytes {
 public:
  template <class T>
  Bytes& number(T value) {
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), begin, begin + sizeof(T));
    return *this;
  }
  Bytes& text(std::string_view value) {
    number<std::uint64_t>(value.size());
    for (const char c : value) bytes.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Bytes& raw(const std::vector<std::byte>& more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
    return *this;
  }

  std::vector<std::byte> bytes;
};

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> written_shape;  ///< columns first
  std::uint32_t type = 0;
  std::vector<std::byte> bytes;
};

class Builder {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;
  std::vector<Tensor> tensors;

  /// A value's kind and bytes.
  Builder& value(std::string_view key, std::uint32_t kind, const std::vector<std::byte>& bytes) {
    values_.text(key).number(kind).raw(bytes);
    ++count_;
    return *this;
  }
  Builder& text(std::string_view key, std::string_view text) { return value(key, 8, Bytes().text(text).bytes); }
  Builder& u32(std::string_view key, std::uint32_t number) { return value(key, 4, Bytes().number(number).bytes); }
  Builder& f32(std::string_view key, float number) { return value(key, 6, Bytes().number(number).bytes); }
  Builder& flag(std::string_view key, bool flag) {
    return value(key, 7, Bytes().number(static_cast<std::uint8_t>(flag ? 1 : 0)).bytes);
  }
  Builder& texts(std::string_view key, const std::vector<std::string>& items) {
    Bytes list;
    list.number<std::uint32_t>(8).number<std::uint64_t>(items.size());
    for (const std::string& item : items) list.text(item);
    return value(key, 9, list.bytes);
  }
  /// Of f32 values.
  Builder& floats(std::string name, std::vector<std::uint64_t> written_shape, const std::vector<float>& values) {
    Tensor tensor{std::move(name), std::move(written_shape), 0, {}};
    tensor.bytes.resize(values.size() * sizeof(float));
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    tensors.push_back(std::move(tensor));
    return *this;
  }

  std::vector<std::byte> build() const {
    Bytes file;
    for (const char c : {'G', 'G', 'U', 'F'}) file.number(c);
    file.number(version).number<std::uint64_t>(tensors.size()).number<std::uint64_t>(count_).raw(values_.bytes);
    std::uint64_t offset = 0;
    for (const Tensor& tensor : tensors) {
      file.text(tensor.name).number(static_cast<std::uint32_t>(tensor.written_shape.size()));
      for (const std::uint64_t extent : tensor.written_shape) file.number(extent);
      file.number(tensor.type).number(offset);
      offset = padded(offset + tensor.bytes.size());
    }
    for (const Tensor& tensor : tensors) {
      file.bytes.resize(padded(file.bytes.size()));
      file.raw(tensor.bytes);
    }
    return file.bytes;
  }

 private:
  std::uint64_t padded(std::uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }

  Bytes values_;
  std::uint64_t count_ = 0;
};

}  // namespace nanscope::testing_gguf
