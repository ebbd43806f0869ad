#include <iterator>

#include "tests/unit/cli/command_fixture.h"

/// How commands end: told to by a signal, without room for their answer, without threads or memory.
namespace nanscope::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Ends : public Command {
 protected:
  /// A shell line in the test's folder, in which $N is the program.
  Output shell(const std::string& line) {
    const std::string whole = "cd '" + folder_.string() +
                              "' && export LC_ALL=C NO_COLOR=1 N='" NANSCOPE_BINARY "'; ( " + line +
                              " ) >out.txt 2>err.txt </dev/null";
    const int status = std::system(whole.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }
  /// Exit code 2 and one line that holds `part`.
  void expect_one_line(const Output& output, const std::string& part) {
    EXPECT_EQ(output.code, 2) << output.err;
    EXPECT_THAT(output.err, StartsWith("nanscope")) << output.err;
    EXPECT_THAT(output.err, HasSubstr(part));
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  }
};

TEST_F(Ends, AnAnswerThatCannotBeWrittenIsSaid) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  ASSERT_EQ(run("run small.toml").code, 0);
  for (const char* command :
       {"bits 430", "bits --table e4m3 --format json", "scenarios", "diff small.nanscope small.nanscope",
        "diagnose small.nanscope --format json", "run small.toml --format junit", "--help", "--version",
        "why small.nanscope", "replay small.nanscope", "run --help"}) {
    SCOPED_TRACE(command);
    expect_one_line(shell(std::string("$N ") + command + " >/dev/full"),
                    "standard output cannot be written: No space left");
    expect_one_line(shell(std::string("$N ") + command + " >&-"),
                    "standard output cannot be written: Bad file descriptor");
  }
}

TEST_F(Ends, ACommandWithoutAnAnswerNeedsNoOutput) {
  ASSERT_EQ(run("run small.toml").code, 0);
  EXPECT_EQ(shell("$N report small.nanscope -o page.html --no-counterfactuals >&- 2>&-").code, 2)
      << "it prints the name";
  EXPECT_THAT(read("page.html"), HasSubstr("</html>"));
}

TEST_F(Ends, AReaderThatLeavesIsNoFault) {
  ASSERT_EQ(run("run small.toml").code, 0);
  const Output output = shell("{ sleep 0.3; $N diagnose small.nanscope; echo $? >code.txt; } | true");
  EXPECT_EQ(read("code.txt"), "141\n");
  EXPECT_EQ(output.err, "");
}

/// Nobody reads from the pipe: the command waits, and looks at nothing.
TEST_F(Ends, OneSignalEndsACommandThatDoesNotLook) {
  ASSERT_EQ(run("run small.toml --trace").code, 0);
  ASSERT_EQ(shell("mkfifo pipe").code, 0);
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, {SIGINT, 130}, {SIGHUP, 129}}) {
    for (const std::string command : {"trace small.nanscope", "report small.nanscope --no-counterfactuals"}) {
      SCOPED_TRACE(command);
      std::istringstream words(command + " -o pipe");
      Started started(folder_, {std::istream_iterator<std::string>(words), {}});
      started.wait_for_signals();
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      started.send(signal);
      EXPECT_EQ(started.wait(), code);
      EXPECT_EQ(read("started.err"), "nanscope: stopped\n");
    }
  }
}

TEST_F(Ends, TheTemporaryFileGoesWithTheSignal) {
  write("long.toml", kLong);
  write("out.nanscope", "mine");
  Started started(folder_, {"run", "long.toml", "-o", "out.nanscope", "--force"});
  Output temporary;
  for (int i = 0; i < 400 && temporary.out != "1\n"; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    temporary = shell("ls out.nanscope.*.tmp | wc -l");
  }
  EXPECT_EQ(temporary.out, "1\n");
  started.send(SIGTERM);
  EXPECT_EQ(started.wait(), 143);
  EXPECT_EQ(read("out.nanscope"), "mine");
  EXPECT_EQ(shell("ls out.nanscope* | wc -l").out, "1\n");
}

TEST_F(Ends, AnInterruptedRunLeavesWhatItRecorded) {
  write("long.toml", kLong);
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, {SIGINT, 130}}) {
    std::filesystem::remove(folder_ / "long.nanscope");
    Started started(folder_, {"run", "long.toml"});
    Started::wait_for(folder_ / "long.nanscope");
    started.send(signal);
    EXPECT_EQ(started.wait(), code);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "long.nanscope-journal"));
    const Output diagnosis = run("diagnose long.nanscope --brief --no-recompute");
    EXPECT_EQ(diagnosis.code, 3) << diagnosis.err;
    EXPECT_THAT(diagnosis.out, HasSubstr("Reached "));
  }
}

