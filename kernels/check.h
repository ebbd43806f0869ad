#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/result.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Checks an op's arguments and keeps the first thing that is wrong, worded as what was expected and
/// what was found. An op's header may define `Status check(const NameArgs&)` with it; every device
/// calls it before the launch. Costs no allocation while all is well.
///
///     inline Status check(const ResidualAddArgs& args) {
///       return ArgsCheck("residual_add").floats("a", args.a).shape("a", args.a, args.out.rows,
///       args.out.columns).done();
///     }
class ArgsCheck {
 public:
  explicit ArgsCheck(std::string_view op) : op_(op) {}

  /// The view is given and well formed: positive sizes are not asked for, a stride below its columns is an error.
  ArgsCheck& given(std::string_view name, const TensorView& view);
  /// Given, with exactly this shape.
  ArgsCheck& shape(std::string_view name, const TensorView& view, std::int64_t rows, std::int64_t columns);
  /// Given, with one of these formats.
  ArgsCheck& format(std::string_view name, const TensorView& view, std::initializer_list<Format> allowed);
  /// Given, f32, f16 or bf16: what ops compute on and store to.
  ArgsCheck& floats(std::string_view name, const TensorView& view);
  /// Anything else: `what` completes the sentence "<op> expects <what>".
  ArgsCheck& that(bool condition, std::string_view what);

  Status done() const { return error_.empty() ? Status{} : Status(fail(error_)); }

 private:
  bool failed() const { return !error_.empty(); }

  std::string_view op_;
  std::string error_;
};

}  // namespace nanscope::kernels
