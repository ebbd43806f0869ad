#include "instrument/engine/scale_book.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine_rig.h"
#include "instrument/engine/workspace.h"

namespace nanscope::testing {
namespace {

/// The scale that the ledger has of a store of three rows, of which one is NaN.
ScaleRow stored(std::int64_t bad_row) {
  const EngineConfig config = tiny_config({{"kv.format", "e4m3"}, {"kv.policy", "per_token"}});
  const auto device = kernels::make_cpu_device(kernels::Isa::baseline, 1).value();
  ScaleBook book = ScaleBook::create(config, *device).value();
  Workspace workspace(*device);
  const kernels::TensorView rows = workspace.matrix(Slot::k, Format::f32, 3, 16).value();
  std::vector<float> values(3 * 16, 1.0F);
  if (bad_row >= 0) values[static_cast<std::size_t>(bad_row) * 16 + 5] = NAN;
  std::memcpy(rows.data, values.data(), values.size() * sizeof(float));
  const ScaleContext context{.layer = 0, .target = KvTarget::k, .request = 0, .step = 1, .tokens = 3};
  const ScaleBook::Use use = book.use(context, 0, rows, workspace).value();
  return book.ledger_row(context, 7, use, rows, workspace).value();
}

TEST(ScaleBook, ANaNAmongScalesOfTokensIsTheLedgersWhereverItStands) {
  for (const std::int64_t row : {0, 1, 2}) EXPECT_TRUE(std::isnan(stored(row).scale)) << row;
  EXPECT_FLOAT_EQ(static_cast<float>(stored(-1).scale), 1.0F / 448);
}

}  // namespace
}  // namespace nanscope::testing