TEST_F(Ends, AFullDiskLeavesWhatWasRecordedAndNoJournal) {
  write("long.toml", kLong);
  for (const std::string blocks : {"20", "200", "4000"}) {
    std::filesystem::remove(folder_ / "long.nanscope");
    expect_one_line(shell("ulimit -f " + blocks + "; timeout -k 1 60 $N run long.toml"), "a write was refused");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "long.nanscope-journal")) << blocks;
    if (!std::filesystem::exists(folder_ / "long.nanscope")) continue;
    EXPECT_THAT(run("diagnose long.nanscope --brief --no-recompute").out, HasSubstr("Reached ")) << blocks;
  }
}

TEST_F(Ends, CtrlCKeepsTheCounterfactualsThatWereRun) {
  ASSERT_EQ(shell("$N run kv-scale-lock -o fault.nanscope").code, 0);
  const Output output = shell(
      "$N diagnose fault.nanscope --counterfactuals >answer.txt & until grep -q 'no effect' answer.txt; do sleep "
      "0.05; done; kill -INT $!; wait $!; echo $? >code.txt");
  EXPECT_EQ(read("code.txt"), "130\n") << output.err;
  EXPECT_THAT(read("answer.txt"),
              ::testing::AllOf(StartsWith("Verdict   fault.nanscope: kv-scale-locked"), HasSubstr("(as recorded)"),
                               HasSubstr("\nStopped after "), HasSubstr("\nRecommended\n")));
}

/// While the weights are made there is nothing to keep.
TEST_F(Ends, ARunThatDidNotBeginLeavesNothing) {
  write("wide.toml", R"(name = "wide"
[model]
weights = "random"
layers = 256
width = 4096
[[request]]
text = "Moons pull tides"
[expect]
verdict = "clean"
)");
  Started started(folder_, {"run", "wide.toml", "--replay-memory", "1000", "--replay-work", "1000"});
  started.wait_for_signals();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto sent = std::chrono::steady_clock::now();
  started.send(SIGTERM);
  EXPECT_EQ(started.wait(), 143);
  EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::milliseconds(1500));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "wide.nanscope"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

TEST_F(Ends, ThreadsThatCannotBeStartedAreSaid) {
  expect_one_line(shell("ulimit -v 2500000; timeout -k 1 20 $N run small.toml --threads 900"),
                  "threads cannot be started: no more threads can be started: raise the limits");
}

TEST_F(Ends, NoMemoryIsSaidWithTheLimit) {
  write("huge.toml", R"(name = "huge"
[kv]
blocks = 1048576
block_size = 4096
[[request]]
text = "a"
[expect]
verdict = "clean"
)");
  expect_one_line(shell("$N run huge.toml"), "GiB of memory, more than the 2.0 GiB of --replay-memory");
  expect_one_line(shell("$N run huge.toml --replay-memory 100000"), "out of memory: free some, or raise the limit");
}

/// Whatever allocation it is that fails.
TEST_F(Ends, AnyLackOfMemoryIsALine) {
  ASSERT_EQ(run("run small.toml").code, 0);
  int lines = 0;
  for (const std::string command :
       {"diagnose small.nanscope", "run small.toml -o out.nanscope", "bits --table bf16 --all"}) {
    for (int mib = 20; mib < 160; mib += 4) {
      const Output output = shell("ulimit -d " + std::to_string(mib * 128) + "; timeout 20 $N " + command);
      if (output.code == 127) continue;  // not even its libraries could be loaded
      EXPECT_THAT(output.code, ::testing::AnyOf(0, 2)) << command << ", " << mib * 128 << " KiB: " << output.err;
      if (output.code == 2) expect_one_line(output, "raise the limit");
      lines += output.code == 2 ? 1 : 0;
    }
  }
  EXPECT_GT(lines, 0) << "no limit was too low";
}

#endif

TEST_F(Ends, NoFileDescriptorsAreSaidWithTheLimit) {
  // Whoever runs the tests may leave descriptors of its own open.
  expect_one_line(shell("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n 4; $N run small.toml"), "ulimit -n");
}

}  // namespace
}  // namespace nanscope::testing
