#pragma once
#include <string>
#include <string_view>

#include "instrument/diagnosis/diagnosis.h"
#include "scenarios/report/text.h"

/// A diagnosis as a person reads it, the same for recordings and dumps: blocks of lines that end with a newline, empty
/// when there is nothing to say.
namespace nanscope::report {

/// The verdict with its cause, its fix, what it led to and what is independent of it; of a clean run, what was covered.
std::string diagnosis_text(const Diagnosis& diagnosis, const Terminal& terminal);
/// The same below an answer that said it already. `cause_too`: not all of the cause was said.
std::string details_text(const Diagnosis& diagnosis, bool cause_too, const Terminal& terminal);
/// The events from a root cause to the answer, each with its place and one sentence.
std::string chain_text(const Diagnosis& diagnosis, const Terminal& terminal);
/// What was looked for: checked and excluded with the figure; not in the dump, with what to capture; not looked at.
std::string checks_text(const Diagnosis& diagnosis, const Terminal& terminal);
std::string warnings_text(const Diagnosis& diagnosis, const Terminal& terminal);
/// What was not understood or not read.
std::string notes_text(const Diagnosis& diagnosis, const Terminal& terminal);

std::string diagnosis_markdown(const Diagnosis& diagnosis);

/// "412 of 430 outputs recomputed, 99.998 % of 1234567 elements explained by rounding".
std::string coverage_text(const Diagnosis& diagnosis);
/// Without a fault: "clean, every output recomputed, 28 tokens", "no fault found, 6 of 348 outputs could not be
/// judged", "damaged, 2 parts could not be read", "nothing to judge: ...".
std::string verdict_words(const Diagnosis& diagnosis);
/// Green for clean, red for a fault or damage, yellow for what was not judged.
Ink verdict_ink(const Diagnosis& diagnosis);
/// The three most frequent reasons why outputs could not be judged; empty where all were.
std::string gaps_text(const Diagnosis& diagnosis);
/// The parts that could not be read, the first few.
std::string unread_text(const Diagnosis& diagnosis);
/// Why a fault is told: "because of kv-scale-locked in ...", or that nothing led to it.
std::string reason_text(const Diagnosis& diagnosis, std::size_t fault);
/// "412 of 900 ops are there, the last is 2/0/3/mlp_act": how far an interrupted recording got.
std::string progress_text(const Completeness& completeness);
/// As the producer wrote it, else as commands take it.
std::string place_of(const Fault& fault);
std::string place_of(const Event& event);
/// A cell of a Markdown table: no pipe may end it, no markup may start in it.
std::string markdown_cell(std::string_view text);

/// How certain the cause of a fault is, and what that means.
std::string certainty_text(const Fault& fault);
/// "vLLM --kv-cache-dtype auto, SGLang --kv-cache-dtype auto"; empty without settings.
std::string settings_text(const Fault& fault);

}  // namespace nanscope::report
