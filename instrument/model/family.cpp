#include "instrument/model/family.h"

#include <algorithm>
#include <array>

namespace nanscope {

#define NANSCOPE_FAMILY(name) extern const ModelFamily family_##name;
#include "instrument/model/families.def"
#undef NANSCOPE_FAMILY

namespace {

constexpr std::array kFamilies = {
#define NANSCOPE_FAMILY(name) &family_##name,
#include "instrument/model/families.def"
#undef NANSCOPE_FAMILY
};

bool is_listed(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::string_view first = words.substr(0, words.find(' '));
    if (first == word) return true;
    words.remove_prefix(std::min(words.size(), first.size() + 1));
  }
  return false;
}

}  // namespace

std::span<const ModelFamily* const> model_families() { return kFamilies; }

const ModelFamily* find_family(std::string_view name) {
  const auto found =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](const auto* one) { return one->name == name; });
  return found == kFamilies.end() ? nullptr : *found;
}

const ModelFamily* family_of_type(std::string_view model_type) {
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                  [&](const auto* one) { return is_listed(one->model_types, model_type); });
  return found == kFamilies.end() ? nullptr : *found;
}

std::string model_family_names() {
  std::string names;
  for (const ModelFamily* family : kFamilies) names.append("|").append(family->name);
  return names;
}

}  // namespace nanscope
