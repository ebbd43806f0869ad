#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dump/dtype.h"
#include "core/dump/tensor_name.h"
#include "core/result.h"
#include "core/run/op_attributes.h"
#include "core/run/run_view.h"
#include "core/run/tensor_source.h"
#include "core/tensor/health.h"

/// What somebody else's server left behind: tensors with names, and nothing else that can be relied on.
namespace nanscope {

/// One tensor of a dump. Its elements are a matrix: the last dimension is the channels, all others the rows.
struct DumpTensor {
  std::string name;  ///< its path below the dump and its key: "step_001/model.layers.0.mlp.output"
  TensorName at;     ///< what the name says
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  /// How the elements are read as numbers. Not always the dtype's: codes of fp8 are often stored as u8.
  std::optional<Format> format;
  bool guessed = false;    ///< neither dtype nor name say the format of these bytes
  std::string file;        ///< below the dump
  std::size_t source = 0;  ///< what DumpElements calls it
  Health health;           ///< over all elements as `format` reads them; empty when there is none
  /// Its health is what was measured when it was dumped, and its elements were not. Counts of NaN and Inf say then that
  /// there is one, not how many, and rows say nothing.
  bool stated = false;
  bool decoded = false;  ///< it is codes times scales already, whatever scales the dump has
  std::shared_ptr<const GemmAttributes> product =
      nullptr;  ///< of a weight: what its checkpoint says of the product; or null

  std::int64_t rows() const;
  std::int64_t channels() const;
  std::int64_t count() const { return rows() * channels(); }
  bool bad() const { return health.bad() > 0; }
};

/// Tensors of weights, scales, ids and masks: what a forward pass reads and does not compute.
bool is_parameter(const DumpTensor& tensor);

struct Dump {
  std::string target;
  std::string producer;             ///< "safetensors", "PyTorch hooks", "SGLang dumper", ...
  std::vector<DumpTensor> tensors;  ///< in the order of execution
  std::vector<RunNote> notes;
  std::size_t unknown = 0;              ///< tensors whose name is in no table
  std::optional<std::size_t> expected;  ///< how many the producer says there are
};

/// Puts tensors into the order of execution: `recorded` ranks where the producer wrote them down (one a tensor,
/// or empty), else folders in natural order, then the family's order of modules.
void sort_by_execution(std::vector<DumpTensor>& tensors, std::span<const std::int64_t> recorded = {});

/// The elements of a dump, for as long as it is open.
class DumpElements {
 public:
  virtual ~DumpElements() = default;
  /// As they are stored, row-major. Errors: the file cannot be read, the tensor has no elements.
  virtual Result<ElementBytes> bytes(const DumpTensor& tensor) = 0;
  /// Health of each row, the last dimension being the channels.
  virtual Result<std::vector<Health>> row_health(const DumpTensor& tensor) = 0;

  /// `count` elements from row-major index `first` as numbers, unscaled.
  Result<std::vector<float>> values(const DumpTensor& tensor, std::int64_t first, std::int64_t count);
  /// All elements of a tensor of integers or booleans.
  Result<std::vector<std::int64_t>> integers(const DumpTensor& tensor);
};

}  // namespace nanscope
