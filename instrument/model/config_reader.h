#pragma once
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// Reads the keys of one object of a config.json, and remembers which. The first error is kept: what is read after it
/// has its default. Keys that nobody read are refused by finish(), so that nothing is ignored unseen.
class ConfigReader {
 public:
  /// `where` is what errors call the object: the file, or the file and a key.
  ConfigReader(const nlohmann::json& object, std::string where);

  /// Whether the key is there, be it null.
  bool states(std::string_view key);
  /// Whether the key is there and not null.
  bool has(std::string_view key);
  std::int64_t integer(std::string_view key, std::int64_t otherwise, std::int64_t low = 0,
                       std::int64_t high = std::int64_t{1} << 20);
  /// Refused where it is missing.
  std::int64_t needed(std::string_view key, std::int64_t low = 1, std::int64_t high = std::int64_t{1} << 20);
  /// Finite.
  double number(std::string_view key, double otherwise, double low = 0,
                double high = std::numeric_limits<float>::max());
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise = {});
  std::vector<double> numbers(std::string_view key);
  std::vector<std::int64_t> integers(std::string_view key);
  /// One whole number is a list of one.
  std::vector<std::int64_t> integer_or_list(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  /// Null where there is no such object.
  const nlohmann::json* object(std::string_view key);

  /// Refuses every value but this one, or none at all.
  void only(std::string_view key, bool value);
  void only_text(std::string_view key, std::string_view value);
  /// Keys that no number of the model depends on.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Keeps the first error: "where: key: reason".
  void reject(std::string_view key, std::string_view reason);

  const std::string& where() const { return where_; }
  const Status& status() const { return status_; }
  /// The first error; else the keys that nobody read.
  Status finish();

 private:
  /// Null where the key is missing or null.
  const nlohmann::json* find(std::string_view key);

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
  Status status_;
};

}  // namespace nanscope
