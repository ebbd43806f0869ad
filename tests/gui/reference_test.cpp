#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "gui/app.h"
#include "gui/views/registry.h"
#include "tests/gui/compare_pictures.h"
#include "tests/gui/program.h"

/// Pictures as they were when somebody looked at them and found them good: references/. With
/// NANSCOPE_ACCEPT_PICTURES=1 those of now take their place; look at them before they are committed.
namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;

const fs::path kReferences = fs::path(NANSCOPE_SOURCE_DIR) / "tests" / "gui" / "references";
const fs::path kMadeWith = kReferences / "made-with.txt";
/// Of the mean of a block, of 255, where something else draws: its edges are smoothed in other ways.
constexpr double kBlockTolerance = 40;

struct Sample {
  std::string name;
  std::string view;
  std::string theme = "dark";
  Extent size{760, 480};
  bool recording = true;
  bool checked = false;  ///< a dump beside its model
  std::string scenario = "kv-scale-lock";
  std::string palette = "usual";
  std::string steps = {};  ///< of a script before the picture
};

void PrintTo(const Sample& sample, std::ostream* out) { *out << sample.name; }

std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const std::string& view : view_names()) {
    all.push_back({view, view});
    if (view == "what-if") all.back().scenario = kSmallScenario;
    if (view == "training") all.back().scenario = kTrainingScenario;
  }
  for (const char* view : {"front", "tensor", "bits"}) all.push_back({std::string(view) + "-light", view, "light"});
  all.push_back({"window", "", "dark", {1000, 640}});
  all.push_back({"window-light", "", "light", {1000, 640}});
  for (const char* view : {"front", "tensor", "verify"})
    all.push_back({std::string(view) + "-checked", view, "dark", {900, 520}, false, true});
  all.push_back({"window-checked", "", "light", {1200, 760}, false, true});
  all.push_back({"causality-leaks", "causality", "dark", {1000, 560}, true, false, "leaky-mxfp4-values"});
  all.push_back({"causality-leaks-light", "causality", "light", {1000, 560}, true, false, "leaky-mxfp4-values"});
  for (const char* palette : {"protan", "deutan", "tritan"}) {
    all.push_back({std::string("front-") + palette, "front"});
    all.back().palette = palette;
  }
  all.push_back({"menu", "", "dark", {1000, 640}});
  all.back().steps = "click right cell 2/0/1/inner_norm[7]";
  all.push_back({"settings", "", "light", {1000, 640}});
  all.back().steps = "key CTRL+PLUS\nwait settled\nkey CTRL+COMMA";
  all.push_back({"start", "", "dark", {1000, 640}, false});
  return all;
}

bool accepting() {
  const char* value = std::getenv("NANSCOPE_ACCEPT_PICTURES");
  return value != nullptr && std::string(value) == "1";
}

std::string made_with() {
  std::ifstream file(kMadeWith);
  std::string line;
  std::getline(file, line);
  return line;
}

class References : public ::testing::TestWithParam<Sample> {
 protected:
  void SetUp() override {
    if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
  }

  Picture draw(const Sample& sample) {
    if (sample.recording) {  // on a device that every machine has: the kernels view names it
      EXPECT_EQ(program_.record(sample.scenario, "run.nanscope", " --capture all --device cpu:baseline").code, 0);
    }
    const std::string view = sample.view.empty() ? "" : " --view " + sample.view;
    const std::string target = sample.recording ? "run.nanscope" : sample.checked ? kCheckedDump : "";
    std::string how = "--screenshot picture.png";
    if (!sample.steps.empty()) {
      std::ofstream(program_.folder() / "steps.txt") << "wait settled\n" << sample.steps << "\npicture picture.png\n";
      how = "--script steps.txt --force";
    }
    const Output output =
        program_.run(fmt::format("gui {} {} --size {}x{} --theme {} --palette {}{}", target, how, sample.size.width,
                                 sample.size.height, sample.theme, sample.palette, view));
    EXPECT_EQ(output.code, 0) << output.err;
    return read_png(program_.folder() / "picture.png");
  }

  Program program_;
};

TEST_P(References, AreWhatIsDrawn) {
  const Sample& sample = GetParam();
  const Picture found = draw(sample);
  ASSERT_EQ(found.size, sample.size);
  const fs::path reference = kReferences / (sample.name + ".png");
  if (accepting()) {
    fs::create_directories(kReferences);
    std::ofstream(kMadeWith) << renderer_name() << '\n';
    ASSERT_TRUE(write_picture(reference, found));
    GTEST_SKIP() << reference << " is accepted as it is drawn now";
  }
  const Picture expected = read_png(reference);
  ASSERT_EQ(expected.size, found.size) << reference;
  const Comparison comparison = compare(expected, found);
  const bool same_renderer = made_with() == renderer_name();
  const bool fine = same_renderer ? comparison.pixels == 0 : comparison.worst_block <= kBlockTolerance;
  if (fine) return;
  const fs::path kept = fs::absolute("pictures");
  fs::create_directories(kept);
  const fs::path actual = kept / (sample.name + "-actual.png");
  const fs::path difference = kept / (sample.name + "-difference.png");
  ASSERT_TRUE(write_picture(actual, found) && write_picture(difference, comparison.difference));
  ADD_FAILURE() << comparison.pixels << " pixels differ, at most by " << comparison.largest << "; means of blocks by "
                << comparison.worst_block << (same_renderer ? "" : " (drawn by " + renderer_name() + ")")
                << "\nexpected:   " << reference.string() << "\nactual:     " << actual.string()
                << "\ndifference: " << difference.string()
                << "\nIf it is meant: NANSCOPE_ACCEPT_PICTURES=1, look at it, and commit it.";
}

INSTANTIATE_TEST_SUITE_P(Gui, References, ::testing::ValuesIn(samples()), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(ComparePictures, ToleratesRoundingAndCountsTheRest) {
  Picture one{{2, 1}, {10, 10, 10, 255, 200, 10, 10, 255}};
  Picture other = one;
  other.rgba[0] = 12;
  EXPECT_EQ(compare(one, other).pixels, 0U);
  other.rgba[5] = 90;
  const Comparison comparison = compare(one, other);
  EXPECT_EQ(comparison.pixels, 1U);
  EXPECT_EQ(comparison.largest, 80);
  EXPECT_EQ(comparison.worst_block, 40);
  EXPECT_EQ(comparison.difference.rgba, (std::vector<std::uint8_t>{8, 0, 0, 255, 0, 255, 0, 255}));
}

TEST(ComparePictures, TellsOneBlockFromAnother) {
  Picture black{{16, 8}, std::vector<std::uint8_t>(16 * 8 * 4, 0)};
  Picture half = black;
  for (std::size_t y = 0; y < 8; ++y) {
    for (std::size_t x = 8; x < 16; ++x) half.rgba[(y * 16 + x) * 4 + 2] = 100;
  }
  EXPECT_EQ(compare(black, half).worst_block, 100);
}

}  // namespace
}  // namespace nanscope::gui
