#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/recording/reader.h"
#include "instrument/dump/open_dump.h"
#include "tests/temporary_folder.h"

/// `nanscope attach --run` and the library that it injects, end to end: a program of its own on a fake libcuda and a
/// fake libcupti, which load the library as the driver does.
namespace nanscope {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

struct Output {
  int code = -1;
  std::string out;
  std::string err;
};

class Injected : public testing::Test {
 protected:
  std::string read(const std::string& name) {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  Output shell(const std::string& command) {
    const std::string line = "cd '" + folder_.path().string() +
                             "' && export LC_ALL=C LD_LIBRARY_PATH='" NANSCOPE_FAKES "' && " + command +
                             " >out.txt 2>err.txt </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }
  Output attach(const std::string& options, const std::string& arguments) {
    return shell("'" NANSCOPE_BINARY "' attach --run " + options + " -- '" NANSCOPE_PROGRAM "' " + arguments);
  }
  /// Whether the process whose number is in the file runs on; one that ended may not have been waited for by anybody.
  bool runs(const std::string& name) {
    return shell("grep -q 'State:.[^Z]' /proc/$(cat " + name + ")/status").code == 0;
  }
  std::vector<OpRow> ops() { return Recording::open(folder_ / "live.nanscope").value().ops().value(); }

  TemporaryFolder folder_;
};

TEST_F(Injected, TheTimelineHasEveryLaunchInOrderWithItsTimes) {
  const Output alone = shell("'" NANSCOPE_PROGRAM "' healthy");
  const Output run = attach("", "healthy");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, alone.out) << "the program's results are its own";
  EXPECT_EQ(alone.out.size(), 17U);
  EXPECT_THAT(run.err, HasSubstr("3 launches in "));
  const Recording recording = Recording::open(folder_ / "live.nanscope").value();
  EXPECT_EQ(recording.state().value(), RunState::complete);
  EXPECT_TRUE(recording.check());
  const std::vector<OpRow> rows = ops();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].name, "up_proj");
  EXPECT_EQ(rows[1].name, "down_proj");
  EXPECT_EQ(rows[2].name, "residual");
  EXPECT_THAT(rows[0].attributes, HasSubstr("mlp::up_proj(unsigned short*, unsigned short const*, float)"));
  EXPECT_THAT(rows[0].attributes, HasSubstr(R"("grid":[2,1,1],"block":[128,1,1])"));
  const std::vector<KernelRow> kernels = recording.kernels().value();
  ASSERT_EQ(kernels.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(kernels[i].op, rows[i].id);
  EXPECT_EQ(kernels[1].duration_ns, 500);
  const Output trace =
      shell("'" NANSCOPE_BINARY "' trace live.nanscope -o t.json && '" NANSCOPE_BINARY "' diagnose live.nanscope");
  EXPECT_EQ(trace.code, 3) << "nothing was captured that can be judged: " << trace.err;
}

/// It ends while the recording is still being made: what the writing thread needs must outlive exit handlers.
TEST_F(Injected, ABriefProgramIsRecordedWholeEveryTime) {
  for (int i = 0; i < 20; ++i) {
    const Output run = attach("--force", "healthy");
    ASSERT_EQ(run.code, 0) << "run " << i << ": " << run.err;
    ASSERT_THAT(run.err, HasSubstr("3 launches in ")) << "run " << i;
    ASSERT_EQ(ops().size(), 3U) << "run " << i;
  }
}

TEST_F(Injected, ARecordingIsNotReplacedUnlessForced) {
  ASSERT_EQ(attach("", "healthy").code, 0);
  const Output again = attach("", "healthy");
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("live.nanscope: exists"));
  EXPECT_EQ(attach("--force", "healthy").code, 0);
}

