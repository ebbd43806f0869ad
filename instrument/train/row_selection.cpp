#include "instrument/train/row_selection.h"

#include <cstddef>
#include <vector>

#include "kernels/ops/embedding.h"

namespace nanscope::train {

using kernels::TensorView;

namespace {

template <class T>
void upload(Backward& backward, const TensorView& to, std::span<const T> values) {
  if (!backward.ok() || values.empty()) return;
  if (Status done = backward.parts().device.upload(to.data, std::as_bytes(values)); !done) {
    backward.fail_with(done.error().message);
  }
}

/// Row indices[t] of x in row t; zeros where that is -1.
void look_up(Backward& backward, const TensorView& indices, const TensorView& x, const TensorView& out) {
  backward.launch(kernels::EmbeddingArgs{
      .tokens = indices, .patch_rows = {}, .table = x, .patches = {}, .positions = {}, .out = out});
}

}  // namespace

TensorView uploaded(Backward& backward, std::span<const std::int32_t> rows) {
  const TensorView view = backward.memory(Format::i32, std::ssize(rows), 1);
  upload(backward, view, rows);
  return view;
}

const RowSelection& select_rows(Backward& backward, std::span<const std::int32_t> rows, std::int64_t all) {
  std::vector<std::int32_t> places(static_cast<std::size_t>(all), -1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    places[static_cast<std::size_t>(rows[i])] = static_cast<std::int32_t>(i);
  }
  return backward.keep({std::ssize(rows), uploaded(backward, rows), uploaded(backward, places)});
}

TensorView selected(Backward& backward, const RowSelection* rows, const TensorView& x) {
  if (rows == nullptr || !x.given()) return x;
  const TensorView out = backward.scratch(x.format, rows->count, x.columns);
  if (rows->count > 0) look_up(backward, rows->rows, x, out);
  return out;
}

TensorView memory_of(Backward& backward, const RowSelection* rows, Format format, std::int64_t count,
                     std::int64_t columns) {
  return rows == nullptr ? backward.memory(format, count, columns) : backward.scratch(format, rows->count, columns);
}

TensorView put_back(Backward& backward, const RowSelection* rows, const TensorView& part) {
  if (rows == nullptr || !part.given()) return part;
  const TensorView out = backward.memory(part.format, rows->places.rows, part.columns);
  look_up(backward, rows->places, part, out);
  return out;
}

TensorView zeros(Backward& backward, std::int64_t rows, std::int64_t columns) {
  const TensorView view = backward.memory(Format::f32, rows, columns);
  const std::vector<float> values(static_cast<std::size_t>(rows * columns), 0.0F);
  upload(backward, view, std::span(values));
  return view;
}

}  // namespace nanscope::train
