#include "scenarios/run_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/parse_json.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/model_folder.h"
#include "instrument/files/near_names.h"
#include "instrument/gguf/gguf_model.h"
#include "instrument/spectral/scale_file.h"
#include "instrument/train/text_batches.h"

namespace nanscope::scenarios {

namespace {

constexpr std::string_view kSchema = "nanscope.run/1";

using Ordered = nlohmann::ordered_json;

std::string dump(const Ordered& json) { return json.dump(-1, ' ', false, Ordered::error_handler_t::replace); }

/// Knobs whose value names a file, unless it is one of the words.
bool names_file(const KnobSetting& knob) {
  if (knob.name == "model.tokenizer" || knob.name == "scores.scales" || knob.name == "train.text")
    return !knob.value.empty();
  return knob.name == "model.weights" && knob.value != "reference" && knob.value != "random";
}

/// set_knob() with a proposal for a mistyped name. A folder of weights, or a GGUF file, sets what it says of its model.
Status set(EngineConfig& config, std::string_view name, std::string_view value) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(value, error);
  if (name == "model.weights" && (folder || gguf_of(value).value_or(std::nullopt)))
    return use_model_folder(config, value);
  if (find_knob(name)) return set_knob(config, name, value);
  std::vector<std::string> names;
  for (const Knob& knob : knobs()) names.push_back(knob.name);
  return fail(fmt::format("unknown knob '{}'{}", name, did_you_mean(name, names)));
}

/// Records the bytes of the text and of the scales where no hash of them is known, so that a replay does not use
/// others.
Status hash_files(EngineConfig& config) {
  if (config.train.steps > 0 && config.train.text_hash.empty()) {
    auto hash = train::text_hash(config.train.text);
    if (!hash) return tl::unexpected(hash.error());
    config.train.text_hash = std::move(*hash);
  }
  if (!config.scores.scales.empty() && config.scores.scales_hash.empty()) {
    auto hash = scale_file_hash(config.scores.scales);
    if (!hash) return fail("scores.scales: " + hash.error().message);
    config.scores.scales_hash = std::move(*hash);
  }
  return {};
}

/// The hash that a run's configuration has for a file; empty without one.
Result<std::string> hash_in(const nlohmann::json& json, const char* file) {
  const auto found = json.find(file);
  if (found == json.end()) return std::string();
  const nlohmann::json hash = found->is_object() ? found->value("hash", nlohmann::json()) : nlohmann::json();
  if (!hash.is_string()) return fail(fmt::format("run configuration: {} has no hash", file));
  return hash.get<std::string>();
}

RequestSpec request_spec(const ScenarioRequest& request) {
  RequestSpec spec;
  spec.name = request.name;
  spec.max_tokens = request.max_tokens;
  spec.arrive = request.arrive;
  for (const ScenarioPart& part : request.parts) {
    if (!part.tokens.empty()) {
      spec.parts.emplace_back(TokensPart{part.tokens});
    } else if (part.image.empty()) {
      spec.parts.emplace_back(TextPart{part.text});
    } else {
      spec.parts.emplace_back(ImagePart{part.image, part.png});
    }
  }
  return spec;
}

Result<RequestSpec> request_from_json(const nlohmann::json& json, std::size_t index) {
  if (!json.is_object() || !json.contains("parts")) {
    return fail(fmt::format("run configuration: request {} has no parts", index));
  }
  RequestSpec spec;
  const auto name = json.find("name");
  if (name != json.end() && name->is_string()) spec.name = name->get<std::string>();
  const auto tokens = json.find("max_tokens");
  const bool counted = tokens != json.end() && tokens->is_number_integer();
  const std::int64_t count = counted ? tokens->get<std::int64_t>() : -1;
  if (count < 0 || count > std::numeric_limits<int>::max()) {
    return fail(fmt::format("run configuration: request {} has no valid max_tokens", index));
  }
  spec.max_tokens = static_cast<int>(count);
  if (const auto arrive = json.find("arrive"); arrive != json.end()) {
    if (!arrive->is_number_integer() || arrive->get<std::int64_t>() < 0) {
      return fail(fmt::format("run configuration: request {} has no valid arrive", index));
    }
    spec.arrive = arrive->get<std::int64_t>();
  }
  if (const auto fresh = json.find("fresh"); fresh != json.end()) {
    if (!fresh->is_boolean()) return fail(fmt::format("run configuration: request {} has no valid fresh", index));
    spec.fresh = fresh->get<bool>();
  }
  auto parts = prompt_from_json(json.at("parts").dump());
  if (!parts) return fail(fmt::format("run configuration: request {}: {}", index, parts.error().message));
  spec.parts = std::move(*parts);
  return spec;
}

}  // namespace

