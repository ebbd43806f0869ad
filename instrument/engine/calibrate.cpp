#include "instrument/engine/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/text/safe_text.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/run_checkpoint.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {
namespace {

class InputProbe final : public Probe {
 public:
  InputProbe(kernels::Device& device, const LoadedModel& model, std::map<std::string, float>& into)
      : device_(device), checkpoint_(*model.checkpoint), into_(into) {}

  Status on_op(const ProbeOp& op) override {
    if (Status read = note_inputs(op); !read) return read;
    for (const ProbeTensor& one : op.outputs) {
      if (info(one.view.format).bits < 16 || one.view.format == Format::i32) continue;
      const auto values = floats_of(device_, one.view);
      if (!values) return tl::unexpected(values.error());
      float largest = 0;
      for (const float value : *values) {
        if (!(std::abs(value) <= largest)) largest = std::abs(value);
      }
      largest_[one.id] = largest;
    }
    return {};
  }

 private:
  Status note_inputs(const ProbeOp& op) {
    const auto of_role = [&](std::string_view role) {
      return std::find_if(op.inputs.begin(), op.inputs.end(), [&](const ProbeInput& one) { return one.role == role; });
    };
    const auto x = of_role("x");
    const auto weight = of_role("weight");
    if (op.kind != "gemm" || x == op.inputs.end() || weight == op.inputs.end()) return {};
    const auto read = largest_.find(x->tensor);
    const auto module = checkpoint_.module_of(weight->weight);
    if (!module || read == largest_.end()) return {};
    if (!std::isfinite(read->second)) return fail(fmt::format("'{}' reads NaN or Inf", one_line(*module)));
    float& known = into_[*module];
    known = std::max(known, read->second);
    return {};
  }

  kernels::Device& device_;
  const Checkpoint& checkpoint_;
  std::map<std::string, float>& into_;
  std::map<std::int64_t, float> largest_;  ///< of each tensor of the run, by id
};

}  // namespace

Result<std::map<std::string, float>> calibrate_inputs(const std::filesystem::path& folder,
                                                      const std::vector<std::int32_t>& ids, std::stop_token stop) {
  std::map<std::string, float> found;
  const Status ran =
      run_checkpoint(folder, ids, std::move(stop), [&](kernels::Device& device, const LoadedModel& model) {
        return std::make_unique<InputProbe>(device, model, found);
      });
  if (!ran) return tl::unexpected(ran.error());
  return found;
}

Result<std::vector<std::int32_t>> tokens_of_text(const std::filesystem::path& folder, const std::string& text,
                                                 std::size_t most) {
  const auto tokenizer = Tokenizer::load(folder / "tokenizer.json");
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  auto ids = tokenizer->encode(text);
  if (!ids) return tl::unexpected(ids.error());
  if (ids->empty()) return fail("the text makes no token");
  ids->resize(std::min(ids->size(), most));
  return *ids;
}

}  // namespace nanscope
