#include "gui/palette.h"

#include <gtest/gtest.h>
#include <imgui.h>

#include <memory>

#include "gui/platform/platform.h"

namespace nanscope::gui {
namespace {

class PaletteKeys : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Platform>> opened = open_egl_platform({400, 300}, Drawing::when_read);
    if (!opened) GTEST_SKIP() << opened.error().message;
    platform_ = std::move(*opened);
    fonts_ = load_fonts(1);
    apply_style(theme_, 1);
  }

  /// A frame in which this is typed.
  void frame(const std::string& typed, bool opens = false) {
    platform_->synthetic().type(typed);
    platform_->begin_frame();
    if (opens) palette_.open({});
    palette_.draw({theme_, fonts_, 1}, {0, 0, 400, 300});
    platform_->end_frame();
  }

  std::unique_ptr<Platform> platform_;
  Theme theme_ = dark_theme();
  Fonts fonts_;
  Palette palette_;
};

TEST_F(PaletteKeys, TypedInTheFirstFramesAreKept) {
  frame("na", true);  // as in a busy window: with the key that opened it
  frame("n");
  frame(" i");
  frame("n");
  for (int i = 0; i < 3; ++i) frame("");
  frame("\u00E4");
  frame("");
  EXPECT_EQ(palette_.query(), "nan in\u00E4");
}

}  // namespace
}  // namespace nanscope::gui
