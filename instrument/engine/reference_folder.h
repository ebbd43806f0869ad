#pragma once
#include <filesystem>
#include <stop_token>
#include <string>

#include "core/files/output_file.h"
#include "core/result.h"
#include "instrument/engine/config.h"

namespace nanscope {

/// The config.json of a model whose weights have our own names, as the family "reference" reads it: model, norm.eps,
/// activation.format and kv.format of `config`, with `vocabulary` rows of the embedding. Errors: a knob of the model
/// that the family cannot state, by name.
Result<std::string> reference_config_json(const EngineConfig& config, std::int64_t vocabulary);

/// Writes the reference model as the folder of a checkpoint that read_model_spec() reads: config.json, its weights in
/// f32 as model.safetensors, and the shipped tokenizer.json. A run of the folder has the bits of a run of `config`, of
/// which model, norm.eps, activation.format and kv.format are stated; other knobs are a deployment's. Errors:
/// model.weights is not "reference", a knob that the family "reference" cannot state, by name; the folder is not empty
/// (unless output.replace) or cannot be written.
Status write_reference_folder(const EngineConfig& config, const std::filesystem::path& folder,
                              const OutputOptions& output, std::stop_token stop = {});

}  // namespace nanscope
