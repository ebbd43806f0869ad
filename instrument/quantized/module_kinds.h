#pragma once
#include <span>
#include <string_view>

/// What modules are to programs that quantize checkpoints and load them, by the last part of their names.
namespace nanscope {

/// Matrices that every loader leaves as floats: the head, routers, tables of embeddings.
bool is_kept_as_floats(std::string_view leaf);

/// The parts that servers run as one weight with this one, itself among them, in their order: q, k and v; gate and up.
/// Empty where it is none of a group.
std::span<const std::string_view> fused_parts(std::string_view leaf);

}  // namespace nanscope
