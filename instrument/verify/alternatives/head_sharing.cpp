/// Heads of queries that take those of keys and values in another order.
#include "instrument/recompute/attention_rows.h"
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_head_sharing(const TriedOp& subject);

std::vector<OpForm> propose_head_sharing(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.config().kv_heads == subject.config().heads) return {};
  const bool apart = subject.op.kind == OpKind::attention_scores || subject.op.kind == OpKind::attention_mix;
  if (!apart && subject.op.kind != OpKind::attention) return {};
  made.add("heads of keys and values shared in turns (head % groups)", [&](OpForm& form) {
    form.tiled = !apart;
    if (apart) form.shift = kTiled;
  });
  return made.take();
}

}  // namespace nanscope
