#pragma once
#include <memory>

#include "gui/export/table.h"
#include "gui/prepare/bits_sheet.h"
#include "gui/prepare/causality_map.h"
#include "gui/prepare/error_map.h"
#include "gui/prepare/headroom_sheet.h"
#include "gui/prepare/ledger.h"
#include "gui/prepare/pin_history.h"
#include "gui/prepare/requests_sheet.h"
#include "gui/prepare/run_difference.h"
#include "gui/prepare/score_curves.h"
#include "gui/prepare/step_timeline.h"
#include "gui/prepare/story.h"
#include "gui/prepare/tensor_list.h"
#include "gui/prepare/tensor_sheet.h"
#include "gui/prepare/timeline.h"
#include "gui/prepare/training_curves.h"
#include "gui/prepare/what_if.h"
#include "gui/prepare/why_story.h"
#include "instrument/policies/evaluate.h"

/// What views show, as tables for a spreadsheet: numbers bare, with their units in the header.
namespace nanscope::gui {

/// A cell that is not healthy a row; with a run beside, and `differing`, one whose health or bits differ. Of more than
/// a table can hold, the first. `difference` may be null.
Table table_of(const RunMap& map, const RunDifference* difference, bool differing);
/// An output that was checked against the model a row, then those that were not.
Table table_of(const ErrorMap& errors);
/// An entry of the ledger a row.
Table table_of(const Ledger& ledger);
/// A step of a layer a row, with the scale of each policy and what it makes of the largest score.
Table table_of(const ScoreCurves& curves);
/// A run a row, as recorded first.
Table table_of(const WhatIfTable& what_if);
/// A policy a row.
Table table_of(const PolicyReport& policies);
/// A token and one whose change moves its logits a row, later ones first; of more than a table can hold, the first.
Table table_of(const CausalityMaps& maps);
/// A slot of the KV cache a row.
Table table_of(const RequestsSheet& requests);
/// A kind of op a row.
Table table_of(const Timeline& timeline);
Table table_of(const History& history);
/// A link a row, then a warning and a class that was not found.
Table table_of(const Story& story);
/// A hop a row.
Table table_of(const WhyStory& why);
/// A code of the tensor a row, or an exponent.
Table table_of(const BitsSheet& bits);
/// The elements, a token a row, as decimal numbers that give them back; without elements, a row's health.
Table table_of(const TensorSheet& sheet);
/// A tensor a row, as it is sorted and filtered; of more than a table can hold, the first.
Table table_of(const TensorList& list);
/// A layer of a step a row, with the tensor that has the least headroom.
Table table_of(const HeadroomSheet& sheet);
/// A module of a step a row.
Table table_of(const StepTimeline& timeline);
/// A training step a row.
Table table_of(const TrainingCurves& curves);

/// `Data` of a prepared answer that is one.
template <class Data>
TableMaker table_maker(const PreparedPtr& prepared) {
  return [data = std::dynamic_pointer_cast<const Data>(prepared)] { return data ? table_of(*data) : Table{}; };
}

}  // namespace nanscope::gui
