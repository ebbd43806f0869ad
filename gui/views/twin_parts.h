#pragma once
#include <span>
#include <string>
#include <string_view>

#include "gui/views/view.h"

/// Which side of two runs a view shows, where there is room for one.
namespace nanscope::gui {

enum class TwinPart : std::uint8_t { here, there, difference };
inline constexpr TwinPart kTwinParts[] = {TwinPart::here, TwinPart::there, TwinPart::difference};
inline constexpr TwinPart kCheckParts[] = {TwinPart::here,
                                           TwinPart::difference};  ///< of a model only what it is off by

/// The same context with another theme.
ViewContext with_theme(const ViewContext& context, const Theme& theme);

/// What an answer depends on of what stands beside: of a model, what it has made so far.
std::string beside_key(const BesideRunPtr& beside);

/// "this run", the other run's label, "difference", or as it is called.
std::string part_name(TwinPart part, std::string_view label, std::string_view difference = "difference");

/// A chip for each part, from the left of `row`; the one that is pressed becomes `chosen`. Answers where they end.
float choose_part(const ViewContext& context, Area row, std::span<const TwinPart> parts, std::string_view label,
                  TwinPart& chosen, std::string_view difference = "difference");

/// A chip that is pressed, from `left`, at most as wide as up to `most`. Answers where it ends.
struct ChipPress {
  float right = 0;
  bool pressed = false;
};
ChipPress chip_button(const ViewContext& context, float left, float most, float y, float height,
                      const std::string& words, bool chosen);

}  // namespace nanscope::gui
