#include "core/dump/layout.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/core/dump/memory_dump.h"

/// Which element of a dumped tensor is which channel of which head of which row.
namespace nanscope {
namespace {

DumpTensor tensor_of(const std::string& name, std::vector<std::int64_t> shape) {
  DumpTensor tensor;
  tensor.name = name;
  tensor.at = parse_tensor_name(name);
  tensor.dtype = find_dtype("f32");
  tensor.format = Format::f32;
  tensor.shape = std::move(shape);
  return tensor;
}

/// Six rows of one sequence; heads 4 over 2, 8 wide.
const Geometry kGeometry{4, 2, 8, {}};

Frame frame(std::int64_t rows, std::int64_t batch = 1) {
  Frame out{rows, batch, {}, false};
  for (std::int64_t b = 0; b < batch; ++b) out.spans.push_back({0, 0, b * rows / batch, rows / batch, 0, rows / batch});
  return out;
}

Layout of(const std::string& name, std::vector<std::int64_t> shape, const Frame& in = frame(6), int half = 0) {
  return layout_of(tensor_of(name, std::move(shape)), in, kGeometry, half);
}

/// Each element of the tensor is one of the matrix, once.
void expect_all_once(const Layout& layout, std::int64_t count) {
  std::set<std::int64_t> seen;
  for (std::int64_t row = 0; row < layout.rows; ++row) {
    for (std::int64_t head = 0; head < layout.heads; ++head) {
      for (std::int64_t channel = 0; channel < layout.width; ++channel) {
        const std::int64_t at = layout.at(row, head, channel);
        EXPECT_GE(at, 0);
        EXPECT_LT(at, count);
        EXPECT_TRUE(seen.insert(at).second) << row << ' ' << head << ' ' << channel;
      }
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), count);
}

TEST(Layout, RowsOfHeadsSideBySide) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{6, 32}, {1, 6, 32}, {6, 4, 8}, {1, 6, 4, 8}}) {
    const Layout layout = of("model.layers.0.self_attn.q_proj.output", shape);
    EXPECT_EQ(layout.axis, Axis::rows);
    EXPECT_EQ(layout.rows, 6);
    EXPECT_EQ(layout.heads, 4);
    EXPECT_EQ(layout.width, 8);
    EXPECT_EQ(layout.at(2, 3, 5), 2 * 32 + 3 * 8 + 5);
    EXPECT_TRUE(layout.plain());
    expect_all_once(layout, 6 * 32);
  }
}

TEST(Layout, HeadsFirst) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{4, 6, 8}, {1, 4, 6, 8}}) {
    const Layout layout = of("model.layers.0.self_attn.attn.q", shape);
    EXPECT_EQ(layout.rows, 6);
    EXPECT_EQ(layout.heads, 4);
    EXPECT_EQ(layout.at(2, 3, 5), 3 * 48 + 2 * 8 + 5);
    EXPECT_FALSE(layout.plain());
    expect_all_once(layout, 6 * 32);
  }
}

TEST(Layout, AsManyRowsAsHeadsAreReadAsInOtherPasses) {
  const DumpTensor longer = tensor_of("step_0/model.layers.0.self_attn.attn.q", {4, 6, 8});
  const DumpTensor probs = tensor_of("step_0/model.layers.0.self_attn.attn.probs", {4, 6, 6});
  const DumpTensor q = tensor_of("step_0/model.layers.0.self_attn.q_proj.output", {6, 32});
  const DumpTensor square = tensor_of("step_1/model.layers.0.self_attn.attn.q", {4, 4, 8});
  const std::vector<const DumpTensor*> all{&longer, &probs, &q, &square};
  const Layout layout = layout_of(square, frame(4), geometry_of(all));
  EXPECT_EQ(layout.at(2, 3, 5), 3 * 32 + 2 * 8 + 5);
  EXPECT_EQ(layout_of(square, frame(4), kGeometry).at(2, 3, 5), 2 * 32 + 3 * 8 + 5);
}

TEST(Layout, HeadsFirstInABatch) {
  const Layout layout = of("model.layers.0.self_attn.attn.k", {2, 2, 3, 8}, frame(6, 2));
  EXPECT_EQ(layout.rows, 6);
  EXPECT_EQ(layout.heads, 2);
  // Row 4 is row 1 of the second sequence.
  EXPECT_EQ(layout.at(4, 1, 5), 48 + 24 + 8 + 5);
  expect_all_once(layout, 6 * 16);
}

TEST(Layout, NormsOfHeadsAreOfQueries) {
  const Layout layout = of("model.layers.0.self_attn.q_norm.output", {6, 4, 8});
  EXPECT_EQ(layout.axis, Axis::rows);
  EXPECT_EQ(layout.rows, 6) << "tokens, not tokens times heads";
  EXPECT_EQ(layout.heads, 4);
  EXPECT_EQ(of("model.layers.0.self_attn.k_norm.output", {6, 2, 8}).rows, 6);
}

