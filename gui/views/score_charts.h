#pragma once
#include "gui/prepare/score_curves.h"
#include "gui/views/view.h"

/// Policies for the scales of scores over the steps of a run, a line a policy: by layer, the scale, and what it makes
/// of the largest score, with the format's largest and what is beyond it marked.
namespace nanscope::gui {

/// The colour of a trial, by its index in ScoreCurves::trials.
Color policy_color(const Theme& theme, std::size_t trial);

/// The policies with their colours and how often they overflow. Answers its height.
float draw_score_legend(const ViewContext& context, const ScoreCurves& curves, Area area);

/// Scrolls where the layers have no room. A click selects the layer's scores in the step.
void draw_score_charts(const ViewContext& context, const ViewActions& actions, const ScoreCurves& curves, Area area);

}  // namespace nanscope::gui
