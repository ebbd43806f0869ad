#include <charconv>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/output_file.h"
#include "instrument/files/file.h"
#include "instrument/tokenizer/bpe_trainer.h"

namespace {

nanscope::Status train(const std::string& text_path, int merge_count, const std::string& out_path,
                       const std::vector<std::string>& specials) {
  const auto text = nanscope::read_file(text_path, std::uint64_t{64} << 20);
  if (!text) return tl::unexpected(text.error());
  const auto merges = nanscope::train_bpe(nanscope::as_text(*text), merge_count);
  if (!merges) return tl::unexpected(merges.error());
  const std::string json = nanscope::tokenizer_json(*merges, specials);
  return nanscope::write_output(out_path, json, {.replace = true});
}

}  // namespace

/// Makes the project's tokenizer.json from its text:
///   train_tokenizer TEXT MERGES OUT.json [SPECIAL]...
int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  int merge_count = 0;
  if (arguments.size() >= 3) {
    const std::string& number = arguments[1];
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), merge_count);
    if (parsed.ptr != number.data() + number.size() || merge_count > 1'000'000) merge_count = 0;
  }
  if (merge_count < 1) {
    std::fputs("usage: train_tokenizer TEXT MERGES OUT.json [SPECIAL]...\n", stderr);
    return 2;
  }
  const auto status = train(arguments[0], merge_count, arguments[2], {arguments.begin() + 3, arguments.end()});
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 2;
}