TEST_F(Injected, WhatIsReplacedStaysUntilThereIsANewOne) {
  ASSERT_EQ(attach("", "healthy").code, 0);
  const std::string force = "'" NANSCOPE_BINARY "' attach --run --force -- ";
  EXPECT_EQ(shell(force + "sh -c 'exit 5'").code, 5);
  EXPECT_EQ(ops().size(), 3U) << "nothing new was recorded";
  EXPECT_EQ(shell(force + "/nowhere/program").code, 2);
  EXPECT_EQ(ops().size(), 3U);
  EXPECT_EQ(attach("--force", "healthy crash").code, 128 + 6);
  EXPECT_EQ(Recording::open(folder_ / "live.nanscope").value().state().value(), RunState::interrupted);
  EXPECT_EQ(shell("ls | grep -c tmp").out, "0\n");
}

/// The command is a shell that waits for a program of its own.
TEST_F(Injected, ASignalReachesTheCommandAndWhatItStarted) {
  write("command.sh", "sleep 30 & echo $! >inner; wait; wait");
  for (const auto& [signal, code] : {std::pair<std::string, int>{"TERM", 143}, {"HUP", 129}}) {
    write("outer.sh",
          "'" NANSCOPE_BINARY "' attach --run -- bash command.sh & sleep 1; kill -" + signal + " $!; wait $!");
    const Output ended = shell("bash outer.sh");
    EXPECT_EQ(ended.code, code) << ended.err;
    EXPECT_FALSE(runs("inner"));
  }
}

TEST_F(Injected, ACommandThatDoesNotEndIsKilled) {
  write("command.sh", "trap '' TERM; echo $$ >inner; while true; do sleep 0.1; done");
  const Output ended = shell("timeout -s TERM 1 '" NANSCOPE_BINARY "' attach --run -- bash command.sh");
  EXPECT_EQ(ended.code, 124);
  EXPECT_FALSE(runs("inner"));
}

TEST_F(Injected, AnotherInjectionIsSaidToBeReplaced) {
  const Output run = shell("CUDA_INJECTION64_PATH=/opt/other.so '" NANSCOPE_BINARY "' attach --run -- true");
  EXPECT_THAT(run.err,
              HasSubstr("CUDA_INJECTION64_PATH is set to /opt/other.so; nanscope replaces it for this command"));
}

/// A command does not inherit what we do with signals.
TEST_F(Injected, TheCommandAnswersSignalsAsItWould) {
  const Output mine = shell("grep -E 'SigBlk|SigIgn' /proc/self/status");
  const Output run = shell("'" NANSCOPE_BINARY "' attach --run -- grep -E 'SigBlk|SigIgn' /proc/self/status");
  EXPECT_EQ(run.out, mine.out);
}

TEST_F(Injected, ACrashLeavesWhatWasLaunched) {
  const Output run = attach("", "healthy crash");
  EXPECT_EQ(run.code, 128 + 6) << "SIGABRT";
  const Recording recording = Recording::open(folder_ / "live.nanscope").value();
  EXPECT_EQ(recording.state().value(), RunState::interrupted);
  EXPECT_TRUE(recording.check());
  EXPECT_EQ(ops().size(), 3U);
  const std::vector<KernelRow> work = recording.kernels().value();
  ASSERT_EQ(work.size(), 4U);
  EXPECT_EQ(work[3].name, "memcpy DtoH");
  EXPECT_EQ(work[3].op, 0) << "no launch's";
}

TEST_F(Injected, AProgramThatLeavesWithoutHandlersKeepsItsCodeAndItsLaunches) {
  const Output run = attach("", "healthy exit");
  EXPECT_EQ(run.code, 7);
  EXPECT_EQ(ops().size(), 3U);
}

TEST_F(Injected, AForkedChildWritesNothing) {
  const Output run = attach("", "healthy fork");
  EXPECT_EQ(run.code, 0) << run.err;
  const Recording recording = Recording::open(folder_ / "live.nanscope").value();
  EXPECT_EQ(recording.state().value(), RunState::complete);
  EXPECT_EQ(ops().size(), 3U);
  EXPECT_THAT(run.err, HasSubstr("3 launches in "));
  EXPECT_THAT(run.err, Not(HasSubstr("4 launches in "))) << "the child's one more, in the same file";
}

