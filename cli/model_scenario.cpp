#include "cli/model_scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "instrument/gguf/gguf_model.h"

namespace nanscope::cli {

namespace fs = std::filesystem;

namespace {

Result<std::vector<std::int32_t>> token_ids(std::string_view list) {
  std::vector<std::int32_t> ids;
  for (std::string_view left = list; !left.empty();) {
    const std::string_view item = left.substr(0, left.find(','));
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), id);
    if (error != std::errc() || end != item.data() + item.size() || id < 0) {
      return fail(fmt::format("--prompt-tokens: '{}' is not a token id", item));
    }
    ids.push_back(id);
    left.remove_prefix(std::min(left.size(), item.size() + 1));
  }
  if (ids.empty()) return fail("--prompt-tokens: expected token ids, such as 1,17,42");
  return ids;
}

}  // namespace

Result<scenarios::Scenario> scenario_of_model(const ModelPrompts& options) {
  std::error_code error;
  const fs::path folder = fs::absolute(options.model, error).lexically_normal();
  const auto gguf = gguf_of(folder);
  if (!gguf) return tl::unexpected(gguf.error());
  if (!*gguf && !fs::is_directory(folder, error)) {
    return fail(fmt::format("{}: expected a checkpoint's folder, with config.json and *.safetensors, or a GGUF file",
                            options.model));
  }
  scenarios::Scenario scenario;
  scenario.path = *gguf ? **gguf : folder / "config.json";
  scenario.has_file = false;
  scenario.name = (folder.filename().empty() ? folder.parent_path() : folder).filename().string();
  if (folder.extension() == ".gguf") scenario.name = folder.stem().string();
  scenario.title = scenario.name;
  scenario.knobs.push_back({"model.weights", folder.string(), "--model"});
  for (const std::string& setting : options.settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      return fail(fmt::format("--set '{}': expected SETTING=VALUE, for example kv.format=e4m3", setting));
    }
    scenario.knobs.push_back({setting.substr(0, equals), setting.substr(equals + 1), "--set"});
  }
  const auto add = [&](scenarios::ScenarioPart part) {
    scenarios::ScenarioRequest request;
    request.name = fmt::format("request-{}", scenario.requests.size());
    request.max_tokens = options.tokens;
    request.parts.push_back(std::move(part));
    scenario.requests.push_back(std::move(request));
  };
  for (const std::string& text : options.prompts) add({text, {}, {}, {}});
  for (const std::string& list : options.prompt_tokens) {
    Result<std::vector<std::int32_t>> ids = token_ids(list);
    if (!ids) return tl::unexpected(ids.error());
    add({{}, {}, {}, std::move(*ids)});
  }
  if (scenario.requests.empty() && !options.asked_later)
    return fail("--model needs a prompt: -p PROMPT, or --prompt-tokens ID,ID,...");
  return scenario;
}

}  // namespace nanscope::cli
