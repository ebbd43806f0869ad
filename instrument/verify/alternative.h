#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/recompute/recompute.h"
#include "instrument/verify/model_forms.h"

/// What a server may do otherwise than its model says. Each is one file in alternatives/ and one line in
/// alternatives.def.
namespace nanscope {

/// What an alternative may look at.
struct TriedOp {
  const ModelForms& model;
  Values& values;
  const Op& op;
  const Tensor& out;
  OpForm form;  ///< the model's

  RunView& run() const { return values.run(); }
  const ModelConfig& config() const { return model.spec().model; }
};

/// Ways in which it is done otherwise: forms whose text ends the sentence "this would be so with ...".
struct Alternative {
  std::string_view name;  ///< stable, in JSON: "eps", "rope-base"
  /// Empty where it does not concern an op.
  std::vector<OpForm> (*propose)(const TriedOp& subject);
};

/// In the order of alternatives.def: of several that explain the same, the first is the usual one.
std::span<const Alternative> alternatives();

/// The subject's own form with something changed; kept where that makes a difference.
class Proposals {
 public:
  explicit Proposals(const TriedOp& subject) : own_(subject.form) {}
  template <class Change>
  void add(std::string text, const Change& change) {
    OpForm form = own_;
    change(form);
    form.text = std::move(text);
    form.fault = true;
    if (!(form == own_)) forms_.push_back(std::move(form));
  }
  std::vector<OpForm> take() { return std::move(forms_); }

 private:
  OpForm own_;
  std::vector<OpForm> forms_;
};

}  // namespace nanscope
