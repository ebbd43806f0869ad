#include "instrument/files/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>

namespace nanscope {
namespace {

static_assert(Regex::kUnset == PCRE2_UNSET);

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

std::uint32_t options_of(RegexSyntax syntax) {
  if (syntax == RegexSyntax::literal) return PCRE2_LITERAL;
  return PCRE2_NEVER_BACKSLASH_C | (syntax == RegexSyntax::unicode ? PCRE2_UCP : 0U);
}

pcre2_match_data* data_of(const std::shared_ptr<void>& held) { return static_cast<pcre2_match_data*>(held.get()); }

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern, RegexSyntax syntax, const RegexLimits& limits,
                             RegexSubject subject) {
  if (pattern.empty() || pattern.size() > limits.pattern_bytes) {
    return fail(fmt::format("{} bytes long, expected 1 to {}", pattern.size(), limits.pattern_bytes));
  }
  int error = 0;
  std::size_t offset = 0;
  const std::uint32_t invalid = subject == RegexSubject::bytes ? PCRE2_MATCH_INVALID_UTF : 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   options_of(syntax) | PCRE2_UTF | invalid, &error, &offset, nullptr);
  if (code == nullptr) return fail(fmt::format("wrong at offset {}: {}", offset, pcre2_message(error)));
  Regex regex;
  regex.code_ = std::shared_ptr<const void>(
      code, [](const void* p) { pcre2_code_free(const_cast<pcre2_code*>(static_cast<const pcre2_code*>(p))); });
  regex.limits_ = limits;
  return regex;
}

Regex::Matcher::Matcher(const Regex& regex) : code_(regex.code_) {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  match_ = std::shared_ptr<void>(pcre2_match_data_create_from_pattern(code, nullptr),
                                 [](void* p) { pcre2_match_data_free(static_cast<pcre2_match_data*>(p)); });
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  context_ =
      std::shared_ptr<void>(context, [](void* p) { pcre2_match_context_free(static_cast<pcre2_match_context*>(p)); });
  if (context == nullptr) return;
  pcre2_set_match_limit(context, regex.limits_.steps);
  pcre2_set_heap_limit(context, regex.limits_.heap_kib);
}

Result<bool> Regex::Matcher::find(std::string_view subject, std::size_t from, bool may_be_empty) {
  return match(subject, from, may_be_empty ? 0 : PCRE2_NOTEMPTY);
}

Result<bool> Regex::Matcher::find_in_stretch(std::string_view stretch, std::size_t from, bool begins_text,
                                             bool ends_text) {
  return match(stretch, from,
               PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK | (begins_text ? 0 : PCRE2_NOTBOL) | (ends_text ? 0 : PCRE2_NOTEOL));
}

Result<bool> Regex::Matcher::match(std::string_view subject, std::size_t from, std::uint32_t options) {
  if (!match_ || !context_) return fail("out of memory for a match");
  const int found =
      pcre2_match(static_cast<const pcre2_code*>(code_.get()), reinterpret_cast<PCRE2_SPTR>(subject.data()),
                  subject.size(), from, options, data_of(match_), static_cast<pcre2_match_context*>(context_.get()));
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) return fail(pcre2_message(found));
  return true;
}

std::size_t Regex::Matcher::groups() const { return pcre2_get_ovector_count(data_of(match_)); }
std::size_t Regex::Matcher::begin(std::size_t group) const {
  return pcre2_get_ovector_pointer(data_of(match_))[2 * group];
}
std::size_t Regex::Matcher::end(std::size_t group) const {
  return pcre2_get_ovector_pointer(data_of(match_))[2 * group + 1];
}

}  // namespace nanscope