TEST_F(Injected, ACommandWithoutCudaIsSaidToBeRecordedAsNothing) {
  const Output run = shell("'" NANSCOPE_BINARY "' attach --run -- sh -c 'exit 5'");
  EXPECT_EQ(run.code, 5);
  EXPECT_THAT(run.err, HasSubstr("nothing is recorded"));
  EXPECT_EQ(shell("'" NANSCOPE_BINARY "' attach --run -- /nowhere/program").code, 2);
  EXPECT_EQ(shell("'" NANSCOPE_BINARY "' attach --run").code, 2);
}

TEST_F(Injected, WithoutCuptiTheProgramRunsAllTheSame) {
  const Output alone = shell("'" NANSCOPE_PROGRAM "' healthy");
  const Output run =
      shell("NANSCOPE_CUPTI=/nowhere/libcupti.so '" NANSCOPE_BINARY "' attach --run -- '" NANSCOPE_PROGRAM "' healthy");
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out, alone.out);
  EXPECT_THAT(run.err, HasSubstr("nothing is recorded: cupti: /nowhere/libcupti.so"));
}

#ifdef NANSCOPE_LIVE_SCAN
TEST_F(Injected, TheKernelThatLeavesTheHalfRangeIsNamedAndItsBuffersAreADump) {
  const Output alone = shell("'" NANSCOPE_PROGRAM "' overflow");
  const Output run = attach("--watch --budget 100", "overflow");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, alone.out) << "watching changes no bit";
  // As numpy counts them in float16.
  EXPECT_THAT(run.err,
              HasSubstr("launch 2, down_proj, wrote 0 NaN and 94 +Inf among 256 elements of f16 into argument 0"));
  EXPECT_THAT(run.err, HasSubstr("watched 3 of 3"));
  const auto dump = OpenDump::open(folder_ / "live.born");
  ASSERT_TRUE(dump) << dump.error().message;
  const Output diagnosis = shell("'" NANSCOPE_BINARY "' diagnose live.born");
  EXPECT_EQ(diagnosis.code, 1) << diagnosis.out << diagnosis.err;
  EXPECT_THAT(diagnosis.out, HasSubstr("launch_000002.down_proj.output.0"));
  const Recording recording = Recording::open(folder_ / "live.nanscope").value();
  EXPECT_THAT(recording.request(1).value().output_text, HasSubstr("down_proj, wrote "));
}

TEST_F(Injected, AHangingGpuDoesNotKeepTheProgramFromExiting) {
  const Output run = shell("FAKE_CUDA_HANG=1 timeout 20 '" NANSCOPE_BINARY
                           "' attach --run --watch --budget 100 -- '" NANSCOPE_PROGRAM "' healthy hang");
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.err, HasSubstr("the GPU does not answer"));
  EXPECT_TRUE(Recording::open(folder_ / "live.nanscope"));
}

TEST_F(Injected, AHealthyProgramIsWatchedWithoutAFinding) {
  const Output run = attach("--watch --budget 100", "healthy");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("watched 3 of 3"));
  EXPECT_THAT(run.err, Not(HasSubstr("wrote")));
  EXPECT_FALSE(fs::exists(folder_ / "live.born"));
}

TEST_F(Injected, WhoWroteItIsNotGuessedWhenItWasNotWatched) {
  const Output run = attach("--watch --budget 100 --kernels residual", "overflow");
  EXPECT_THAT(run.err, HasSubstr("launch 3, residual, was given "));
  EXPECT_THAT(run.err, HasSubstr("the kernel that wrote them was not watched"));
}
#endif

}  // namespace
}  // namespace nanscope
