#include "instrument/inspect/loader.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>

#include "instrument/files/regex.h"

namespace nanscope {

namespace {

constexpr RegexLimits kLimits{.pattern_bytes = 4096, .steps = 100'000, .heap_kib = 1024};

/// An expression of the checkpoint, which is not trusted: one that is none, or takes too long, matches nothing.
bool matches(const std::string& expression, std::string_view text) {
  const auto regex = Regex::compile(expression, RegexSyntax::ascii, kLimits);
  if (!regex) return false;
  Regex::Matcher matcher(*regex);
  const auto found = matcher.find(text, 0, true);
  return found && *found;
}

struct Parts {
  std::string_view fused;
  std::array<std::string_view, 3> of;
};
constexpr std::array<Parts, 2> kFused = {
    {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}}, {"gate_up_proj", {"gate_proj", "up_proj", ""}}}};

bool is_listed(const QuantizationConfig& config, std::string_view module) {
  return std::find(config.ignored.begin(), config.ignored.end(), module) != config.ignored.end();
}

}  // namespace

std::span<const Loader* const> loaders() {
  static const std::array all = {
#define NANSCOPE_LOADER(name) &name##_loader(),
#include "instrument/inspect/loaders.def"
#undef NANSCOPE_LOADER
  };
  return all;
}

const Loader* find_loader(std::string_view name) {
  const auto all = loaders();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Loader* one) { return one->name == name; });
  return found == all.end() ? nullptr : *found;
}

bool listed_by_name(const QuantizationConfig& config, std::string_view module) {
  if (is_listed(config, module)) return true;
  const std::string parent(module.substr(0, module.rfind('.') + 1));
  const std::string_view leaf = module.substr(module.rfind('.') + 1);
  for (const Parts& parts : kFused) {
    if (leaf == parts.fused) {
      return std::all_of(parts.of.begin(), parts.of.end(), [&](std::string_view part) {
        return part.empty() || is_listed(config, parent + std::string(part));
      });
    }
  }
  return false;
}

bool listed_by_expression(const QuantizationConfig& config, std::string_view module) {
  return std::any_of(config.ignored.begin(), config.ignored.end(), [&](const std::string& one) {
    return one.starts_with("re:") ? matches("^(?:" + one.substr(3) + ")", module) : one == module;
  });
}

bool listed_by_wildcard(const QuantizationConfig& config, std::string_view module) {
  const std::string name(module);
  return std::any_of(config.ignored.begin(), config.ignored.end(), [&](const std::string& one) {
    return fnmatch(one.c_str(), name.c_str(), 0) == 0 || (!one.empty() && name.find(one) != std::string::npos);
  });
}

bool listed_by_beginning(const QuantizationConfig& config, std::string_view module) {
  return std::any_of(config.ignored.begin(), config.ignored.end(), [&](const std::string& one) {
    return module.ends_with(one) || matches("^(?:" + one + ")(?:(?<=\\.)|(?=\\.|$))", module);
  });
}

}  // namespace nanscope