TEST(Layout, Scores) {
  const Layout layout = of("model.layers.0.self_attn.probs", {4, 6, 9});
  EXPECT_EQ(layout.axis, Axis::rows);
  EXPECT_EQ(layout.rows, 6);
  EXPECT_EQ(layout.heads, 4);
  EXPECT_EQ(layout.at(2, 3, 7), 3 * 54 + 2 * 9 + 7);
  expect_all_once(layout, 4 * 54);
  expect_all_once(of("model.layers.0.self_attn.probs", {2, 4, 3, 3}, frame(6, 2)), 72);
}

TEST(Layout, PagesOfACache) {
  const Layout nhd = of("model.layers.0.self_attn.attn.k_cache", {10, 16, 2, 8});
  EXPECT_EQ(nhd.axis, Axis::slots);
  EXPECT_EQ(nhd.rows, 160);
  EXPECT_EQ(nhd.at(17, 1, 3), 16 * 16 + 16 + 8 + 3);  // block 1, slot 1
  expect_all_once(nhd, 10 * 16 * 16);
  const Layout hnd = of("model.layers.0.self_attn.attn.k_cache", {10, 2, 16, 8});
  EXPECT_EQ(hnd.axis, Axis::slots);
  EXPECT_EQ(hnd.rows, 160);
  EXPECT_EQ(hnd.at(17, 1, 3), 256 + 128 + 8 + 3);
  expect_all_once(hnd, 10 * 16 * 16);
}

TEST(Layout, HalvesOfACacheOfBoth) {
  for (const int half : {0, 1}) {
    const Layout first = of("model.layers.0.self_attn.attn.kv_cache", {2, 10, 16, 2, 8}, frame(6), half);
    EXPECT_EQ(first.rows, 160);
    EXPECT_EQ(first.at(0, 0, 0), half * 2560);
    const Layout second = of("model.layers.0.self_attn.attn.kv_cache", {10, 2, 16, 2, 8}, frame(6), half);
    EXPECT_EQ(second.rows, 160);
    EXPECT_EQ(second.at(17, 1, 3), 512 + half * 256 + 16 + 8 + 3);
  }
}

TEST(Layout, WeightsAreMatrices) {
  const Layout layout = of("model.layers.0.self_attn.q_proj.weight", {32, 16});
  EXPECT_EQ(layout.axis, Axis::none);
  EXPECT_EQ(layout.rows, 32);
  EXPECT_EQ(layout.channels(), 16);
}

TEST(Geometry, OfShapesAlone) {
  const std::vector<DumpTensor> tensors = {tensor_of("model.layers.0.self_attn.q_proj.output", {6, 32}),
                                           tensor_of("model.layers.0.self_attn.k_proj.output", {6, 16}),
                                           tensor_of("model.layers.0.self_attn.probs", {4, 6, 6})};
  std::vector<const DumpTensor*> all;
  for (const DumpTensor& tensor : tensors) all.push_back(&tensor);
  const Geometry found = geometry_of(all);
  EXPECT_EQ(found.heads, 4);
  EXPECT_EQ(found.kv_heads, 2);
  EXPECT_EQ(found.width, 8);
}

TEST(Layout, SlotsThatHoldAKeyAndAValueEach) {
  for (const int half : {0, 1}) {
    const Layout layout = of("model.layers.0.self_attn.kv_cache", {5, 2, 2, 8}, frame(6), half);
    EXPECT_EQ(layout.rows, 5);
    EXPECT_EQ(layout.at(0, 0, 0), 16 * half);
    EXPECT_EQ(layout.at(1, 0, 0), 32 + 16 * half);
    EXPECT_EQ(layout.at(4, 1, 7), 4 * 32 + 16 * half + 15);
    EXPECT_FALSE(layout.plain());
  }
}

TEST(Layout, HeadsThatNoModelHasAreNone) {
  DumpTensor scores = tensor_of("model.layers.0.self_attn.scores", {std::int64_t{1} << 50, 6, 6});
  scores.stated = true;
  const DumpTensor cache = tensor_of("model.layers.0.self_attn.k_cache", {6, 2, 1 << 15});
  const DumpTensor empty = tensor_of("model.layers.0.self_attn.q", {0, std::int64_t{1} << 50, 8});
  const Geometry geometry = geometry_of(std::vector<const DumpTensor*>{&scores, &cache, &empty});
  EXPECT_EQ(geometry.heads, 0);
}

}  // namespace
}  // namespace nanscope
