#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "cli/interrupt.h"
#include "core/result.h"
#include "instrument/diagnosis/diagnosis.h"
#include "scenarios/report/text.h"

/// The commands. Each file parses its command's options, calls the libraries and prints their results.
namespace nanscope::cli {

// Exit codes. The exit code of an interrupted command is Interrupt::code().
inline constexpr int kClean = 0;         ///< clean, or as expected
inline constexpr int kFound = 1;         ///< a fault, or a missed expectation
inline constexpr int kBadInput = 2;      ///< bad usage or bad input
inline constexpr int kNotJudged = 3;     ///< nothing to judge, or less than --min-coverage
inline constexpr int kReaderGone = 141;  ///< the reader of standard output closed it, as head(1) does

/// The exit code of a diagnosis.
int code_of(const Diagnosis& diagnosis);

/// Prints elements that could not be read as one line on standard error. Files that could not be read have their own
/// lines.
void complain_unread(const std::string& target, const Diagnosis& diagnosis);

/// Runs the chosen command and returns the exit code. The parser sets it.
using Action = std::function<int(Interrupt&)>;

void add_attach_command(CLI::App& app, Action& action);
void add_export_command(CLI::App& app, Action& action);
void add_report_command(CLI::App& app, Action& action);
void add_probe_command(CLI::App& app, Action& action);
void add_serve_command(CLI::App& app, Action& action);
void add_run_command(CLI::App& app, Action& action);
void add_replay_command(CLI::App& app, Action& action);
void add_diagnose_command(CLI::App& app, Action& action);
void add_why_command(CLI::App& app, Action& action);
void add_diff_command(CLI::App& app, Action& action);
void add_bits_command(CLI::App& app, Action& action);
void add_scan_command(CLI::App& app, Action& action);
void add_merge_command(CLI::App& app, Action& action);
void add_tokens_command(CLI::App& app, Action& action);
void add_loss_command(CLI::App& app, Action& action);
void add_memory_command(CLI::App& app, Action& action);
void add_gui_command(CLI::App& app, Action& action);  ///< only with NANSCOPE_GUI
void add_scenarios_command(CLI::App& app, Action& action);
void add_trace_command(CLI::App& app, Action& action);
void add_verify_command(CLI::App& app, Action& action);
void add_inspect_command(CLI::App& app, Action& action);
void add_quantize_command(CLI::App& app, Action& action);
void add_scales_command(CLI::App& app, Action& action);
void add_causality_command(CLI::App& app, Action& action);
void add_train_command(CLI::App& app, Action& action);
void add_policies_command(CLI::App& app, Action& action);
void add_help_command(CLI::App& app, Action& action);

// The help does not list these: they serve packages and shells.
void add_manual_command(CLI::App& app, Action& action);
void add_completions_command(CLI::App& app, Action& action);
void add_complete_command(CLI::App& app, Action& action);

/// Adds `--format`. `allowed`: its values, such as text and json.
CLI::Option* add_format(CLI::App& app, std::string& format, const std::vector<std::string>& allowed);

/// Adds `--model DIR`, for commands that diagnose dumps.
CLI::Option* add_dump_model(CLI::App& app, std::string& model);

/// Adds `--follow-links`, for commands that read dumps.
CLI::Option* add_follow_links(CLI::App& app, bool& follow_links);

/// Properties of standard output. Width in columns: COLUMNS, else the terminal's, else 100; from 60 to 140. Colour: on
/// a terminal, unless NO_COLOR is set or TERM is dumb. UTF-8: as the locale says.
report::Terminal output_terminal();

/// Prints the line `who: message` to standard error, the message cut to kLongestError characters. Returns kBadInput.
int complain(std::string_view message, std::string_view who = "nanscope");
/// Prints to standard output, with control characters escaped. close_output() reports a failed write.
void print(std::string_view text);
/// Prints and flushes, for output that appears in parts. False: a write failed, so further output is useless.
bool print_now(std::string_view text);
/// errno of the first failed write to standard output; 0: no write failed.
int output_error();

}  // namespace nanscope::cli
