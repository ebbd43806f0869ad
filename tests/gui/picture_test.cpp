#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>

#include "gui/app.h"
#include "gui/theme.h"
#include "gui/views/registry.h"
#include "tests/gui/compare_pictures.h"
#include "tests/gui/program.h"

/// The views of a real recording, drawn without a screen; what cannot be shown, in one line.
namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;

std::map<std::uint32_t, std::size_t> colors(const Picture& picture) {
  std::map<std::uint32_t, std::size_t> found;
  for (std::size_t i = 0; i + 4 <= picture.rgba.size(); i += 4) {
    const std::uint8_t* p = &picture.rgba[i];
    ++found[Color{p[0], p[1], p[2], p[3]}.packed()];
  }
  return found;
}

class Pictures : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = std::make_unique<Program>();
    for (const auto& [scenario, file] : {std::pair{"kv-scale-lock", "run.nanscope"},
                                         {kSmallScenario, "small.nanscope"},
                                         {kTrainingScenario, "training.nanscope"}})
      ASSERT_EQ(folder->record(scenario, file, " --capture all").code, 0) << read("err.txt");
  }
  static void TearDownTestSuite() { folder.reset(); }

  static std::string read(const std::string& name) { return folder->read(name); }
  static Output run(const std::string& arguments) { return folder->run(arguments); }
  static void expect_refused(const std::string& arguments, const std::string& part) {
    const Output output = run(arguments);
    EXPECT_EQ(output.code, 2) << arguments << '\n' << output.err;
    EXPECT_EQ(output.out, "") << arguments;
    EXPECT_THAT(output.err, ::testing::StartsWith("nanscope: ")) << arguments;
    EXPECT_THAT(output.err, ::testing::HasSubstr(part)) << arguments;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  }
  /// The recording in which a view shows what it is for, and soon.
  static std::string recording_of(const std::string& view) {
    return view == "training" ? "training.nanscope" : view == "what-if" ? "small.nanscope" : "run.nanscope";
  }
  /// The picture and, when there can be none on this machine, the reason to skip.
  Picture draw(AppOptions options) {
    const std::string view = options.view + options.tab;
    options.file = view == "verify" ? fs::path(kOffDump) : folder->folder() / recording_of(view);
    if (view == "verify") options.check.model = kItsModel;
    options.screenshot = folder->folder() / "picture.png";
    options.size = {1200, 800};
    options.force = true;
    const Status drawn = run_app(options);
    EXPECT_TRUE(drawn) << drawn.error().message;
    return read_png(*options.screenshot);
  }
  /// Each third view; NANSCOPE_LONG_TESTS=1: all.
  static std::vector<std::string> some_views() {
    std::vector<std::string> some;
    const std::size_t stride = std::getenv("NANSCOPE_LONG_TESTS") != nullptr ? 1 : 3;
    const std::vector<std::string> all = view_names();
    for (std::size_t i = 0; i < all.size(); i += stride) some.push_back(all[i]);
    return some;
  }
  /// The views of the whole run show where it is NaN, whatever is selected.
  static bool shows_nan(const std::string& view) { return view.empty() || view == "front" || view == "cascade"; }
  static std::unique_ptr<Program> folder;
};
std::unique_ptr<Program> Pictures::folder;

TEST_F(Pictures, EveryViewShowsSomething) {
  if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
  std::vector<std::string> views = view_names();
  views.emplace_back();  // the whole window
  // Every other view is drawn dark, the ones between light, the window both: NANSCOPE_LONG_TESTS=1 draws all twice.
  const bool all = std::getenv("NANSCOPE_LONG_TESTS") != nullptr;
  const Theme themes[] = {dark_theme(), light_theme()};
  for (std::size_t i = 0; i < 2 * views.size(); ++i) {
    const std::string& view = views[i / 2];
    const Theme& theme = themes[i % 2];
    if (all || view.empty() || i / 2 % 2 == i % 2) {
      AppOptions options;
      options.view = view;
      options.theme = theme.name;
      const Picture picture = draw(options);
      ASSERT_EQ(picture.size, (Extent{1200, 800})) << view;
      const auto found = colors(picture);
      const auto most = std::max_element(found.begin(), found.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      EXPECT_GT(found.size(), 50U) << view;
      EXPECT_LT(most->second, picture.rgba.size() / 4 * 97 / 100) << view << " is almost blank";
      if (!shows_nan(view)) continue;
      EXPECT_GT(found.count(theme.cell(kNan).packed()), 0U) << view << " shows no NaN";
    }
  }
}

/// What of a picture lies inside.
Picture cut(const Picture& picture, int x, int y, Extent size) {
  Picture part{size, {}};
  for (int row = y; row < y + size.height; ++row) {
    const auto begin = picture.rgba.begin() + 4 * (static_cast<std::ptrdiff_t>(row) * picture.size.width + x);
    part.rgba.insert(part.rgba.end(), begin, begin + 4 * static_cast<std::ptrdiff_t>(size.width));
  }
  return part;
}

TEST_F(Pictures, EveryTabShowsItsViewBelowTheFront) {
  if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::string& view : some_views()) {
    if (view == "front" || view == "cascade") continue;
    AppOptions options;
    options.tab = view;
    EXPECT_GT(colors(cut(draw(options), 250, 520, {400, 220})).size(), 20U) << view;
  }
}

