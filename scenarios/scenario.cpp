#include "scenarios/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "instrument/files/file.h"
#include "instrument/files/near_names.h"
#include "instrument/files/toml_reader.h"
#include "scenarios/transients.h"

namespace nanscope::scenarios {

namespace {

constexpr std::uint64_t kScenarioBytes = 1u << 20;
constexpr std::uint64_t kImageBytes = 64u << 20;
constexpr std::int64_t kMaxTokens = 4096;
constexpr std::int64_t kMostSteps = 1048576;
constexpr std::int64_t kMostTokenId = 4'194'303;
constexpr std::array kKnobTables = {"model",     "rope",   "moe",    "norm",      "inner_norm", "activation", "kv",
                                    "attention", "scores", "engine", "allreduce", "sampling",   "train"};

/// One parse: what every part of it needs to know.
struct Parse {
  std::string file;
  std::filesystem::path folder;
  Scenario scenario;
  bool to_train = false;  ///< nothing is judged: it need not say what it is, nor what must come of it
};

Status read_knobs(Parse& parse, const toml::table& table, const std::string& prefix) {
  for (auto&& [key, value] : table) {
    const std::string name = prefix + std::string(key.str());
    const std::string where = toml_location(parse.file, value.source());
    const auto text = knob_text(value);
    if (!text) return fail(fmt::format("{}: {} must be one value, found {}", where, name, toml_kind(value)));
    parse.scenario.knobs.push_back({name, *text, where});
  }
  return {};
}

/// `text` or `image` of a request or of one of its parts.
Result<ScenarioPart> read_image(const Parse& parse, const std::string& image, const std::string& where) {
  auto bytes = read_file(parse.folder / image, kImageBytes);
  if (!bytes) return fail(fmt::format("{}: image: {}", where, bytes.error().message));
  return ScenarioPart{{}, image, std::move(*bytes), {}};
}

Status read_tokens(const toml::array& list, TomlReader& reader, std::vector<ScenarioPart>& parts) {
  ScenarioPart part;
  for (const toml::node& item : list) {
    const auto id = item.value_exact<std::int64_t>();
    if (!id || *id < 0 || *id > kMostTokenId) {
      return fail(fmt::format("{}: a token must be a number from 0 to {}", reader.where(item), kMostTokenId));
    }
    part.tokens.push_back(static_cast<std::int32_t>(*id));
  }
  if (part.tokens.empty()) return fail(fmt::format("{}: tokens is an empty list", reader.where()));
  parts.push_back(std::move(part));
  return {};
}

Status read_content(Parse& parse, TomlReader& reader, std::vector<ScenarioPart>& parts) {
  const auto text = reader.text("text");
  const auto image = reader.text("image");
  const toml::array* tokens = reader.array("tokens");
  if (tokens != nullptr && (text || image)) reader.reject("tokens beside text or image: give them an order with parts");
  if (tokens != nullptr) return read_tokens(*tokens, reader, parts);
  if (text && image) reader.reject("text and image together: give them an order with parts = [{text = ...}, ...]");
  if (text) parts.push_back({*text, {}, {}, {}});
  if (image && !text) {
    auto part = read_image(parse, *image, reader.where());
    if (!part) return tl::unexpected(part.error());
    parts.push_back(std::move(*part));
  }
  return {};
}

Status read_parts(Parse& parse, const toml::array& list, std::vector<ScenarioPart>& parts) {
  for (const toml::node& item : list) {
    if (!item.is_table()) {
      return fail(fmt::format("{}: a part must be {{text = ...}}, {{image = ...}} or {{tokens = [...]}}, found {}",
                              toml_location(parse.file, item.source()), toml_kind(item)));
    }
    TomlReader reader(*item.as_table(), parse.file, "a part");
    if (Status read = read_content(parse, reader, parts); !read) return read;
    if (Status finished = reader.finish(); !finished) return finished;
  }
  return {};
}

Status read_request(Parse& parse, const toml::table& table) {
  TomlReader reader(table, parse.file, "[[request]]");
  ScenarioRequest request;
  request.where = reader.where();
  request.name = reader.text("name").value_or(fmt::format("request-{}", parse.scenario.requests.size()));
  request.max_tokens = static_cast<int>(reader.integer("max_tokens", 0, kMaxTokens).value_or(request.max_tokens));
  request.arrive = reader.integer("arrive", 0, kMostSteps).value_or(0);
  if (Status read = read_content(parse, reader, request.parts); !read) return read;
  if (const toml::array* parts = reader.array("parts")) {
    if (!request.parts.empty()) reader.reject("parts beside text, image or tokens: put everything into parts");
    if (Status read = read_parts(parse, *parts, request.parts); !read) return read;
  }
  if (Status finished = reader.finish(); !finished) return finished;
  if (request.parts.empty())
    return fail(fmt::format("{}: a request needs text, image, tokens or parts", request.where));
  for (const ScenarioRequest& other : parse.scenario.requests) {
    if (other.name == request.name) {
      return fail(fmt::format("{}: a second request named '{}'", request.where, request.name));
    }
  }
  parse.scenario.requests.push_back(std::move(request));
  return {};
}

Status read_requests(Parse& parse, const toml::node& node) {
  const toml::array* list = node.as_array();
  if (!list) {
    return fail(fmt::format("{}: requests are written [[request]]", toml_location(parse.file, node.source())));
  }
  for (const toml::node& item : *list) {
    if (!item.is_table()) {
      return fail(fmt::format("{}: a request must be a table", toml_location(parse.file, item.source())));
    }
    if (Status read = read_request(parse, *item.as_table()); !read) return read;
  }
  return {};
}

/// A request by name or by number.
std::optional<std::size_t> find_request(const Scenario& scenario, std::string_view name) {
  for (std::size_t i = 0; i < scenario.requests.size(); ++i) {
    if (scenario.requests[i].name == name) return i;
  }
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && number < scenario.requests.size() ? std::optional(number) : std::nullopt;
}

std::string no_such_request(const Scenario& scenario, std::string_view name) {
  std::vector<std::string> names;
  for (const ScenarioRequest& request : scenario.requests) names.push_back(request.name);
  return fmt::format("no request '{}'{}", name, did_you_mean(name, names));
}

Status read_outputs(Parse& parse, const toml::table& table) {
  for (auto&& [key, value] : table) {
    const std::string where = toml_location(parse.file, value.source());
    const auto request = find_request(parse.scenario, key.str());
    if (!request) return fail(fmt::format("{}: {}", where, no_such_request(parse.scenario, key.str())));
    ExpectedOutput output;
    output.request = *request;
    if (const auto text = value.value_exact<std::string>()) {
      output.text = *text;
    } else if (const toml::table* inner = value.as_table()) {
      TomlReader reader(*inner, parse.file, "an expected output");
      const toml::node* flag = reader.node("all_bang");
      output.all_bang = flag && flag->value_exact<bool>().value_or(false);
      if (!output.all_bang) reader.reject("an expected output is a text or {all_bang = true}");
      if (Status finished = reader.finish(); !finished) return finished;
    } else {
      return fail(
          fmt::format("{}: an expected output is a text or {{all_bang = true}}, found {}", where, toml_kind(value)));
    }
    parse.scenario.expect.outputs.push_back(std::move(output));
  }
  return {};
}

Status read_places(Parse& parse, const toml::table& table) {
  for (auto&& [key, value] : table) {
    const auto fault = value.value_exact<std::string>();
    if (!fault) {
      return fail(fmt::format("{}: a place's fault class must be a string, found {}",
                              toml_location(parse.file, value.source()), toml_kind(value)));
    }
    parse.scenario.expect.places.push_back({std::string(key.str()), *fault});
  }
  return {};
}

Status read_nan_requests(Parse& parse, TomlReader& reader) {
  const toml::array* list = reader.array("requests_nan");
  if (!list) return {};
  std::vector<std::size_t> requests;
  for (const toml::node& item : *list) {
    const auto name = knob_text(item);
    const auto request = name ? find_request(parse.scenario, *name) : std::nullopt;
    if (!request) {
      return fail(fmt::format("{}: {}", reader.where(item), no_such_request(parse.scenario, name.value_or("?"))));
    }
    requests.push_back(*request);
  }
  std::sort(requests.begin(), requests.end());
  parse.scenario.expect.requests_nan = std::move(requests);
  return {};
}

void read_hash(Parse& parse, TomlReader& reader) {
  const auto text = reader.text("hash");
  if (!text) return;
  std::uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), hash, 16);
  if (error != std::errc() || end != text->data() + text->size() || text->size() != 16) {
    reader.reject("hash must be 16 hexadecimal digits, as `nanscope run` prints them");
  }
  parse.scenario.expect.hash = hash;
}

