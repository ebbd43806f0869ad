#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

/// What memory holds that somebody else used before.
namespace nanscope::corpus {

/// A recurrent state in f32, standard normals.
std::vector<std::byte> state_bytes(std::uint64_t seed, std::size_t count);
/// A table of indices of which most are -1: "no slot".
std::vector<std::byte> index_bytes(std::uint64_t seed, std::size_t count);

}  // namespace nanscope::corpus