Result<RunSpec> resolve(const Scenario& scenario) {
  RunSpec spec;
  spec.scenario = scenario.name;
  // What a checkpoint says of its model comes before what the scenario changes of it.
  std::vector<KnobSetting> knobs = scenario.knobs;
  std::stable_partition(knobs.begin(), knobs.end(),
                        [](const KnobSetting& knob) { return knob.name == "model.weights"; });
  for (const KnobSetting& knob : knobs) {
    std::string value = knob.value;
    if (names_file(knob)) value = (scenario.path.parent_path() / value).lexically_normal().string();
    if (Status done = set(spec.config, knob.name, value); !done) {
      return fail(fmt::format("{}: {}", knob.where, done.error().message));
    }
  }
  if (Status shape = check(spec.config); !shape) {
    return fail(scenario.where() + shape.error().message);
  }
  if (Status hashed = hash_files(spec.config); !hashed) return fail(scenario.where() + hashed.error().message);
  for (const ScenarioRequest& request : scenario.requests) spec.requests.push_back(request_spec(request));
  spec.transients = scenario.transients;
  for (Transient& one : spec.transients) {
    const bool drawn = one.load.empty() || one.load == "reference" || one.load == "random";
    if (!drawn) one.load = (scenario.path.parent_path() / one.load).lexically_normal().string();
    const ScoresConfig& scores = spec.config.scores;
    const bool scaled = scores.format != Format::f32 || scores.qk_format != Format::f32;
    if (one.kind == TransientKind::forget_scores && !scaled) {
      return fail(scenario.where() + "a transient forgets scales of scores, and scores.format=f32 has none");
    }
  }
  if (Status fitting = check(spec.transients, spec.config); !fitting) {
    return fail(scenario.where() + fitting.error().message);
  }
  return spec;
}

std::vector<std::filesystem::path> files_read(const RunSpec& spec) {
  std::vector<std::filesystem::path> files = nanscope::files_read(spec.config);
  for (const Transient& transient : spec.transients) {
    if (!transient.load.empty()) files.emplace_back(transient.load);
  }
  return files;
}

Status apply_settings(EngineConfig& config, std::span<const std::string> settings) {
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      return fail(fmt::format("'{}': expected SETTING=VALUE, for example kv.format=bf16", setting));
    }
    const std::string_view text = setting;
    if (Status done = set(config, text.substr(0, equals), text.substr(equals + 1)); !done) return done;
    if (text.starts_with("train.text=")) config.train.text_hash.clear();
    if (text.starts_with("scores.scales=")) config.scores.scales_hash.clear();
  }
  if (Status fits = check(config); !fits) return fits;
  return hash_files(config);
}

std::string to_json(const RunSpec& spec) {
  Ordered json;
  json["schema"] = kSchema;
  json["knobs"] = parse_json_or_none<Ordered>(config_to_json(spec.config));
  if (spec.served) json["served"] = true;
  json["requests"] = Ordered::array();
  for (const RequestSpec& request : spec.requests) {
    json["requests"].push_back({{"name", request.name},
                                {"max_tokens", request.max_tokens},
                                {"parts", parse_json_or_none<Ordered>(prompt_to_json(request.parts))}});
    if (request.arrive > 0) json["requests"].back()["arrive"] = request.arrive;
    if (request.fresh) json["requests"].back()["fresh"] = true;
  }
  if (!spec.config.train.text_hash.empty()) json["train_text"] = {{"hash", spec.config.train.text_hash}};
  if (!spec.config.scores.scales_hash.empty()) json["score_scales"] = {{"hash", spec.config.scores.scales_hash}};
  if (!spec.transients.empty()) json["transients"] = parse_json_or_none<Ordered>(to_json(spec.transients));
  return dump(json);
}

Result<RunSpec> run_spec_from_json(std::string_view text, std::string scenario) {
  const auto json = parse_json_or_none(text);
  if (!json.is_object()) return fail("run configuration: not a JSON object, so this run cannot be replayed");
  if (json.value("schema", nlohmann::json()) != kSchema) {
    return fail(fmt::format("run configuration: its schema is not {}, so this run cannot be replayed", kSchema));
  }
  if (!json.contains("knobs") || !json.contains("requests") || !json.at("requests").is_array()) {
    return fail("run configuration: knobs or requests are missing");
  }
  if (json.contains("served")) {
    return fail("run configuration: the server was ended before it wrote its requests, so this run cannot be replayed");
  }
  RunSpec spec;
  spec.scenario = std::move(scenario);
  auto config = config_from_json(json.at("knobs").dump());
  if (!config) return tl::unexpected(config.error());
  spec.config = std::move(*config);
  if (Status shape = check(spec.config); !shape) return tl::unexpected(shape.error());
  auto text_hash = hash_in(json, "train_text");
  if (!text_hash) return tl::unexpected(text_hash.error());
  spec.config.train.text_hash = std::move(*text_hash);
  auto scales_hash = hash_in(json, "score_scales");
  if (!scales_hash) return tl::unexpected(scales_hash.error());
  spec.config.scores.scales_hash = std::move(*scales_hash);
  for (const nlohmann::json& item : json.at("requests")) {
    auto request = request_from_json(item, spec.requests.size());
    if (!request) return tl::unexpected(request.error());
    spec.requests.push_back(std::move(*request));
  }
  if (const auto written = json.find("transients"); written != json.end()) {
    auto transients = transients_from_json(written->dump());
    if (!transients) return fail("run configuration: " + transients.error().message);
    spec.transients = std::move(*transients);
    if (Status fitting = check(spec.transients, spec.config); !fitting) return tl::unexpected(fitting.error());
  }
  return spec;
}

}  // namespace nanscope::scenarios
