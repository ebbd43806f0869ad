#include "gui/pins.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/files/output_file.h"
#include "core/parse_json.h"

namespace nanscope::gui {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::size_t kMostDepth = 8;

/// Nothing where there is no file. Errors: no regular file, too large, it cannot be read.
Result<std::optional<std::string>> read_text(const std::filesystem::path& file) {
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(file, failed);
  if (status.type() == std::filesystem::file_type::not_found) return std::nullopt;
  if (!std::filesystem::is_regular_file(status)) return fail(file.string() + ": no regular file");
  if (std::filesystem::file_size(file, failed) > kMostBytes || failed) {
    return fail(file.string() + ": more than a megabyte");
  }
  std::ostringstream text;
  std::ifstream in(file, std::ios::binary);
  if (!(in && text << in.rdbuf()) && !in.eof()) return fail(file.string() + ": cannot be read");
  return text.str();
}

Result<Pin> pin_of(const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("place") || !json["place"].is_string()) return fail("a pin without a place");
  Result<Place> place = parse_place(json["place"].get<std::string>());
  if (!place) return tl::unexpected(place.error());
  Pin pin{std::move(*place), {}};
  if (json.contains("note")) {
    if (!json["note"].is_string()) return fail("a note that is no text");
    pin.note = json["note"].get<std::string>();
  }
  if (pin.note.size() > kMostNote) return fail(fmt::format("a note of more than {} bytes", kMostNote));
  return pin;
}

auto at_place(const Place& place) {
  return [&place](const Pin& pin) { return pin.place == place; };
}

}  // namespace

std::filesystem::path pins_file(const std::filesystem::path& run) {
  std::filesystem::path file = run.lexically_normal();
  if (!file.has_filename()) file = file.parent_path();
  file += ".pins.json";
  return file;
}

Result<std::vector<Pin>> parse_pins(std::string_view text) {
  if (text.size() > kMostBytes || json_depth(text) > kMostDepth) return fail("no file of pins");
  const nlohmann::json json = parse_json_or_none(text);
  if (!json.is_object() || !json.contains("pins") || !json["pins"].is_array()) return fail("no file of pins");
  if (json["pins"].size() > kMostPins) return fail(fmt::format("more than {} pins", kMostPins));
  std::vector<Pin> pins;
  for (const nlohmann::json& one : json["pins"]) {
    Result<Pin> pin = pin_of(one);
    if (!pin) return tl::unexpected(pin.error());
    if (std::none_of(pins.begin(), pins.end(), at_place(pin->place))) pins.push_back(std::move(*pin));
  }
  return pins;
}

std::string pins_text(std::span<const Pin> pins) {
  nlohmann::ordered_json json;
  json["pins"] = nlohmann::ordered_json::array();
  for (const Pin& pin : pins) {
    nlohmann::ordered_json one;
    one["place"] = to_string(pin.place);
    if (!pin.note.empty()) one["note"] = pin.note;
    json["pins"].push_back(std::move(one));
  }
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Pins::Pins(const std::filesystem::path& run) : file_(pins_file(run)) {
  if (Status done = read(); !done) {
    problem_ = Error{done.error().message + "; what is pinned now is not kept"};
    writable_ = false;
  }
}

Status Pins::read() {
  const Result<std::optional<std::string>> text = read_text(file_);
  if (!text) return tl::unexpected(text.error());
  const std::string now = text->value_or(std::string());
  if (now == last_read_) return {};
  Result<std::vector<Pin>> pins = now.empty() ? std::vector<Pin>{} : parse_pins(now);
  if (!pins) return fail(fmt::format("{}: {}", file_.string(), pins.error().message));
  const Result<std::vector<Pin>> known = last_read_.empty() ? std::vector<Pin>{} : parse_pins(last_read_);
  for (Pin& pin : *pins) {
    // What this window knew of and has no more was taken away here.
    const bool removed = known && std::any_of(known->begin(), known->end(), at_place(pin.place));
    if (!removed && !find(pin.place) && pins_.size() < kMostPins) pins_.push_back(std::move(pin));
  }
  last_read_ = now;
  return {};
}

Status Pins::save() {
  if (!writable_) return fail(file_.string() + ": not written, as it could not be read");
  if (Status merged = read(); !merged) return merged;
  const std::string text = pins_text(pins_);
  if (Status written = write_output(file_, text, {.replace = true}); !written) return written;
  last_read_ = text;
  return {};
}

std::optional<std::size_t> Pins::find(const Place& place) const {
  const auto at = std::find_if(pins_.begin(), pins_.end(), at_place(place));
  if (at == pins_.end()) return std::nullopt;
  return static_cast<std::size_t>(at - pins_.begin());
}

Status Pins::add(const Place& place) {
  if (find(place)) return {};
  if (pins_.size() >= kMostPins) return fail(fmt::format("there are {} pins already: take one away", kMostPins));
  pins_.push_back({place, {}});
  return save();
}

Status Pins::remove(std::size_t index) {
  if (index >= pins_.size()) return {};
  pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(index));
  return save();
}

Status Pins::replace(std::vector<Pin> pins) {
  pins_ = std::move(pins);
  return save();
}

Status Pins::note(std::size_t index, std::string words) {
  if (index >= pins_.size() || pins_[index].note == words) return {};
  if (words.size() > kMostNote) return fail(fmt::format("a note has {} bytes at most", kMostNote));
  pins_[index].note = std::move(words);
  return save();
}

}  // namespace nanscope::gui
