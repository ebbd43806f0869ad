#include "instrument/dump/containers/strict_json.h"

#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "instrument/dump/containers/file_bytes.h"

namespace nanscope {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;

/// nlohmann keeps the last of two equal keys and has no limit of depth: both are noticed as they come.
class Watch {
 public:
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth) deep_ = true;
    if (event == json::parse_event_t::object_start) keys_.emplace_back();
    if (event == json::parse_event_t::object_end && !keys_.empty()) keys_.pop_back();
    if (event == json::parse_event_t::key && !keys_.empty()) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second && !duplicate_) duplicate_ = key;
    }
    return !deep_;
  }
  bool deep() const { return deep_; }
  const std::optional<std::string>& duplicate() const { return duplicate_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::optional<std::string> duplicate_;
  bool deep_ = false;
};

}  // namespace

Result<json> parse_strict_json(std::string_view text, std::string_view file, std::uint64_t offset) {
  Watch watch;
  json value;
  try {
    value = json::parse(text, std::ref(watch));
  } catch (const json::parse_error& error) {
    const std::uint64_t at = error.byte > 0 ? error.byte - 1 : 0;
    if (!watch.deep()) return refuse(file, offset + at, "not JSON here");
  } catch (const json::exception&) {
    if (!watch.deep()) return refuse(file, offset, "a number is beyond the range of JSON's numbers here");
  }
  if (watch.deep()) return refuse(file, offset, "nested too deeply, expected at most " + std::to_string(kMaxDepth));
  if (watch.duplicate()) return refuse(file, offset, "names " + in_quotes(*watch.duplicate()) + " twice");
  return value;
}

std::optional<std::int64_t> json_natural(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace nanscope
