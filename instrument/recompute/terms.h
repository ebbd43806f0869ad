#pragma once
#include <string>
#include <utility>
#include <vector>

#include "instrument/recompute/values.h"

/// What recipes of sums of two terms share.
namespace nanscope {

/// Of the block of a mixture with an expert that every token has. Fused kernels put out the sum itself.
std::vector<OpForm> forms_of_block();
/// One of both left out, or added twice. `fault_alone`: no model does it so in all of its layers.
std::vector<OpForm> faults_of_sum(const std::string& first, const std::string& second, bool fault_alone);
/// Of such a block. Models have factors on its terms: MiniMax-M3's is 2.
std::vector<OpForm> faults_of_block();
/// What the terms are multiplied by.
std::pair<double, double> factors_of_sum(const OpForm& form);
/// A term times a factor, rounded with roundoff `u` unless nothing is left to round.
void multiply(Block& term, double factor, double u);

}  // namespace nanscope
