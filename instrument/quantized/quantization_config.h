#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// Who wrote a quantized checkpoint, as its quant_method says.
enum class QuantMethod : std::uint8_t {
  none,
  fp8,
  mxfp8,
  compressed_tensors,
  modelopt,
  mxfp4,
  fbgemm_fp8,
  torchao,
  gptq,
  awq,
  bitsandbytes,
  other
};

/// What is quantized at run time of a product's other operand.
enum class InputScales : std::uint8_t {
  none,     ///< nothing: the weights alone are quantized
  dynamic,  ///< by what runs
  fixed,    ///< by a scale in the checkpoint
};

/// One of compressed-tensors' groups: modules that are quantized alike.
struct QuantGroup {
  std::vector<std::string> targets;  ///< classes ("Linear"), names, or expressions behind "re:"
  std::int64_t bits = 0;
  std::string type;                         ///< "float", "int"
  std::string strategy;                     ///< "tensor", "channel", "group", "tensor_group", "block"
  bool symmetric = true;                    ///< no zero points
  bool act_order = false;                   ///< groups are of columns in the order of their activations
  std::int64_t group_size = 0;              ///< elements of a row that share a scale; 0: not by groups
  std::array<std::int64_t, 2> block{0, 0};  ///< rows and columns that share a scale; 0: not by blocks
  InputScales inputs = InputScales::none;
  std::int64_t input_bits = 0;
  std::string input_type;             ///< "float", "int"
  std::string input_strategy;         ///< "tensor", "token", "group", ...
  std::int64_t input_group_size = 0;  ///< elements of a row of the input that share a scale
  bool input_symmetric = true;
  std::string input_scale_format;  ///< what scales of the input are rounded to; empty: nothing
};

/// quantization_config of config.json, or hf_quant_config.json beside it, in one form. What a producer does not say has
/// its default; what is not known of it is passed over.
struct QuantizationConfig {
  QuantMethod method = QuantMethod::none;
  std::string name;    ///< quant_method as written
  std::string format;  ///< compressed-tensors' format, ModelOpt's quant_algo, GPTQ's checkpoint_format, AWQ's version
  bool states_inputs = false;
  InputScales inputs = InputScales::dynamic;
  std::optional<std::array<std::int64_t, 2>> block;  ///< weight_block_size
  bool states_block = false;                         ///< the key is there, be it null
  bool powers_of_two = false;                        ///< scale_fmt is ue8m0
  std::vector<std::string> ignored;                  ///< modules that are not quantized, as written
  std::vector<QuantGroup> groups;
  std::string kv_cache;  ///< kv_cache_quant_algo, or "FP8" for a kv_cache_scheme; empty: none

  /// In a few words: "fp8, blocks of 128 x 128, dynamic inputs".
  std::string text() const;
};

/// "compressed-tensors, fbgemm_fp8, ...": the values of quant_method that are one of QuantMethod.
std::string quant_method_names();

/// Of a checkpoint folder; of a GGUF file, whose tensors say how they are stored, none. Errors: config.json is not
/// there, no JSON, or has a key of the wrong type.
Result<QuantizationConfig> read_quantization_config(const std::filesystem::path& folder);

/// The same of the texts of the two files, the second of which may be empty; `file` is what errors call the first.
Result<QuantizationConfig> parse_quantization_config(std::string_view config, const std::string& file,
                                                     std::string_view modelopt, const std::string& modelopt_file);

}  // namespace nanscope
