#include "core/dump/layout.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>

namespace nanscope {
namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t product(const Shape& shape, std::size_t begin, std::size_t end) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(begin),
                         shape.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1}, std::multiplies<>());
}

bool one_of(std::string_view role, std::initializer_list<std::string_view> roles) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

/// The last dimension as channels, all others as rows.
Layout matrix(const Shape& shape, Axis axis) {
  Layout out;
  out.axis = axis;
  out.rows = shape.empty() ? 1 : product(shape, 0, shape.size() - 1);
  out.width = shape.empty() ? 1 : shape.back();
  out.inner_stride = out.outer_stride = out.width;
  return out;
}

/// (outer, inner, heads, width) in that order of dimensions, or (outer, heads, inner, width).
Layout four(std::int64_t outer, std::int64_t inner, std::int64_t heads, std::int64_t width, bool heads_first,
            Axis axis) {
  Layout out;
  out.axis = axis;
  out.rows = outer * inner;
  out.heads = heads;
  out.width = width;
  out.inner = std::max<std::int64_t>(1, inner);
  out.outer_stride = inner * heads * width;
  out.inner_stride = heads_first ? width : heads * width;
  out.head_stride = heads_first ? inner * width : width;
  return out;
}

Axis rows_axis(const Frame& frame, std::int64_t rows) {
  std::int64_t live = 0;
  for (const Span& span : frame.spans) live += span.rows;
  if (rows == frame.rows) return Axis::rows;
  if (rows == live) return Axis::live;
  return rows == static_cast<std::int64_t>(frame.spans.size()) ? Axis::ends : Axis::none;
}

/// q, k, v and what attention makes of them, as far as the extents say which dimension is which.
Layout heads_layout(const DumpTensor& tensor, const Frame& frame, const Geometry& geometry) {
  const Shape& shape = tensor.shape;
  const bool elsewhere_first = geometry.heads_first.contains({tensor.at.op, tensor.at.role});
  const std::size_t n = shape.size();
  const auto is_heads = [&](std::int64_t extent) { return extent == geometry.heads || extent == geometry.kv_heads; };
  const std::int64_t length = frame.batch > 0 ? frame.rows / frame.batch : frame.rows;
  if (n == 4) {
    const bool heads_last = shape[0] * shape[1] == frame.rows && (shape[1] == length || shape[0] == 1);
    const bool heads_first = shape[0] * shape[2] == frame.rows;
    const bool alike = shape[1] == shape[2];
    const bool first =
        heads_first && (!heads_last || (is_heads(shape[1]) && !is_heads(shape[2])) || (alike && elsewhere_first));
    if (heads_first || heads_last) {
      return first ? four(shape[0], shape[2], shape[1], shape[3], true, rows_axis(frame, shape[0] * shape[2]))
                   : four(shape[0], shape[1], shape[2], shape[3], false, rows_axis(frame, shape[0] * shape[1]));
    }
  }
  if (n == 3) {
    const bool batched =
        shape[0] == frame.batch && shape[1] == length && !(shape[0] == 1 && frame.rows == 1 && is_heads(shape[1]));
    const bool whole = geometry.width == 0 || shape[2] != geometry.width || geometry.heads == 1;
    if (batched && (whole || frame.batch > 1 || shape[0] == 1))
      return matrix(shape, rows_axis(frame, shape[0] * shape[1]));
    const bool first = shape[1] == frame.rows && is_heads(shape[0]) &&
                       (!is_heads(shape[1]) || (shape[0] == shape[1] && elsewhere_first));
    if (shape[0] == frame.rows && !first)
      return four(1, shape[0], shape[1], shape[2], false, rows_axis(frame, shape[0]));
    if (shape[1] == frame.rows) return four(1, shape[1], shape[0], shape[2], true, rows_axis(frame, shape[1]));
    const Axis axis = rows_axis(frame, shape[0]);
    if (axis != Axis::none) return four(1, shape[0], shape[1], shape[2], false, axis);
  }
  return matrix(shape, rows_axis(frame, n == 0 ? 1 : product(shape, 0, n - 1)));
}

/// (heads, queries, keys), batched or not, or (queries, heads, keys).
Layout scores_layout(const Shape& shape, const Frame& frame, const Geometry& geometry) {
  const std::size_t n = shape.size();
  if (n == 4) return four(shape[0], shape[2], shape[1], shape[3], true, rows_axis(frame, shape[0] * shape[2]));
  if (n == 3) {
    const bool queries_first = shape[0] == frame.rows && shape[1] != frame.rows &&
                               (shape[1] == geometry.heads || geometry.heads == 0) && shape[0] != geometry.heads;
    // (batch, queries, keys) of one head.
    const bool batched = shape[0] == frame.batch && frame.batch > 1 && shape[0] != geometry.heads &&
                         shape[1] == frame.rows / frame.batch;
    if (batched) return matrix(shape, Axis::rows);
    if (queries_first) return four(1, shape[0], shape[1], shape[2], false, Axis::rows);
    return four(1, shape[1], shape[0], shape[2], true, rows_axis(frame, shape[1]));
  }
  return matrix(shape, rows_axis(frame, n < 2 ? 1 : shape[0]));
}

