#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "instrument/policies/layer_tokens.h"
#include "instrument/policies/operands.h"

/// Which keys a query of a run sees: as its ops state it, as a dump's numbers show it, else those before it.
namespace nanscope {

/// Which keys the rows of a span see.
struct SpanMask {
  std::int64_t last_key = 0;  ///< of the first row; one more for each row behind it
  std::int64_t first_key = 0;
  std::int64_t window = 0;  ///< 0: none
  bool stated = false;
  std::string form;  ///< by which the op came out when it was done again; empty: it was not
};

class QueryMasks {
 public:
  /// Both must outlive it.
  QueryMasks(RunView& run, const CollectOptions& options) : run_(run), options_(options) {}

  /// How an op is done, where its numbers show it; null where they do not, or nothing was done again.
  const OpForm* form_of(const Op* op);
  /// Of the step's span number `index`.
  SpanMask of_span(const AttentionOps& ops, const Step& step, std::size_t index);
  /// Sets PolicyQuery::bias to what a dumped mask adds to the scores of the query's keys. False: it hides all of them.
  bool add_bias(const AttentionOps& ops, const Step& step, std::size_t index, PolicyQuery& query);

 private:
  /// The op that applies the mask of a span.
  const Op* masked_op(const AttentionOps& ops, std::size_t span);
  /// By positions, the keys that the dumped scores of a query do not hide; empty: they are not there.
  std::vector<bool> keys_shown(const Op& softmax, const Step& step, const Span& span, std::int64_t position);

  RunView& run_;
  const CollectOptions& options_;
};

}  // namespace nanscope
