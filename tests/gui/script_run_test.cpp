#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/gui/program.h"

/// The scripts of scripts/, each on a recording of the flagship scenario or on a dump beside its model; how scripts
/// end.
namespace nanscope::gui {
namespace {

using ::testing::HasSubstr;

class Scripts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string reason = no_picture(); !reason.empty()) GTEST_SKIP() << reason;
    ASSERT_EQ(program_.record("kv-scale-lock", "run.nanscope").code, 0);
  }

  Output play(const std::string& text, const std::string& more = "run.nanscope") {
    std::ofstream(program_.folder() / "steps.txt") << text;
    return program_.run("gui " + more + " --script steps.txt");
  }

  Program program_;
};

/// Scripts that begin with the start screen say so by their name.
bool begins_without_a_file(const std::string& name) { return name.rfind("start", 0) == 0; }

TEST_P(Scripts, FindWhatTheyExpect) {
  std::string file = begins_without_a_file(GetParam()) ? "" : "run.nanscope";
  if (GetParam().starts_with("causality")) {
    file = "leaky.nanscope";
    ASSERT_EQ(program_.record("leaky-mxfp4-values", "leaky.nanscope").code, 0);
  }
  if (GetParam().starts_with("verify")) file = kCheckedDump;
  const std::string script = std::string(NANSCOPE_SOURCE_DIR) + "/tests/gui/scripts/" + GetParam();
  const Output output = program_.run("gui " + file + " --script '" + script + "'");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.err, "");
  if (output.code != 0) program_.keep(GetParam());
}

std::vector<std::string> all_scripts() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(NANSCOPE_SOURCE_DIR "/tests/gui/scripts")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Gui, Scripts, ::testing::ValuesIn(all_scripts()), [](const auto& info) {
  std::string name = info.param.substr(0, info.param.find('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

using ScriptModel = Scripts;

/// The model of a dump is typed into the verify view; then there is one verdict.
TEST_F(ScriptModel, IsTyped) {
  const std::string steps = R"(view verify
expect text "No model stands beside"
click item model
type "nowhere"
key ENTER
expect text "there is no such file or folder"
key CTRL+A
type "."
key ENTER
expect text "is no checkpoint: expected config.json"
key CTRL+A
type ")" + std::string(kItsModel) +
                            R"("
click "Check"
wait settled
expect text "checked against"
expect text "Not the model's: 4 of 150 outputs are further off than rounding"
expect text "shows this:"
)";
  const Output output = play(steps, "'" + std::string(kOffDump) + "'");
  EXPECT_EQ(output.code, 0) << output.err;
}

TEST_F(ScriptModel, IsNotAskedForWhereThereIsARecording) {
  const Output output = play("view verify\nexpect text \"A recording is checked by a replay\"\n");
  EXPECT_EQ(output.code, 0) << output.err;
}

using ScriptEnds = Scripts;

TEST_F(ScriptEnds, WithOneWhenAnExpectationFails) {
  const Output output = play("# none\nexpect place 0/0/0/embed\n");
  EXPECT_EQ(output.code, 1);
  EXPECT_EQ(
      output.err,
      "nanscope: steps.txt:2: expected the place 0/0/0/embed, found 2/0/1/inner_norm.out[7] (see steps.txt-2.png)\n");
  EXPECT_TRUE(std::filesystem::exists(program_.folder() / "steps.txt-2.png"));
}

TEST_F(ScriptEnds, WithOneWhenThereIsNothingToPress) {
  EXPECT_THAT(play("click \"Nothing of that name\"").err, HasSubstr("no text \"Nothing of that name\" is drawn"));
  EXPECT_THAT(play("click item nothing").err, HasSubstr("nothing called 'nothing' is drawn"));
  EXPECT_THAT(play("click cell 9/0/0/embed").err, HasSubstr("shows no cell of 9/0/0/embed"));
  EXPECT_THAT(play("view nothing").err, HasSubstr("no view 'nothing'"));
  EXPECT_THAT(play("select nowhere").err, HasSubstr("nowhere"));
  EXPECT_THAT(play("expect place 0/0/0/embed", "").err, HasSubstr("the start screen"));
  EXPECT_EQ(play("picture no/where.png").code, 1);
}

TEST_F(ScriptEnds, WithTwoWhenItIsNoScript) {
  const Output output = play("close\nclik 1 2\n");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.err, "nanscope: steps.txt:2: unknown step 'clik'; did you mean 'click'?\n");
  EXPECT_EQ(program_.run("gui run.nanscope --script missing.txt").code, 2);
  EXPECT_EQ(program_.run("gui run.nanscope --on-screen").code, 2);
}

TEST_F(ScriptEnds, WithNothingLeftBehind) {
  EXPECT_EQ(play("wait settled\nwhere item play\npicture a.png\nclose\nexpect view nothing\n").code, 0);
  EXPECT_TRUE(std::filesystem::exists(program_.folder() / "a.png"));
  EXPECT_FALSE(std::filesystem::exists(program_.folder() / "state"));
}

}  // namespace
}  // namespace nanscope::gui