/// A pool of slots, paged or not, or the keys of a batch.
Layout cache_layout(Shape shape, const Frame& frame, const Geometry& geometry, int half, bool both) {
  std::int64_t step = 0;    // from K to V
  std::int64_t repeat = 0;  // from one pair of halves to the next
  if (both && shape.size() >= 4) {
    const std::size_t which = shape[0] == 2 ? 0 : shape[1] == 2 ? 1 : shape.size();
    if (which < shape.size()) {
      step = half * product(shape, which + 1, shape.size());
      repeat = which == 1 ? product(shape, 1, shape.size()) : 0;
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  const auto fits = [&](std::int64_t heads, std::int64_t width) {
    return (geometry.kv_heads == 0 || heads == geometry.kv_heads) && (geometry.width == 0 || width == geometry.width);
  };
  Layout out;
  if (shape.size() == 4) {
    const bool last = fits(shape[2], shape[3]);
    const bool first = fits(shape[1], shape[3]);
    const bool batched = shape[0] == frame.batch && first && (!last || frame.batch > 1 || shape[0] == 1);
    out = batched && !last ? four(shape[0], shape[2], shape[1], shape[3], true, Axis::keys)
          : first && !last ? four(shape[0], shape[2], shape[1], shape[3], true, Axis::slots)
                           : four(shape[0], shape[1], shape[2], shape[3], false, Axis::slots);
  } else if (shape.size() == 3) {
    const bool heads_first = !fits(shape[1], shape[2]) && fits(shape[0], shape[2]);
    out = heads_first ? four(1, shape[1], shape[0], shape[2], true, Axis::slots)
                      : four(1, shape[0], shape[1], shape[2], false, Axis::slots);
  } else {
    out = matrix(shape, Axis::slots);
  }
  out.offset = step;
  if (repeat > 0) out.outer_stride = repeat;
  // Slots, or heads, that hold a key and a value each.
  if (repeat > 0 && shape.size() == 3) (out.inner == shape[0] ? out.inner_stride : out.head_stride) = repeat;
  return out;
}

Layout with_heads(Layout layout, std::string_view role, const Geometry& geometry) {
  if (layout.heads != 1 || geometry.width == 0) return layout;
  const bool query = one_of(role, {"q", "q_rot", "q_normed", "attn_out", "rope"});
  const bool key =
      one_of(role, {"k", "v", "k_rot", "k_normed", "k_new", "v_new", "k_cache", "v_cache", "k_read", "v_read"});
  if ((!query && !key) || layout.width % geometry.width != 0) return layout;
  layout.heads = layout.width / geometry.width;
  layout.width = geometry.width;
  layout.head_stride = geometry.width;
  return layout;
}

}  // namespace

bool Layout::plain() const {
  const bool heads_beside = heads == 1 || head_stride == width;
  const bool rows_behind =
      rows == 1 || (inner_stride == channels() && (rows == inner || outer_stride == inner * channels()));
  return heads_beside && rows_behind && channel_stride == 1 && offset == 0;
}

Layout matrix_of(const DumpTensor& tensor) { return matrix(tensor.shape, Axis::none); }

Layout layout_of(const DumpTensor& tensor, const Frame& frame, const Geometry& geometry, int half) {
  const std::string& role = tensor.at.role;
  const Form form = tensor.at.form;
  const bool values = form == Form::value || form == Form::codes || form == Form::dequantised || form == Form::raw ||
                      form == Form::masked || form == Form::partial;
  const Shape& shape = tensor.shape;
  if (!values) return matrix(shape, Axis::none);
  if (one_of(role, {"k_cache", "v_cache", "kv_cache"})) {
    return with_heads(cache_layout(shape, frame, geometry, half, role == "kv_cache"), role, geometry);
  }
  if (one_of(role, {"k_read", "v_read"})) {
    Layout out = cache_layout(shape, frame, geometry, 0, false);
    return with_heads(out, role, geometry);
  }
  if (one_of(role, {"scores", "probs"})) return scores_layout(shape, frame, geometry);
  if (one_of(role, {"tokens", "positions", "sampled", "slot_mapping"})) {
    Layout out = matrix({tensor.count(), 1}, rows_axis(frame, tensor.count()));
    return out;
  }
  if (tensor.at.port == Port::state) return matrix(shape, Axis::none);
  const std::int64_t rows = shape.empty() ? 1 : product(shape, 0, shape.size() - 1);
  // A norm of each head by itself, given all heads of all rows as rows: that of a gated delta net.
  if (tensor.at.op == "inner_norm" && frame.rows > 0 && rows > frame.rows && rows % frame.rows == 0) {
    return four(1, frame.rows, rows / frame.rows, shape.back(), false, rows_axis(frame, frame.rows));
  }
  if (one_of(role, {"q", "k", "v", "q_rot", "k_rot", "q_normed", "k_normed", "k_new", "v_new", "rope", "attn_out"}) ||
      tensor.at.op == "q_norm" || tensor.at.op == "k_norm") {
    return with_heads(heads_layout(tensor, frame, geometry), role, geometry);
  }
  return matrix(shape, rows_axis(frame, rows));
}

namespace {

/// Tensors whose heads come before their rows, by all passes whose rows are not as many as the heads.
std::set<std::pair<std::string, std::string>> with_heads_first(std::span<const DumpTensor* const> tensors,
                                                               const Geometry& known) {
  std::map<std::pair<std::string, std::string>, int> votes;
  const auto is_heads = [&](std::int64_t extent) {
    return extent > 0 && (extent == known.heads || extent == known.kv_heads);
  };
  for (const DumpTensor* tensor : tensors) {
    const std::size_t n = tensor->shape.size();
    if (n < 3 || n > 4 || tensor->shape[n - 1] != known.width) continue;
    const bool before = is_heads(tensor->shape[n - 3]);
    const bool behind = is_heads(tensor->shape[n - 2]);
    if (before != behind) votes[{tensor->at.op, tensor->at.role}] += before ? 1 : -1;
  }
  std::set<std::pair<std::string, std::string>> first;
  for (const auto& [tensor, votes_of_it] : votes) {
    if (votes_of_it > 0) first.insert(tensor);
  }
  return first;
}

}  // namespace

Geometry geometry_of(std::span<const DumpTensor* const> tensors) {
  std::map<std::int64_t, int> heads;
  std::map<std::pair<std::int64_t, std::int64_t>, int> kv;
  std::map<std::pair<std::int64_t, std::int64_t>, int> queries;
  std::int64_t q_width = 0;
  std::int64_t k_width = 0;
  std::int64_t norm_width = 0;
  for (const DumpTensor* tensor : tensors) {
    const TensorName& at = tensor->at;
    const Shape& shape = tensor->shape;
    const std::size_t n = shape.size();
    if ((at.form != Form::value && at.form != Form::codes) || tensor->count() == 0) continue;
    if (one_of(at.role, {"scores", "probs"}) && n >= 3) ++heads[shape[n - 3]];
    if (one_of(at.role, {"k_cache", "v_cache", "k_read", "v_read"}) && n >= 3) {
      ++kv[{shape[n - 2], shape[n - 1]}];
      if (n == 4) ++kv[{shape[1], shape[3]}];
    }
    if (at.role == "kv_cache" && n >= 4) ++kv[{shape[n - 2], shape[n - 1]}];
    if (one_of(at.role, {"q", "q_rot", "rope"}) && n >= 3 && (at.role != "rope" || at.index == 0) &&
        at.port == Port::output)
      ++queries[{shape[n - 2], shape[n - 1]}];
    if (at.op == "q_proj" && at.port == Port::output && n >= 2) q_width = shape[n - 1];
    if (at.op == "o_proj" && at.port == Port::input && n >= 2 && q_width == 0) q_width = shape[n - 1];
    if (at.op == "k_proj" && at.port == Port::output && n >= 2) k_width = shape[n - 1];
    if ((at.op == "q_norm" || at.op == "k_norm") && at.role == "weight" && n == 1) norm_width = shape[0];
    if (at.role == "attn_out" && q_width == 0 && n >= 2 && n <= 3) q_width = shape[n - 1];
  }
  Geometry out;
  const auto most = [](const auto& votes) {
    return std::max_element(votes.begin(), votes.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  };
  if (!heads.empty()) out.heads = most(heads);
  if (out.heads > 0 && q_width > 0 && q_width % out.heads == 0) out.width = q_width / out.heads;
  if (out.heads == 0 && !queries.empty() && q_width == 0) q_width = most(queries).first * most(queries).second;
  if (out.width == 0) {
    // (heads, width), or (rows, width) where heads come first: the width is the last either way.
    if (!kv.empty())
      out.width = most(kv).second;
    else if (!queries.empty() && most(queries).second != q_width)
      out.width = most(queries).second;
    else if (norm_width > 0 && norm_width < q_width)
      out.width = norm_width;
  }
  if (out.width > 0 && out.heads == 0 && q_width > 0 && q_width % out.width == 0) out.heads = q_width / out.width;
  if (out.width > 0 && k_width > 0 && k_width % out.width == 0) out.kv_heads = k_width / out.width;
  if (out.kv_heads == 0 && out.width > 0) {
    for (const auto& [pair, votes] : kv) {
      const bool divides = out.heads == 0 || (pair.first > 0 && out.heads % pair.first == 0);
      if (pair.second == out.width && divides)
        out.kv_heads = out.kv_heads == 0 ? pair.first : std::min(out.kv_heads, pair.first);
    }
  }
  // Statistics state any shape, and products of these are widths.
  static constexpr std::int64_t kMost = std::int64_t{1} << 20;
  if (out.heads > kMost || out.kv_heads > kMost || out.width > kMost) out = {};
  out.heads_first = with_heads_first(tensors, out);
  return out;
}

}  // namespace nanscope
