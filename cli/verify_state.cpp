#include "cli/verify_state.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <system_error>

#include "core/parse_json.h"
#include "core/text/safe_text.h"
#include "instrument/files/file.h"

namespace nanscope::cli {
namespace {

using Json = nlohmann::json;
constexpr std::uint64_t kMostState = std::uint64_t{1} << 30;

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json to_json(const VerifiedOutput& one) {
  Json out{{"name", one.name},
           {"op", one.op},
           {"kind", one.kind},
           {"layer", one.layer.value_or(-1)},
           {"step", one.step},
           {"elements", one.elements},
           {"explained", one.explained},
           {"distance", one.distance},
           {"off", one.off},
           {"rows", one.rows},
           {"bad_rows", one.bad_rows},
           {"not_finite", one.not_finite},
           {"pass", one.pass}};
  out["worst"] = {one.worst.row,      one.worst.channel, one.worst.actual,
                  one.worst.expected, one.worst.bound,   one.worst.ratio};
  for (const ScatteredRow& row : one.scattered) out["scattered"].push_back({row.row, row.elements, row.mean_square});
  for (const ExplainedBy& each : one.explanations)
    out["explanations"].push_back({each.alternative, each.text, each.op, each.share, each.distance});
  return out;
}

VerifiedOutput from_json(const Json& json) {
  VerifiedOutput one;
  one.name = json.at("name").get<std::string>();
  one.op = json.at("op").get<std::string>();
  one.kind = json.at("kind").get<std::string>();
  if (const auto layer = json.at("layer").get<std::int64_t>(); layer >= 0) one.layer = layer;
  one.step = json.at("step").get<std::int64_t>();
  one.pass = json.at("pass").get<std::string>();
  one.elements = json.at("elements").get<std::int64_t>();
  one.explained = json.at("explained").get<std::int64_t>();
  const auto number = [](const Json& value) { return value.is_number() ? value.get<double>() : INFINITY; };
  one.distance = number(json.at("distance"));
  one.off = json.at("off").get<bool>();
  one.rows = json.at("rows").get<std::int64_t>();
  one.bad_rows = json.at("bad_rows").get<std::vector<std::int64_t>>();
  one.not_finite = json.at("not_finite").get<std::vector<std::int64_t>>();
  const Json& worst = json.at("worst");
  one.worst = {worst.at(0).get<std::int64_t>(),
               worst.at(1).get<std::int64_t>(),
               number(worst.at(2)),
               number(worst.at(3)),
               number(worst.at(4)),
               number(worst.at(5))};
  for (const Json& each : json.value("scattered", Json::array()))
    one.scattered.push_back({each.at(0).get<std::int64_t>(), each.at(1).get<std::int64_t>(), number(each.at(2))});
  for (const Json& each : json.value("explanations", Json::array()))
    one.explanations.push_back({each.at(0).get<std::string>(), each.at(1).get<std::string>(),
                                each.at(2).get<std::string>(), number(each.at(3)), number(each.at(4))});
  return one;
}

}  // namespace

Result<VerifyState> VerifyState::open(const std::string& path, const std::string& about) {
  VerifyState state;
  std::error_code error;
  // An empty file is one that a full disk, or a kill, left.
  const bool exists = std::filesystem::exists(path, error) && !std::filesystem::is_empty(path, error);
  if (exists) {
    const auto bytes = read_file(path, kMostState);
    if (!bytes) return tl::unexpected(bytes.error());
    std::istringstream lines{std::string(as_text(*bytes))};
    std::string line;
    bool first = true;
    while (std::getline(lines, line)) {
      const Json json = parse_json_or_none<Json>(line);
      if (first && (!json.is_object() || json.value("nanscope.verify", Json()) != Json(about)))
        return fail(path + ": is the state of another check: the dump, the model, the selection or a file differs");
      if (!first && json.is_object()) {
        try {
          VerifiedOutput one = from_json(json);
          state.known_.insert_or_assign(one.name, std::move(one));
        } catch (const Json::exception&) {
          continue;  // an incomplete line
        }
      }
      first = false;
    }
  }
  state.file_.open(path, std::ios::app);
  if (!state.file_) return fail(path + ": cannot be written");
  state.path_ = path;
  if (!exists) state.file_ << text_of(Json{{"nanscope.verify", about}}) << std::endl;
  if (Status written = state.status(); !written) return tl::unexpected(written.error());
  return state;
}

std::optional<VerifiedOutput> VerifyState::known(const std::string& name) const {
  const auto found = known_.find(name);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

Status VerifyState::status() const {
  return file_ ? Status() : fail(path_ + ": cannot be written; the disk may be full");
}

void VerifyState::found(const VerifiedOutput& one) {
  if (!known_.contains(one.name)) file_ << text_of(to_json(one)) << std::endl;
}

}  // namespace nanscope::cli
