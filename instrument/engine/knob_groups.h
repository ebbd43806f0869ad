#pragma once
#include <vector>

#include "instrument/engine/knobs.h"

/// Groups of the registry that have a file of their own.
namespace nanscope {

std::vector<Knob> model_knobs();
std::vector<Knob> rope_knobs();
std::vector<Knob> moe_knobs();
std::vector<Knob> rank_knobs();
std::vector<Knob> score_knobs();
std::vector<Knob> attention_block_knobs();
std::vector<Knob> train_knobs();

}  // namespace nanscope
