#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>

#include "core/files/output_file.h"
#include "core/recording/reader.h"
#include "core/result.h"
#include "core/run/tensor_source.h"

namespace nanscope::scenarios {

struct ExportOptions {
  OutputOptions output{.durable = true};                                ///< `replace`: into a folder that is not empty
  std::function<void(std::int64_t done, std::int64_t total)> progress;  ///< steps
  std::stop_token stop;
};

/// Writes the tensors of a run as a production dump: safetensors, one file a step in request_R/step_S/, under the names
/// that forward hooks on a Llama give them, KV codes with the scales of the ledger beside them, and nothing that says
/// whose run it was. Gives the number of tensors. The folder has its name, or its files, when all are written.
/// Errors: the folder is not empty or cannot be written, elements cannot be had, stopped.
Result<std::int64_t> export_dump(const Recording& recording, TensorSource& tensors, const std::filesystem::path& folder,
                                 const ExportOptions& options = {});

}  // namespace nanscope::scenarios
