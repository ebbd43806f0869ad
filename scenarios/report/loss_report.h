#pragma once
#include <string>

#include "scenarios/report/text.h"
#include "scenarios/text_loss.h"

/// What `nanscope loss` says of a text's loss.
namespace nanscope::report {

/// A line for each way of computing it: mean and standard error over the sequences, perplexity; then their gap.
std::string loss_text(const scenarios::TextLoss& loss, const std::string& text, const Terminal& terminal);
/// `nanscope.loss/1`: `text`, `length`, `parallel`, `autoregressive` and `gap` (each `mean` and `standard_error`; null
/// where there is none), and `sequences`.
std::string loss_json(const scenarios::TextLoss& loss, const std::string& text);
/// A line for each sequence: first_token,targets,parallel,autoregressive.
std::string loss_csv(const scenarios::TextLoss& loss);

}  // namespace nanscope::report
