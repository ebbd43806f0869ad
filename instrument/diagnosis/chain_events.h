#pragma once
#include <optional>
#include <string>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/why.h"

/// What a hop of a walk back tells, as events: how a chain is told, not which.
namespace nanscope {

/// What happened to values at an element that a walk came through, in causal order; most hops tell nothing.
std::vector<Event> events_at(Facts& facts, const Hop& hop);
/// The kind of what happens there, without reading anything for it; empty when a NaN or an Inf tells nothing there.
std::string bad_kind(Facts& facts, const Hop& hop);
/// Where a scale of the ledger came from and how long it was kept, in causal order.
std::vector<Event> scale_events(Facts& facts, const ScaleRow& scale);
/// The answer that a request gave from the bad logits of a step; nothing when no token of it is known.
std::optional<Event> token_event(Facts& facts, std::int64_t request, StepId step);

}  // namespace nanscope
