#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/bits_command.h"
#include "cli/command.h"
#include "core/blocks/presets.h"
#include "core/numbers/format.h"
#include "instrument/files/near_names.h"

namespace nanscope::cli {

namespace {

struct BitsArguments {
  BitsOptions bits;
  std::vector<std::string> values;
  BlockReportOptions block;
  MomentsOptions moments;
  bool of_moments = false;
  bool overflow = false;
  bool saturate = false;
  std::string format = "text";
};

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

std::string unknown_block(const std::string& typed) {
  std::vector<std::string> names;
  for (const BlockPreset& one : block_presets()) names.emplace_back(one.name);
  const bool near = nearest(typed, names) != nullptr;
  return fmt::format("bits: unknown block format '{}' (--block list prints all){}", typed,
                     near ? did_you_mean(typed, names) : "");
}

}  // namespace

void add_bits_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<BitsArguments>();
  CLI::App* command =
      app.add_subcommand("bits", "Show the anatomy of a number: fields, formula, neighbours, rounding error");
  command->add_option(
      "VALUE", arguments->values,
      "A value (430, nan, 0x1.8p3) or a code (0x7e); several values: a table, with -f; with --table, a format; with "
      "--block, the block's elements");
  command
      ->add_option("-f", arguments->bits.format,
                   fmt::format("The number format (default: all): {}", fmt::join(format_names(), ", ")))
      ->type_name("FORMAT");
  command->add_flag("--table", arguments->bits.table, "Print the whole table of the format");
  command->add_flag("--all", arguments->bits.all_codes,
                    "With --table: print one line per code, also for 16-bit formats");
  command
      ->add_option(
          "--block", arguments->block.preset,
          "Treat the values as one block of this format (mxfp4, nvfp4, fp8-block, q8_0, ...). Show its scale, each "
          "element's error, and the results of other scale rules and producers. --block list prints all formats")
      ->type_name("PRESET");
  auto* scale =
      command->add_option("--scale", arguments->bits.scale,
                          "The scale: real value = code value x scale; with --block, the tensor's scale (nvfp4)");
  scale->type_name("NUMBER");
  auto* overflow = command->add_flag("--no-saturate", arguments->overflow, "Overflow to Inf or NaN in every format");
  command
      ->add_flag("--saturate", arguments->saturate,
                 "Clip at the largest value in every format (default: in those of 8 bits and less)")
      ->excludes(overflow);
  command->add_flag("--ftz", arguments->bits.ftz,
                    "Flush subnormal f32 values to zero, as kernels compiled with -ftz=true do");
  auto* moments =
      command->add_flag("--moments", arguments->of_moments,
                        "Compute mean and variance of the values as norm kernels do; VALUE x COUNT repeats");
  command->add_option("--variance", arguments->moments.form, "With --moments: one form of the variance (default: all)")
      ->needs(moments)
      ->type_name("one-pass|one-pass-fused|two-pass|welford");
  command->add_option("--order", arguments->moments.order, "With --moments: one order of the sum (default: all)")
      ->needs(moments)
      ->type_name("sequential|warp|pairwise");
  command->add_option("--eps", arguments->moments.eps, "With --moments: what is added to the variance (default: 1e-05)")
      ->needs(moments)
      ->type_name("NUMBER");
  add_format(*command, arguments->format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  nanscope bits 430 -f e4m3\n"
      "  nanscope bits 0x7e -f e4m3\n"
      "  nanscope bits 5 11.2 15 20 50 -f e4m3 --scale 0.025\n"
      "  nanscope bits --table e4m3\n"
      "  nanscope bits --block mxfp4 0.1 3 -0.5 6.2\n"
      "  nanscope bits --moments 11.2 x 8\n"
      "\n"
      "Exit codes: 0 printed, 2 bad usage.");
  command->callback([arguments, scale, &action] {
    const bool scaled = scale->count() > 0;
    action = [arguments, scaled](Interrupt&) {
      const bool json = arguments->format == "json";
      if (arguments->block.preset == "list") {
        print(block_list());
        return kClean;
      }
      if (!arguments->block.preset.empty() && find_block_preset(arguments->block.preset) == nullptr) {
        return complain(unknown_block(arguments->block.preset));
      }
      if (!arguments->block.preset.empty()) {
        arguments->block.values = arguments->values;
        if (scaled) arguments->block.second = arguments->bits.scale;
        arguments->block.ascii = !output_terminal().utf8;
        return run_block(arguments->block, json);
      }
      if (!arguments->values.empty()) arguments->bits.input = arguments->values.front();
      if (arguments->bits.input.empty() && arguments->bits.format.empty())
        return complain("bits needs a VALUE (try nanscope bits --help)");
      for (const std::string* named :
           {&arguments->bits.format, arguments->bits.table ? &arguments->bits.input : nullptr}) {
        if (named == nullptr || named->empty() || format_from_name(*named)) continue;
        return complain(unknown_format(*named));
      }
      if (arguments->of_moments)
        return run_moments(arguments->moments, arguments->bits.format, arguments->values, json);
      if (arguments->overflow) arguments->bits.overflow = Overflow::overflow;
      if (arguments->saturate) arguments->bits.overflow = Overflow::saturate;
      arguments->bits.ascii = !output_terminal().utf8;
      if (arguments->values.size() > 1) return run_bits_values(arguments->bits, arguments->values, json);
      return run_bits(arguments->bits, json);
    };
  });
}

}  // namespace nanscope::cli
