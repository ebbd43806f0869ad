#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/bits_command.h"
#include "cli/command.h"
#include "core/numbers/format.h"
#include "instrument/files/near_names.h"

namespace nanscope::cli {

namespace {

struct BitsArguments {
  BitsOptions bits;
  bool overflow = false;
  std::string format = "text";
};

}  // namespace

namespace {

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const FormatInfo& one : formats()) names.emplace_back(one.name);
  return names;
}

std::string unknown_format(const std::string& typed) {
  const std::vector<std::string> names = format_names();
  const bool near = nearest(typed, names) != nullptr;
  return fmt::format("bits: unknown format '{}'; known: {}{}", typed, fmt::join(names, " "),
                     near ? did_you_mean(typed, names) : "");
}

}  // namespace

void add_bits_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<BitsArguments>();
  CLI::App* command = app.add_subcommand("bits", "The anatomy of a number: fields, formula, neighbours, what is lost");
  command->add_option("VALUE", arguments->bits.input,
                      "A value (430, nan, 0x1.8p3), a code (0x7e), or with --table a format");
  command
      ->add_option("-f", arguments->bits.format,
                   fmt::format("The number format (default: all of them): {}", fmt::join(format_names(), ", ")))
      ->type_name("FORMAT");
  command->add_flag("--table", arguments->bits.table, "The whole table of the format");
  command->add_flag("--all", arguments->bits.all_codes, "With --table: one line a code, for 16-bit formats too");
  command->add_option("--scale", arguments->bits.scale, "real = code value x scale")->type_name("NUMBER");
  command->add_flag("--no-saturate", arguments->overflow, "The cast overflows to Inf or NaN instead of saturating");
  add_format(*command, arguments->format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  nanscope bits 430 -f e4m3\n"
      "  nanscope bits 0x7e -f e4m3\n"
      "  nanscope bits --table e4m3");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt&) {
      if (arguments->bits.input.empty() && arguments->bits.format.empty())
        return complain("bits: which number? (try nanscope bits --help)");
      for (const std::string* named :
           {&arguments->bits.format, arguments->bits.table ? &arguments->bits.input : nullptr}) {
        if (named == nullptr || named->empty() || format_from_name(*named)) continue;
        return complain(unknown_format(*named));
      }
      arguments->bits.overflow = arguments->overflow ? Overflow::overflow : Overflow::saturate;
      arguments->bits.ascii = !output_terminal().utf8;
      return run_bits(arguments->bits, arguments->format == "json");
    };
  });
}

}  // namespace nanscope::cli
