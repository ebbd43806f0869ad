#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "instrument/model/model_spec.h"
#include "instrument/recompute/recipe.h"

namespace nanscope {

/// How a model does its ops, in the words of the recomputation: what the diagnosis has to guess (eps, the base of the
/// rotary angles, masks, the factor of scores, the activation) is known here.
class ModelForms {
 public:
  explicit ModelForms(const ModelSpec& spec) : spec_(spec) {}

  /// Of an output. Several where kernels differ in what they round on the way; that is the only thing left open.
  std::vector<OpForm> of(Values& values, const Op& op, const Tensor& out) const;

  /// Whether a config.json says how ops of a kind are computed.
  static bool decides(OpKind kind);

  /// Angles of the layers with a window (`local`), or of the others, for a context of so many tokens.
  std::shared_ptr<const RopeAngles> angles(bool local, std::int64_t context) const;
  /// Whether an op is of a layer with a window, and so with angles of its own where the model has some.
  bool local(const Op& op) const;
  const ModelSpec& spec() const { return spec_; }

 private:
  std::vector<OpForm> norm(Values& values, const Op& op) const;
  void add_latent_eps(const Op& op, std::vector<OpForm>& forms) const;
  std::vector<OpForm> rope(Values& values, const Op& op) const;
  std::vector<OpForm> scores(Values& values, const Op& op, const Tensor& out) const;
  std::vector<OpForm> softmax(const Op& op) const;
  std::vector<OpForm> attention(Values& values, const Op& op) const;
  std::vector<OpForm> embedding(Values& values, const Op& op) const;
  std::vector<OpForm> copied(Values& values, const Op& op, const Tensor& out, std::vector<OpForm> plain) const;
  bool stands_for_scaled_rows(Values& values, const Tensor& stream) const;
  std::vector<OpForm> residual(Values& values, std::vector<OpForm> plain, const Op& op) const;
  std::vector<OpForm> head(std::vector<OpForm> plain, const Op& op) const;
  std::vector<OpForm> block_sum(Values& values, const Op& op, const Tensor& out) const;
  std::int64_t window(const Op& op) const;
  /// How gate and up lie in the fused input called so, where the op has it.
  int halves(const Op& op, std::string_view fused) const;
  /// With what the model holds gate and up to.
  std::vector<OpForm> clamped(std::vector<OpForm> forms) const;
  std::vector<OpForm> routed(std::vector<OpForm> forms) const;

  ModelSpec spec_;
};

/// Which channels the model's rotation turns together, as OpForm::variant has it.
int pairing(const ModelConfig& model);

/// The number of an activation of the model as OpForm::variant has it.
int activation_variant(kernels::ActivationKind kind);

}  // namespace nanscope
