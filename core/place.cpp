#include "core/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace nanscope {
namespace {

constexpr std::string_view kGrammar = "request/step/layer/op.role[token,channel]";

tl::unexpected<Error> refuse(std::string_view text, std::size_t offset, std::string_view why) {
  return fail(
      fmt::format("place '{}': at offset {}, {}; expected {}, with parts left out", text, offset, why, kGrammar));
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool is_name(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::size_t offset_of(std::string_view whole, std::string_view part) {
  return static_cast<std::size_t>(part.data() - whole.data());
}

Status parse_element(std::string_view text, std::string_view element, Place& place) {
  if (element.size() < 2 || element.back() != ']') {
    return refuse(text, offset_of(text, element), "a '[' without its ']' at the end");
  }
  element = element.substr(1, element.size() - 2);
  const std::size_t comma = element.find(',');
  const std::string_view parts[] = {element.substr(0, comma),
                                    comma == std::string_view::npos ? std::string_view{} : element.substr(comma + 1)};
  std::optional<std::int64_t>* const into[] = {&place.token, &place.channel};
  for (int i = 0; i < 2; ++i) {
    if (parts[i].empty()) continue;
    *into[i] = number(parts[i]);
    if (!*into[i]) return refuse(text, offset_of(text, parts[i]), "a token and a channel are numbers");
  }
  return {};
}

Status parse_prefix(std::string_view text, std::string_view prefix, Place& place) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t slash = prefix.find('/');
    parts.push_back(prefix.substr(0, slash));
    if (slash == std::string_view::npos) break;
    prefix.remove_prefix(slash + 1);
  }
  if (parts.size() > 3) return refuse(text, offset_of(text, parts[3]), "more than three numbers before the op");
  std::optional<std::int64_t>* const fields[] = {&place.request, &place.step, &place.layer};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto* const field = fields[3 - parts.size() + i];
    if (parts[i].empty()) continue;
    if (field == &place.layer && parts[i] == "-") {
      *field = -1;
      continue;
    }
    const bool unasked = field == &place.request && parts[i].starts_with('-');  // a warm-up or a dummy batch
    *field = number(parts[i].substr(unasked ? 1 : 0));
    if (unasked && *field) field->emplace(-**field);
    if (!*field) return refuse(text, offset_of(text, parts[i]), fmt::format("'{}' is no number", parts[i]));
  }
  return {};
}

}  // namespace

Result<Place> parse_place(std::string_view text) {
  Place place;
  const std::size_t bracket = text.find('[');
  if (bracket != std::string_view::npos) {
    if (auto status = parse_element(text, text.substr(bracket), place); !status) {
      return tl::unexpected(std::move(status.error()));
    }
  }
  std::string_view path = text.substr(0, bracket);
  if (path.starts_with('@')) {
    const std::string_view rank = path.substr(1, path.find('/') - 1);
    const std::optional<std::int64_t> found = number(rank);
    if (!found || rank.size() + 1 == path.size()) {
      return refuse(text, 1, "a rank is a number with a slash behind it");
    }
    place.rank = *found;
    path.remove_prefix(rank.size() + 2);
  }
  const std::size_t slash = path.rfind('/');
  if (slash != std::string_view::npos) {
    if (auto status = parse_prefix(text, path.substr(0, slash), place); !status) {
      return tl::unexpected(std::move(status.error()));
    }
  }
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  const std::size_t dot = name.find('.');
  place.op = name.substr(0, dot);
  if (dot != std::string_view::npos) place.role = name.substr(dot + 1);
  if (place.op.empty()) return refuse(text, offset_of(text, name), "the op is missing");
  if (!is_name(place.op) || !is_name(place.role)) {
    return refuse(text, offset_of(text, name), fmt::format("'{}' is no op.role", name));
  }
  if (dot != std::string_view::npos && place.role.empty()) {
    return refuse(text, offset_of(text, name) + dot + 1, "the role is missing after '.'");
  }
  return place;
}

std::string to_string(const Place& place) {
  const auto text = [](const std::optional<std::int64_t>& part) {
    return part ? fmt::to_string(*part) : std::string{};
  };
  std::string out = place.rank == 0 ? std::string() : fmt::format("@{}/", place.rank);
  if (place.request) out += text(place.request) + "/";
  if (place.request || place.step) out += text(place.step) + "/";
  if (place.request || place.step || place.layer) out += (place.layer == -1 ? "-" : text(place.layer)) + "/";
  out += place.op;
  if (!place.role.empty()) out += "." + place.role;
  if (place.channel) {
    out += fmt::format("[{},{}]", text(place.token), text(place.channel));
  } else if (place.token) {
    out += fmt::format("[{}]", *place.token);
  }
  return out;
}

Result<Place> place_of(const Recording& recording, const TensorRow& tensor, std::optional<std::int64_t> element) {
  auto op = recording.op(tensor.op);
  if (!op) return tl::unexpected(std::move(op.error()));
  auto step = recording.step(op->step);
  if (!step) return tl::unexpected(std::move(step.error()));
  Place place{step->request, step->index, op->layer, op->name, tensor.role, {}, {}};
  if (element) {
    if (*element < 0 || tensor.channels <= 0 || *element / tensor.channels >= tensor.tokens) {
      return fail(fmt::format("element {} is outside tensor {}", *element, tensor.id));
    }
    place.token = tensor.first_token + *element / tensor.channels;
    place.channel = *element % tensor.channels;
  }
  return place;
}

}  // namespace nanscope
