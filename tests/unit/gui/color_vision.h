#pragma once
#include "gui/theme.h"

/// What colours look like, for tests: CIELAB, their distance, and how they are seen without one kind of cones.
namespace nanscope::gui {

/// CIE L*a*b* under D65.
struct Lab {
  double l = 0;
  double a = 0;
  double b = 0;
};

/// CIEDE2000 with all weights 1. Sharma, Wu, Dalal: The CIEDE2000 Color-Difference Formula, 2005.
double color_distance(const Lab& one, const Lab& other);

/// Of an sRGB colour as somebody sees it: Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of
/// Color Vision Deficiency, 2009, severity 1, in linear RGB.
Lab seen(Color color, Vision vision);

}  // namespace nanscope::gui