Status read_expect(Parse& parse, const toml::table& table) {
  TomlReader reader(table, parse.file, "[expect]");
  Expectation& expect = parse.scenario.expect;
  const std::string verdict = reader.text("verdict").value_or("");
  if (verdict != "clean" && verdict != "fault") reader.reject("[expect] needs verdict = \"clean\" or \"fault\"");
  expect.verdict = verdict == "fault" ? Verdict::fault : Verdict::clean;
  expect.fault_class = reader.text("class").value_or("");
  if (!expect.fault_class.empty() && expect.verdict == Verdict::clean) {
    reader.reject("[expect] names a class, so its verdict must be \"fault\"");
  }
  expect.chain = reader.texts("chain");
  expect.not_reached = reader.texts("not_reached");
  read_hash(parse, reader);
  if (Status read = read_nan_requests(parse, reader); !read) return read;
  if (const toml::table* outputs = reader.table("outputs")) {
    if (Status read = read_outputs(parse, *outputs); !read) return read;
  }
  if (const toml::table* places = reader.table("places")) {
    if (Status read = read_places(parse, *places); !read) return read;
  }
  return reader.finish();
}

/// A run answers requests or trains, not both.
Status check_requests(const Parse& parse) {
  const Scenario& scenario = parse.scenario;
  const auto steps = std::find_if(scenario.knobs.begin(), scenario.knobs.end(),
                                  [](const KnobSetting& knob) { return knob.name == "train.steps"; });
  const bool trains = parse.to_train || (steps != scenario.knobs.end() && steps->value != "0");
  if (trains && !scenario.requests.empty()) {
    return fail(fmt::format("{}: a run that trains (train.steps above 0) answers no requests; leave [[request]] out",
                            scenario.requests.front().where));
  }
  if (trains || !scenario.requests.empty()) return {};
  return fail(fmt::format("{}: a scenario needs at least one [[request]], or train.steps above 0", parse.file));
}

