#pragma once
#include <cstddef>
#include <functional>
#include <stop_token>

#include "core/diagnosis/diagnosis.h"
#include "core/dump/dump.h"
#include "core/result.h"

namespace nanscope {

struct DiagnoseOptions {
  std::function<void(std::size_t done, std::size_t total)> progress;  ///< detectors, from the calling thread
  std::stop_token stop;
};

/// Applies every detector of core/dump/detectors to the numbers of a dump. The root cause is the earliest link
/// that the numbers prove; `because` ties what follows from it in the same or a later pass.
/// Errors: stopped.
Result<Diagnosis> diagnose_dump(const Dump& dump, DumpElements& elements, const DiagnoseOptions& options = {});

}  // namespace nanscope
