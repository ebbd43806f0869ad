#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "gui/color.h"
#include "tests/gui/compare_pictures.h"
#include "tests/gui/program.h"

/// The page that `nanscope report` writes, opened in a real browser: with scripts off it is all there.
namespace nanscope::gui {
namespace {

using ::testing::HasSubstr;

std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (std::system((std::string("command -v ") + name + " >/dev/null 2>&1").c_str()) == 0) return name;
  }
  return "";
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Without what its pictures are made of, so that it can be read when a test fails.
std::string without_pictures(std::string page) {
  const std::string begin = "base64,";
  for (std::size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at + 1)) {
    page.erase(at + begin.size(), page.find('"', at) - at - begin.size());
  }
  return page;
}

class Report : public ::testing::Test {
 protected:
  void SetUp() override {
    browser_ = browser();
    if (browser_.empty()) GTEST_SKIP() << "there is no Chromium here (scripts/packages.sh lists the packages)";
    if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
    // A profile that runs no page's scripts; --blink-settings would also stop the browser's own.
    std::filesystem::create_directories(program_.folder() / "off" / "Default");
    write("off/Default/Preferences", R"({"profile":{"default_content_setting_values":{"javascript":2}}})");
    write("probe.html", "<p id=p>off</p><script>document.getElementById('p').textContent = 'on'</script>");
    ASSERT_EQ(program_.record("kv-scale-lock", "run.nanscope", " --capture all").code, 0);
    const Output made = program_.run("report run.nanscope -o report.html");
    ASSERT_EQ(made.code, 0) << made.err;
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(program_.folder() / name, std::ios::binary) << text;
  }
  /// The page as the browser understood it.
  std::string opened(const std::string& page, const std::string& profile, const std::string& option = "--dump-dom") {
    const Output output = program_.shell("timeout 120 " + browser_ +
                                         " --headless --no-sandbox --disable-gpu --hide-scrollbars"
                                         " --user-data-dir=\"$PWD/" +
                                         profile + "\" " + option + " \"file://$PWD/" + page + "\"");
    EXPECT_EQ(output.code, 0) << output.err;
    return without_pictures(output.out);
  }

  void check_without_scripts();
  void check_pictures();
  void check_phone();

  Program program_;
  std::string browser_;
};

/// One recording and one report for all that is asked of it: they take longer than the browser.
TEST_F(Report, IsReadOnADeskOnAPhoneAndWithScriptsOff) {
  check_without_scripts();
  check_pictures();
  check_phone();
}

void Report::check_without_scripts() {
  ASSERT_THAT(opened("probe.html", "off"), HasSubstr("<p id=\"p\">off</p>")) << "scripts are not off";
  const std::string page = opened("report.html", "off");
  EXPECT_THAT(page, HasSubstr("kv-scale-locked"));
  EXPECT_THAT(page, HasSubstr("The chain: 27 events"));
  EXPECT_EQ(count(page, "<li>"), 27U);
  EXPECT_THAT(page, HasSubstr("<td>variance-collapse</td><td>found</td><td>1 row of 2/0/1/inner_norm.out is born NaN"));
  EXPECT_THAT(page, HasSubstr("But for which setting?"));
  EXPECT_THAT(page, HasSubstr("kv.format"));
  EXPECT_EQ(count(page, "<img "), 4U);
  opened("report.html", "off", "--window-size=1200,3000 --screenshot=page.png");
  const Picture picture = read_png(program_.folder() / "page.png");
  ASSERT_EQ(picture.size, (Extent{1200, 3000}));
  std::map<std::uint32_t, std::size_t> colors;
  for (std::size_t i = 0; i + 4 <= picture.rgba.size(); i += 4) {
    ++colors[Color{picture.rgba[i], picture.rgba[i + 1], picture.rgba[i + 2], 255}.packed()];
  }
  EXPECT_GT(colors.size(), 200U);
}

void Report::check_pictures() {
  // The report has no scripts of its own; a copy is given one that looks at it.
  write("looked.html", program_.read("report.html") + R"(<script>addEventListener('load', () => {
      for (const i of document.images) document.body.append(`[${i.alt}: ${i.naturalWidth}x${i.naturalHeight}]`);
      document.body.append(`[wider: ${document.documentElement.scrollWidth > innerWidth}]`); })</script>)");
  const std::string page = opened("looked.html", "on", "--window-size=1200,900 --dump-dom");
  for (const char* name : {"Front", "Scales", "Bits", "Scores"}) {
    EXPECT_THAT(page, HasSubstr(std::string("[") + name + ": 1400x860]"));
  }
  EXPECT_THAT(page, HasSubstr("[wider: false]")) << "the page must be scrolled sideways";
  const std::string report = program_.read("report.html");
  for (const char* from : {"src=\"http", "href=\"http", "url(http", "<script", "<link", "@import"}) {
    EXPECT_EQ(report.find(from), std::string::npos) << "the page is not self-contained: " << from;
  }
}

void Report::check_phone() {
  write("looked.html", program_.read("report.html") + R"(<script>addEventListener('load', () => {
      for (const i of document.images) document.body.append(`[${i.alt}: ${i.currentSrc.length > 0} ${i.naturalWidth}]`);
      document.body.append(`[wider: ${document.documentElement.scrollWidth > innerWidth}]`); })</script>)");
  // The browser makes no window narrower than 500 pixels.
  const std::string page = opened("looked.html", "on", "--window-size=500,900 --dump-dom");
  for (const char* name : {"Front", "Scales", "Bits", "Scores"}) {
    EXPECT_THAT(page, HasSubstr(std::string("[") + name + ": true 880]"));
  }
  EXPECT_THAT(page, HasSubstr("[wider: false]")) << "the page must be scrolled sideways";
}

}  // namespace
}  // namespace nanscope::gui
