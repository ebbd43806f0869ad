#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "cli/interrupt.h"
#include "core/result.h"
#include "scenarios/report/text.h"

/// The commands. Each file parses its own options, asks the libraries, prints what they say.
namespace nanscope::cli {

inline constexpr int kClean = 0;     ///< clean, or as expected
inline constexpr int kFound = 1;     ///< a fault, or an expectation missed
inline constexpr int kBadInput = 2;  ///< bad usage or bad input
inline constexpr int kReaderGone =
    141;  ///< of the answer, as head(1) leaves; an interrupted command: Interrupt::code()

/// What the chosen command does, set while the arguments are parsed; returns the exit code.
using Action = std::function<int(Interrupt&)>;

void add_attach_command(CLI::App& app, Action& action);
void add_export_command(CLI::App& app, Action& action);
void add_report_command(CLI::App& app, Action& action);
void add_run_command(CLI::App& app, Action& action);
void add_replay_command(CLI::App& app, Action& action);
void add_diagnose_command(CLI::App& app, Action& action);
void add_why_command(CLI::App& app, Action& action);
void add_diff_command(CLI::App& app, Action& action);
void add_bits_command(CLI::App& app, Action& action);
void add_gui_command(CLI::App& app, Action& action);  ///< built with NANSCOPE_GUI alone
void add_scenarios_command(CLI::App& app, Action& action);
void add_trace_command(CLI::App& app, Action& action);
void add_verify_command(CLI::App& app, Action& action);
void add_inspect_command(CLI::App& app, Action& action);
void add_quantize_command(CLI::App& app, Action& action);
void add_scales_command(CLI::App& app, Action& action);
void add_causality_command(CLI::App& app, Action& action);
void add_train_command(CLI::App& app, Action& action);

void add_policies_command(CLI::App& app, Action& action);

// Not in the help: for packages and shells.
void add_manual_command(CLI::App& app, Action& action);
void add_completions_command(CLI::App& app, Action& action);
void add_complete_command(CLI::App& app, Action& action);

/// The `--format` option: text, json, and what else the command speaks.
CLI::Option* add_format(CLI::App& app, std::string& format, const std::vector<std::string>& allowed);

/// The `--follow-links` option of commands that read dumps.
CLI::Option* add_follow_links(CLI::App& app, bool& follow_links);

/// The terminal on standard output: its width, which COLUMNS says where it is set, 60 to 140; colour only there, UTF-8
/// as the locale says.
report::Terminal output_terminal();

/// Prints `nanscope: message` on standard error, one line of at most kLongestError characters, and gives kBadInput.
int complain(std::string_view message, std::string_view who = "nanscope");
/// To standard output, lines that a terminal may see whatever they were made of. What cannot be written is known at the
/// end, see close_output().
void print(std::string_view text);
/// The same at once, for an answer that comes in parts. False: it cannot be written, nobody waits for the rest.
bool print_now(std::string_view text);
/// The reason why something printed was not written, as errno has it; 0: there is none yet.
int output_error();

}  // namespace nanscope::cli
