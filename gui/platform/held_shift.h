#pragma once

namespace nanscope::gui {

/// Whether Shift is down on the keyboard, also while another program's window has it: who drags a file here does.
/// False where the window system does not tell.
bool shift_is_held();

}  // namespace nanscope::gui