TEST_F(Pictures, WithoutAFileThereIsTheStartScreen) {
  if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
  const Output output = run("gui --screenshot start.png");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_GT(colors(read_png(folder->folder() / "start.png")).size(), 50U);
}

TEST_F(Pictures, AreTheSameEachTime) {
  if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
  EXPECT_EQ(draw({}).rgba, draw({}).rgba);
}

TEST_F(Pictures, FollowThePlace) {
  if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
  AppOptions options;
  options.place = "4/0/-/lm_head.logits";
  EXPECT_NE(draw({}).rgba, draw(options).rgba);
}

TEST_F(Pictures, ATableIsTheOneThatTheWindowSaves) {
  if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
  std::ofstream(folder->folder() / "save.txt") << "wait settled\nselect 2/0/1/kv_store.v_codes[7,7]\nview bits\n"
                                                  "wait settled\nkey CTRL+SHIFT+S\nwait settled\n";
  Output output = run("gui run.nanscope --script save.txt");
  ASSERT_EQ(output.code, 0) << output.err;
  output = run("gui run.nanscope --csv bits.csv --view bits --at 2/0/1/kv_store.v_codes[7,7]");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.out + output.err, "");
  EXPECT_THAT(read("bits.csv"), ::testing::HasSubstr("\r\n0x7e,448,256,yes\r\n"));
  EXPECT_EQ(read("bits.csv"), read("run-bits.csv"));
}

TEST_F(Pictures, EveryViewHasATable) {
  if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::string& view : some_views()) {
    const std::string target = view == "verify" ? kCheckedDump : recording_of(view);
    const Output output = run("gui " + target + " --force --csv table.csv --screenshot both.png --view " + view);
    EXPECT_EQ(output.code, 0) << output.err;
    const std::string table = read("table.csv");
    EXPECT_GE(std::count(table.begin(), table.end(), '\n'), 4) << view;  // three steps of training, and the names
    EXPECT_TRUE(fs::remove(folder->folder() / "both.png")) << view;
  }
}

TEST_F(Pictures, AViewWithoutATableSaysSo) {
  if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
  header.resize(117, ' ');
  fs::create_directory(folder->folder() / "dump");
  std::ofstream(folder->folder() / "dump" / "model.layers.0.mlp.npy", std::ios::binary)
      << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << '\n'
      << std::string(16, '\0');
  ASSERT_EQ(run("attach dump -o dump.nanscope").code, 0) << read("err.txt");
  expect_refused("gui dump.nanscope --csv none.csv --view what-if", "what-if has no table");
  EXPECT_FALSE(fs::exists(folder->folder() / "none.csv"));
}

TEST_F(Pictures, HostileInputEndsInOneLine) {
  const std::string whole = read("run.nanscope");
  const auto write = [](const std::string& name, const std::string& bytes) {
    std::ofstream(folder->folder() / name, std::ios::binary) << bytes;
  };
  write("empty.nanscope", "");
  write("text.nanscope", "this is no recording\n");
  write("cut.nanscope", whole.substr(0, whole.size() / 3));
  fs::create_directory(folder->folder() / "nothing");
  const std::string shot = " --screenshot x.png";
  expect_refused("gui missing.nanscope" + shot, "missing.nanscope");
  expect_refused("gui empty.nanscope" + shot, "empty.nanscope");
  expect_refused("gui text.nanscope" + shot, "text.nanscope");
  expect_refused("gui cut.nanscope" + shot, "cut.nanscope");
  expect_refused("gui nothing" + shot, "nothing");
  EXPECT_FALSE(fs::exists(folder->folder() / "x.png"));
}

TEST_F(Pictures, BadRequestsEndInOneLine) {
  expect_refused("gui --screenshot x.png --at 0/0/0/embed", "needs a recording");
  expect_refused("gui run.nanscope --screenshot x.png --view nothing", "front, cascade");
  expect_refused("gui run.nanscope --screenshot x.png --theme pink", "dark or light");
  expect_refused("gui run.nanscope --screenshot x.png --size 1600", "WIDTHxHEIGHT");
  expect_refused("gui run.nanscope --screenshot x.png --size 1600x99999999999", "WIDTHxHEIGHT");
  expect_refused("gui run.nanscope --screenshot x.png --at nowhere", "nowhere");
  expect_refused("gui run.nanscope --csv x.csv", "name it by --view");
  expect_refused("gui --csv x.csv --view front", "needs a recording");
  if (!no_picture().empty()) return;
  expect_refused("gui run.nanscope --screenshot no/where/x.png", "no/where/x.png");
  expect_refused("gui run.nanscope --csv no/where/x.csv --view front", "no/where/x.csv");
}

TEST_F(Pictures, WithoutADisplayThereIsOneLine) {
  expect_refused("gui run.nanscope", "display");
  expect_refused("gui", "display");
}

}  // namespace
}  // namespace nanscope::gui
