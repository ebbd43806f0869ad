#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "instrument/quantized/quantization_config.h"

namespace nanscope {

/// How a loader runs q, k and v, or gate and up, whose checkpoint has a scale for each.
enum class FusedScales : std::uint8_t {
  apart,        ///< they are not fused
  per_row,      ///< fused; each row keeps the scale of its part
  requantized,  ///< fused; codes are made anew by the largest scale
  largest,      ///< fused; the largest scale is taken for all, the codes stay
};

/// Of the checkpoint's scales of the KV cache. Value of one that is left out, or is not used as it is.
struct KvRules {
  std::string_view neither;             ///< what is used where neither is there
  std::string_view neither_in_ct = {};  ///< the same for compressed-tensors
  bool zeros_are_one = false;           ///< both 0 mean 1; else they are refused
  bool one_number = false;              ///< more than one stops loading, but for compressed-tensors' [heads,1,1]
  bool makes_scales_of_heads = false;   ///< of a cache with scales of tokens and heads: those of the file are dropped
  std::string_view q_missing = {};      ///< what is used where there is no q_scale beside the others; empty: not known
};

/// A program that loads checkpoints, as data. One file of loaders/ and one line of loaders.def each.
struct Loader {
  std::string_view name;
  std::string_view version;  ///< whose sources were read
  /// Whether a module is left as floats, by the config's list as this loader reads it.
  bool (*ignores)(const QuantizationConfig& config, std::string_view module);
  /// Whether the quant_method is one of its own.
  bool (*knows)(const QuantizationConfig& config);
  /// Why it refuses checkpoints of a config whose method it knows, as a clause; empty where it does not.
  std::string (*refuses)(const QuantizationConfig& config) = nullptr;
  std::string_view unknown_method;  ///< what it does with one that it does not know
  std::string_view missing_scale;   ///< what stands where a scale was not loaded
  /// What the one scale of a weight is called under quant_method fp8.
  std::string_view fp8_tensor_scale;
  bool needs_activation_scheme = false;  ///< under quant_method fp8
  FusedScales fused_fp8 = FusedScales::apart;
  FusedScales fused_global = FusedScales::apart;  ///< of the second scale of blocks of 4-bit codes
  bool decodes_by_bf16 = false;    ///< compressed-tensors' NVFP4, and codes under scales of 16 bits, whatever the dtype
  bool reads_input_scales = true;  ///< fixed ones, of products whose inputs are quantized
  bool fused_input_largest = false;  ///< the largest of the parts' input scales is taken for all
  bool ragged_by_counts = false;     ///< takes rows over scale rows for the height of a block
  bool fused_blocks_whole = false;   ///< refuses a part of a fused weight whose rows are no multiple of the block's
  bool fused_last_may_be_ragged = false;      ///< unless it is the last
  bool requantizes_to_powers_of_two = false;  ///< of blocks' scales, on GPUs with products for those alone
  bool fused_scalar_fills_one = false;  ///< of a weight that is fused in the file, one scale fills the first part alone
  bool drops_expert_global = false;     ///< decodes experts of 4-bit blocks without the second scale
  bool reads_gptq_zero_points = true;   ///< else each is taken for 2^(bits - 1)
  const KvRules* kv = nullptr;          ///< null: scales of the KV cache are not read
};

#define NANSCOPE_LOADER(name) const Loader& name##_loader();
#include "instrument/inspect/loaders.def"
#undef NANSCOPE_LOADER

/// All of them, in the order of loaders.def.
std::span<const Loader* const> loaders();

/// Null when there is none of that name.
const Loader* find_loader(std::string_view name);

/// Whether a module is one of the list, by names alone: what vLLM and SGLang do, whose fused layers are skipped where
/// all of their parts are.
bool listed_by_name(const QuantizationConfig& config, std::string_view module);
/// The list of a compressed-tensors config: names, and expressions behind "re:" from the beginning on.
bool listed_by_expression(const QuantizationConfig& config, std::string_view module);
/// The list of a ModelOpt config: wildcards, and whatever is a part of the name.
bool listed_by_wildcard(const QuantizationConfig& config, std::string_view module);
/// The list as transformers reads it: expressions from the beginning on that end where a name of the path does, or the
/// end of the path.
bool listed_by_beginning(const QuantizationConfig& config, std::string_view module);

}  // namespace nanscope
