#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "instrument/files/file.h"
#include "instrument/gguf/gguf_model.h"
#include "instrument/model/special_tokens.h"
#include "instrument/tokenizer/tokenizer.h"
#include "scenarios/report/tokens_report.h"

namespace nanscope::cli {
namespace {

constexpr std::uint64_t kMostToTokenize = std::uint64_t{1} << 24;

struct TokensArguments {
  std::string checkpoint;
  std::string text;
  std::string file;
  std::vector<std::int32_t> ids;
  bool has_text = false;
  std::string format = "text";
};

/// The file that holds the tokenizer: tokenizer.json in a folder, or the path itself.
Result<std::filesystem::path> tokenizer_file(const std::filesystem::path& checkpoint) {
  const auto gguf = gguf_of(checkpoint);
  if (!gguf) return tl::unexpected(gguf.error());
  if (*gguf) return **gguf;
  std::error_code error;
  return std::filesystem::is_directory(checkpoint, error) ? checkpoint / "tokenizer.json" : checkpoint;
}

/// The folder or the GGUF file that says which tokens have roles.
std::filesystem::path source_of_roles(const std::filesystem::path& checkpoint) {
  return checkpoint.extension() == ".json" ? checkpoint.parent_path() : checkpoint;
}

Result<report::TokensOf> tokens_of(const TokensArguments& arguments, const Tokenizer& tokenizer,
                                   const std::filesystem::path& file) {
  report::TokensOf made{.file = file.string(), .text = {}, .ids = arguments.ids, .special = {}};
  if (!arguments.file.empty()) {
    const auto bytes = read_file(arguments.file, kMostToTokenize);
    if (!bytes) return tl::unexpected(bytes.error());
    made.text = std::string(as_text(*bytes));
  } else if (arguments.has_text) {
    made.text = arguments.text;
  }
  if (made.text) {
    auto ids = tokenizer.encode(*made.text);
    if (!ids) return fail(fmt::format("{}: {}", file.string(), ids.error().message));
    made.ids = std::move(*ids);
  }
  for (const std::int32_t id : made.ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= tokenizer.vocab_size())
      return fail(fmt::format("{}: there is no token {}; ids are 0 to {}", file.string(), id,
                              static_cast<std::int64_t>(tokenizer.vocab_size()) - 1));
  }
  auto special = special_tokens(source_of_roles(arguments.checkpoint), tokenizer);
  if (!special) return tl::unexpected(special.error());
  made.special = std::move(*special);
  return made;
}

int show_tokens(const TokensArguments& arguments) {
  const auto file = tokenizer_file(arguments.checkpoint);
  if (!file) return complain(file.error().message);
  const auto tokenizer = Tokenizer::load(*file);
  if (!tokenizer) return complain(tokenizer.error().message);
  const auto made = tokens_of(arguments, *tokenizer, *file);
  if (!made) return complain(made.error().message);
  print(arguments.format == "json" ? report::tokens_json(*tokenizer, *made)
                                   : report::tokens_text(*tokenizer, *made, output_terminal()));
  return kClean;
}

}  // namespace

void add_tokens_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TokensArguments>();
  CLI::App* command = app.add_subcommand("tokens", "Show the tokens of a text, and which tokens have a role");
  command
      ->add_option("MODEL", arguments->checkpoint,
                   "A checkpoint's folder with tokenizer.json, such a file, or a GGUF file")
      ->required();
  auto* text = command->add_option("TEXT", arguments->text, "The text; without it, print the tokens with a role");
  auto* file = command->add_option("--file", arguments->file, "Read the text from this file, up to 16 MiB");
  file->excludes(text)->type_name("FILE");
  command->add_option("--ids", arguments->ids, "Show these token ids instead of a text's: 0,0,33")
      ->delimiter(',')
      ->excludes(text)
      ->excludes(file)
      ->type_name("ID,...");
  add_format(*command, arguments->format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  nanscope tokens model/ \"What is in the picture?\"\n"
      "  nanscope tokens model/ --ids 0,0,0\n"
      "  nanscope tokens model.gguf\n"
      "\n"
      "Exit codes: 0 printed, 2 bad usage or bad input.");
  command->callback([arguments, text, &action] {
    arguments->has_text = text->count() > 0;
    action = [arguments](Interrupt&) { return show_tokens(*arguments); };
  });
}

}  // namespace nanscope::cli
