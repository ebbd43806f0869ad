/// A sliding window left out, or one key wider or narrower than the model's.
#include <fmt/format.h>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_window(const TriedOp& subject);

std::vector<OpForm> propose_window(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::softmax && subject.op.kind != OpKind::attention) return {};
  const std::int64_t own = subject.form.window;
  if (own > 0) made.add("the sliding window left out", [](OpForm& form) { form.window = 0; });
  for (const std::int64_t other : {own + 1, own - 1, own + 2, own / 2, own * 2}) {
    if (own > 0 && other > 0)
      made.add(fmt::format("a window of {} keys instead of {}", other, own),
               [&](OpForm& form) { form.window = other; });
  }
  std::int64_t of_others = 0;
  for (std::int64_t layer = 0; layer < subject.config().layers && of_others == 0; ++layer)
    of_others = window_of(subject.config(), layer);
  if (own == 0 && of_others > 0)
    made.add(fmt::format("the window of {} keys of other layers", of_others),
             [&](OpForm& form) { form.window = of_others; });
  return made.take();
}

}  // namespace nanscope
