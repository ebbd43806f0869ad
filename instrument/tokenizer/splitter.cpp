#include "instrument/tokenizer/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstddef>

namespace nanscope {
namespace {

constexpr std::size_t kMaxPattern = 65536;
/// Backtracking steps and memory (KiB) that one match may take: the pattern comes from a file.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::uint32_t kHeapLimit = 64 * 1024;

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

Result<Splitter> Splitter::compile(std::string_view pattern, unsigned options, Keep keep) {
  if (pattern.empty() || pattern.size() > kMaxPattern) {
    return fail("split pattern of " + std::to_string(pattern.size()) + " bytes, expected 1 to " +
                std::to_string(kMaxPattern));
  }
  int error = 0;
  std::size_t offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   options | PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr);
  if (code == nullptr) {
    return fail("split pattern is wrong at offset " + std::to_string(offset) + ": " + pcre2_message(error));
  }
  return Splitter(
      std::shared_ptr<const void>(
          code, [](const void* p) { pcre2_code_free(const_cast<pcre2_code*>(static_cast<const pcre2_code*>(p))); }),
      keep);
}

Result<Splitter> Splitter::regex(std::string_view pattern, Keep keep) {
  return compile(pattern, PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, keep);
}

Result<Splitter> Splitter::literal(std::string_view text, Keep keep) { return compile(text, PCRE2_LITERAL, keep); }

Status Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create_from_pattern(code, nullptr));
  const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
  if (!match || !context) return fail("out of memory for a match");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimit);

  const auto add = [&](std::size_t begin, std::size_t end, bool is_match) {
    if (begin == end || (keep_ == Keep::matches && !is_match) || (keep_ == Keep::gaps && is_match)) return;
    pieces.push_back(text.substr(begin, end - begin));
  };
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t done = 0;      // everything before has become a piece
  std::size_t position = 0;  // the search goes on here
  while (position < text.size()) {
    const int found = pcre2_match(code, subject, text.size(), position, PCRE2_NOTEMPTY, match.get(), context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return fail("split pattern fails at byte " + std::to_string(position) + " of the text: " + pcre2_message(found));
    }
    const std::size_t* ends = pcre2_get_ovector_pointer(match.get());
    // \K can put the start of a match behind its end or before the search's start.
    if (ends[0] < done || ends[1] <= ends[0]) return fail("split pattern moves the start of its match");
    add(done, ends[0], false);
    add(ends[0], ends[1], true);
    done = position = ends[1];
  }
  add(done, text.size(), false);
  return {};
}

}  // namespace nanscope
