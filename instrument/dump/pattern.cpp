#include "instrument/dump/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <cstddef>

namespace nanscope {
namespace {

constexpr std::size_t kMaxPattern = 4096;
constexpr std::uint32_t kMatchLimit = 100'000;
constexpr std::uint32_t kHeapLimit = 4 * 1024;  ///< KiB

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct Free {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};

}  // namespace

Result<Pattern> Pattern::compile(std::string_view text) {
  if (text.empty() || text.size() > kMaxPattern) {
    return fail(fmt::format("a pattern of {} bytes, expected 1 to {}", text.size(), kMaxPattern));
  }
  int error = 0;
  std::size_t offset = 0;
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), kOptions, &error, &offset, nullptr);
  if (code == nullptr) return fail(fmt::format("wrong at offset {}: {}", offset, pcre2_message(error)));
  Pattern pattern;
  pattern.text_ = text;
  pattern.code_ = std::shared_ptr<const void>(
      code, [](const void* p) { pcre2_code_free(const_cast<pcre2_code*>(static_cast<const pcre2_code*>(p))); });
  return pattern;
}

Result<std::optional<std::vector<std::string>>> Pattern::find(std::string_view subject) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create_from_pattern(code, nullptr));
  const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
  if (!match || !context) return fail("out of memory for a match");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimit);
  const int found =
      pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), 0, 0, match.get(), context.get());
  if (found == PCRE2_ERROR_NOMATCH) return std::optional<std::vector<std::string>>();
  if (found < 0) return fail(fmt::format("the pattern {} fails on {}: {}", text_, subject, pcre2_message(found)));
  const std::size_t* ends = pcre2_get_ovector_pointer(match.get());
  std::vector<std::string> groups;
  for (std::uint32_t i = 0; i < pcre2_get_ovector_count(match.get()); ++i) {
    // \K can put the start of a match behind its end.
    const bool took_part = ends[2 * i] != PCRE2_UNSET && ends[2 * i] <= ends[2 * i + 1];
    groups.emplace_back(took_part ? subject.substr(ends[2 * i], ends[2 * i + 1] - ends[2 * i]) : std::string_view());
  }
  return std::optional(std::move(groups));
}

std::string filled_in(std::string_view text, const std::vector<std::string>& groups) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool reference = text[i] == '$' && i + 1 < text.size() && text[i + 1] >= '1' && text[i + 1] <= '9';
    if (!reference) {
      out += text[i];
      continue;
    }
    const auto group = static_cast<std::size_t>(text[++i] - '0');
    if (group < groups.size()) out += groups[group];
  }
  return out;
}

}  // namespace nanscope
