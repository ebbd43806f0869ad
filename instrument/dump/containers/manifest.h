#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "instrument/dump/container.h"

namespace nanscope {

/// Raw binary files beside a description of what they hold: our own format, for programs that can write
/// bytes and text but nothing else.
///
///     manifest.json    {"tensors": [ENTRY, ...], "any other field": kept as metadata}
///     manifest.jsonl   one ENTRY a line
///     ENTRY            {"name": "layers.0.q", "file": "data.bin", "dtype": "bf16", "shape": [2, 3],
///                       "offset": 0, "order": "C"}
///
/// `dtype` is any name that core/dump/dtype.h knows. `offset` (bytes, 0 when left out) is where the
/// tensor begins; without it the file must be exactly as long as the tensor. `order` is "C" (row-major,
/// the default) or "F" (first index fastest). Files must lie in the manifest's folder or below it, also
/// behind links, and tensors of one file must not overlap. Fields that are not listed here are kept as
/// metadata under NAME.FIELD. A file that is missing is said: its tensors are skipped.
Result<std::unique_ptr<Container>> open_manifest(const std::filesystem::path& path);

/// The same of a manifest's text, for a folder.
Result<std::unique_ptr<Container>> read_manifest(std::span<const std::byte> text, const std::filesystem::path& path);

}  // namespace nanscope
