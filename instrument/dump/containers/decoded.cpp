#include "instrument/dump/containers/decoded.h"

#include <algorithm>
#include <utility>

#include "core/numbers/format_table.h"
#include "instrument/quantized/product_inputs.h"

namespace nanscope {
namespace {

/// Whether numbers of a format change when they are rounded to another.
bool loses(Format from, Format to) {
  return info(from).mantissa_bits > info(to).mantissa_bits || info(from).exponent_bits > info(to).exponent_bits;
}

}  // namespace

void DecodedContainer::add(std::size_t module, const StoredMatrix& matrix, std::optional<Format> scales_as) {
  ContainedTensor tensor;
  tensor.key = modules_[module].path + (scales_as ? ".weight_decoded" : ".weight");
  tensor.dtype = find_dtype("float32");
  tensor.shape = {matrix.rows, matrix.columns};
  tensor.decoded = true;
  GemmAttributes product = product_of(modules_[module], config_);
  const PackedWeight* layout = matrix.layout.get();
  const bool in_order = layout != nullptr && std::is_sorted(layout->group_of.begin(), layout->group_of.end());
  if (in_order && !layout->zero_points.empty()) product.weight_group = matrix.block_columns;
  tensor.product = std::make_shared<const GemmAttributes>(std::move(product));
  tensors_.push_back(std::move(tensor));
  decoded_.push_back({module, scales_as});
}

Result<std::unique_ptr<DecodedContainer>> DecodedContainer::open(const std::filesystem::path& folder,
                                                                 std::optional<Format> served) {
  auto config = read_quantization_config(folder);
  if (!config) return tl::unexpected(config.error());
  if (config->method == QuantMethod::none) return nullptr;
  auto files = CheckpointFiles::open(folder);
  if (!files) return tl::unexpected(files.error());
  std::unique_ptr<DecodedContainer> made(new DecodedContainer(std::move(*files), std::move(*config)));
  for (StoredModule& module : stored_modules(made->files_)) {
    const auto matrix = stored_matrix(module, made->config_);
    if (!matrix || !matrix->quantized()) continue;
    for (const auto& [part, one] : module.tensors) {
      if (part != "bias" && !is_of_input(part)) made->made_of_.insert(one.entry->name);
    }
    made->modules_.push_back(std::move(module));
    made->add(made->modules_.size() - 1, *matrix, std::nullopt);
    if (served && loses(*matrix->scale, *served)) made->add(made->modules_.size() - 1, *matrix, served);
  }
  return made;
}

Result<TensorBytes> DecodedContainer::bytes(std::size_t tensor) const {
  auto matrix = stored_matrix(modules_[decoded_[tensor].module], config_);
  if (!matrix) return fail(matrix.error());
  matrix->scales_as = decoded_[tensor].scales_as;
  const auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(matrix->rows * matrix->columns));
  const auto columns = static_cast<std::size_t>(matrix->columns);
  for (std::int64_t row = 0; row < matrix->rows; ++row) {
    matrix->row(row, std::span(*values).subspan(static_cast<std::size_t>(row) * columns, columns));
  }
  return TensorBytes{std::as_bytes(std::span<const float>(*values)), values};
}

}  // namespace nanscope
