#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/cli/command_fixture.h"

/// What packages and shells ask: manual pages, completions. The shells themselves are tried in tests/package/.
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using nanscope::testing::Command;
using nanscope::testing::Output;

class Shell : public Command {
 protected:
  /// The commands that the program offers.
  std::vector<std::string> commands() {
    std::istringstream lines(run("complete -- ''").out);
    std::vector<std::string> names;
    std::string line;
    std::getline(lines, line);  // what the shell itself may add
    while (std::getline(lines, line)) names.push_back(line.substr(0, line.find(' ')));
    return names;
  }
};

TEST_F(Shell, OffersTheCommandsOfTheHelp) {
  const std::string help = run("--help").out;
  EXPECT_GE(commands().size(), 11U);
  for (const std::string& command : commands()) EXPECT_THAT(help, HasSubstr("\n  " + command + " "));
  for (const std::string hidden : {"manual", "completions", "complete"}) {
    EXPECT_THAT(help, Not(HasSubstr("\n  " + hidden + " "))) << "for packages and shells";
  }
}

TEST_F(Shell, EveryOptionSaysWhatItTakes) {
  for (const std::string& command : commands()) {
    EXPECT_THAT(run(command + " --help").out, Not(ContainsRegex("  -[a-z, -]+ TEXT( |\n|=)")))
        << "type_name() is what its completion knows its values by, see known_values.cpp";
  }
}

TEST_F(Shell, CompletesAlsoWithoutALibrary) {
  EXPECT_EQ(run("complete --").out, "nothing\n");
  EXPECT_EQ(run("complete -- no-such-command ''").out, "nothing\n");
  EXPECT_EQ(run("complete -- run --device=cpu:avx").out, "nothing\n--device=cpu:avx2\n--device=cpu:avx512\n");
  EXPECT_EQ(run("complete -- diff a b ''").out, "nothing\n") << "it takes two";
  EXPECT_EQ(run("complete -- attach --run -- python ''").out, "files\n");
  EXPECT_THAT(run("complete -- help dia").out, StartsWith("nothing\ndiagnose  "));
  EXPECT_EQ(run("complete -- help diagnose ''").out, "nothing\n") << "it takes one";
  EXPECT_THAT(run("complete -- manual dif").out, StartsWith("nothing\ndiff  "));
  EXPECT_EQ(run("complete -- replay x --set kv.format=b").out, "nothing\nkv.format=bf16\n");
  write("mine/one.toml", kSmall);
  ::setenv("NANSCOPE_SCENARIOS", "mine", 1);
  EXPECT_EQ(run("complete -- run ''").out, "files\none\n");
  ::setenv("NANSCOPE_SCENARIOS", "not-there", 1);
  EXPECT_EQ(run("complete -- run ''").out, "files\n");
  ::unsetenv("NANSCOPE_SCENARIOS");
}

TEST_F(Shell, WritesManualPages) {
  EXPECT_THAT(run("manual").out, StartsWith(".TH NANSCOPE 1 "));
  EXPECT_THAT(run("manual diff").out, HasSubstr("\\fB\\-n\\fR, \\fB\\-\\-limit\\fR \\fIN\\fR\n"
                                                "Number of differences to describe. Range: [1 \\- 10000]. Default: "));
  EXPECT_EQ(run("manual --into pages").code, 0);
  for (const std::string& command : commands())
    EXPECT_THAT(read("pages/nanscope-" + command + ".1"), StartsWith(".TH"));
  expect_refused("manual --into pages", "nanscope.1");
  expect_refused("manual dif", "did you mean 'diff'");
  write("file", "");
  expect_refused("manual --into file/pages", "file/pages");
}

TEST_F(Shell, WritesTheScriptOfAShell) {
  EXPECT_THAT(run("completions bash").out, HasSubstr("complete -F _nanscope nanscope"));
  EXPECT_THAT(run("completions zsh").out, StartsWith("#compdef nanscope"));
  EXPECT_THAT(run("completions fish").out, HasSubstr("complete -c nanscope"));
  expect_refused("completions csh", "csh");
}

}  // namespace