Status read_scenario(Parse& parse, const toml::table& root) {
  TomlReader reader(root, parse.file, "the scenario");
  Scenario& scenario = parse.scenario;
  auto name = reader.text("name");
  if (!name && parse.to_train) name = scenario.path.stem().string();
  scenario.name = name.value_or("");
  scenario.title = reader.text("title").value_or("");
  scenario.text = reader.text("text").value_or("");
  scenario.threads = reader.texts("threads");
  if (!name || name->empty()) {
    reader.reject("a scenario needs name = \"...\"");
  } else if (scenario.path.has_stem() && scenario.path.stem() != *name) {
    reader.reject(*root.get("name"), fmt::format("the scenario is named '{}', its file must be {}.toml", *name, *name));
  }
  for (const char* section : kKnobTables) {
    const toml::table* knobs = reader.table(section);
    if (!knobs) continue;
    if (Status read = read_knobs(parse, *knobs, std::string(section) + '.'); !read) return read;
  }
  if (const toml::node* requests = reader.node("request")) {
    if (Status read = read_requests(parse, *requests); !read) return read;
  }
  if (const toml::node* transients = reader.node("transient")) {
    auto read = read_transients(*transients, parse.file);
    if (!read) return tl::unexpected(read.error());
    scenario.transients = std::move(*read);
  }
  const toml::table* expect = reader.table("expect");
  if (Status finished = reader.finish(); !finished) return finished;
  if (Status requests = check_requests(parse); !requests) return requests;
  if (!expect && parse.to_train) return {};
  if (!expect) return fail(fmt::format("{}: a scenario needs [expect] with a verdict", parse.file));
  return read_expect(parse, *expect);
}

}  // namespace

namespace {

Result<Scenario> parse_file(std::string_view text, const std::filesystem::path& path, bool to_train) {
  Parse parse;
  parse.to_train = to_train;
  parse.file = path.string();
  parse.folder = path.parent_path();
  parse.scenario.path = path;
  const Result<toml::table> parsed = parse_toml(text, parse.file);
  if (!parsed) return tl::unexpected(parsed.error());
  if (Status read = read_scenario(parse, *parsed); !read) return tl::unexpected(read.error());
  return std::move(parse.scenario);
}

}  // namespace

Result<Scenario> parse_scenario(std::string_view text, const std::filesystem::path& path) {
  return parse_file(text, path, false);
}

Result<Scenario> load_scenario(const std::filesystem::path& path) {
  const auto bytes = read_file(path, kScenarioBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  return parse_file(as_text(*bytes), path, false);
}

Result<Scenario> load_training_scenario(const std::filesystem::path& path) {
  const auto bytes = read_file(path, kScenarioBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  return parse_file(as_text(*bytes), path, true);
}

Result<std::vector<std::filesystem::path>> scenario_files(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".toml") files.push_back(entry->path());
  }
  if (error) return fail(fmt::format("{}: {}", folder.string(), error.message()));
  if (files.empty()) return fail(fmt::format("{}: no scenario (*.toml) in this folder", folder.string()));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace nanscope::scenarios
