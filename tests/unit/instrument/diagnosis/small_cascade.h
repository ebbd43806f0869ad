#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::testing {

/// What the small cascade's deployment differs in.
struct CascadeOptions {
  bool image = true;         ///< request 1 exceeds the range; else it is like request 0
  bool one_pass = true;      ///< the inner norm's variance is negative for constant rows; else 0
  bool locked = true;        ///< the scale of request 0 is kept; else every request has its own
  bool last_request = true;  ///< request 3, which gets the recycled block
  Format format = Format::e4m3;
};

/// The "!" cascade in the small: two layers, width 4, one head, blocks of 2 slots, four requests.
/// 0 calibrates (2 tokens). 1 exceeds (3 tokens, rows 0 and 1 collapse in layer 0). 2 shares block 1 of
/// request 1. 3 has one token in the recycled block 1, whose other slot holds request 1's token 1.
/// The ops that matter are there, with the numbers that the engine would produce.
struct SmallCascade {
  RunBuilder builder;
  /// Tensor by "request/layer/op.role".
  std::map<std::string, std::int64_t> tensor;

  explicit SmallCascade(const CascadeOptions& options = {});

  std::int64_t op_of(const std::string& name) { return builder.row(tensor.at(name)).op; }

 private:
  struct Step;
  void forward(const Step& step);
  bool poisons(const Step& step) const;
  ScaleRow scale_for(const Step& step) const;
  std::int64_t project(const Step& step, std::int64_t layer, std::int64_t normed, const std::string& name);
  void read(const Step& step, std::int64_t layer, std::int64_t v_codes);
  void inner_norm(const Step& step, std::int64_t layer, std::int64_t mixed);
  void attention(const Step& step, std::int64_t layer, std::int64_t normed);
  std::int64_t note(const Step& step, std::int64_t layer, const std::string& name, std::int64_t id);
  CascadeOptions options_;
};

}  // namespace nanscope::testing
