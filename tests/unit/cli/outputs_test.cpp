#include <chrono>
#include <csignal>
#include <regex>
#include <thread>

#include "tests/unit/cli/command_fixture.h"

/// What commands write: never over a file that nobody gave for it, never half, never over what they read.
namespace nanscope::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Outputs : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    ASSERT_EQ(run("run small.toml --trace").code, 0);
    write("precious", "mine");
  }
  std::size_t names_with(const std::string& part) {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().filename().string().find(part) != std::string::npos) ++count;
    }
    return count;
  }
  void write_dump(const std::string& name) { write_npy(name, 8, 16, std::vector<float>(128, 1.0F)); }
};

TEST_F(Outputs, NoCommandReplacesAFileWithoutForce) {
  write_dump("dump/a.npy");
  for (const std::string command :
       {"attach dump -o precious", "run small.toml -o precious",
        "replay small.nanscope --set kv.format=bf16 -o precious", "report small.nanscope -o precious",
        "trace small.nanscope -o precious", "export small.nanscope -o precious",
        "scales small.nanscope --policy geometry -o precious",
#ifdef NANSCOPE_GUI
        "gui small.nanscope --screenshot precious", "gui small.nanscope --csv precious --view scales",
#endif
        "run small.toml small.toml -o precious"}) {
    const Output output = run(command);
    EXPECT_EQ(output.code, 2) << command << output.out;
    EXPECT_THAT(output.err, HasSubstr("precious")) << command;
    EXPECT_EQ(read("precious"), "mine") << command;
  }
}

TEST_F(Outputs, NoCommandReplacesWhatItReads) {
  write_dump("dump/a.npy");
  fs::create_hard_link(folder_ / "small.nanscope", folder_ / "hard.nanscope");
  fs::create_symlink("small.nanscope", folder_ / "soft.nanscope");
  const std::string recording = read("small.nanscope");
  const std::string dump = read("dump/a.npy");
  for (const std::string command :
       {"attach dump/a.npy -o dump/a.npy --force", "attach dump -o dump/a.npy --force",
        "run small.toml -o small.toml --force", "replay small.nanscope --set kv.format=bf16 -o small.nanscope --force",
        "replay small.nanscope --set kv.format=bf16 -o hard.nanscope --force",
        "trace small.nanscope -o small.nanscope --force", "trace hard.nanscope -o soft.nanscope --force",
        "report small.nanscope -o soft.nanscope --force", "report dump -o dump/a.npy --force",
#ifdef NANSCOPE_GUI
        "gui small.nanscope --screenshot small.nanscope --force",
        "gui small.nanscope --csv hard.nanscope --view scales --force",
        "gui small.nanscope --beside hard.nanscope --screenshot soft.nanscope --force",
#endif
        "export small.nanscope -o small.nanscope --force"}) {
    const Output output = run(command);
    EXPECT_EQ(output.code, 2) << command;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << command << '\n' << output.err;
  }
  EXPECT_EQ(read("small.nanscope"), recording);
  EXPECT_TRUE(fs::is_symlink(folder_ / "soft.nanscope"));
  EXPECT_EQ(read("dump/a.npy"), dump);
  EXPECT_EQ(read("small.toml"), kSmall);
}

TEST_F(Outputs, NoCommandReplacesTheModelThatItReads) {
  ASSERT_EQ(run("export --reference-model -o model").code, 0);
  ASSERT_EQ(run("run --model model -p light --tokens 1 -o answer.nanscope").code, 0);
  ASSERT_EQ(run("export answer.nanscope -o dump").code, 0);
  const std::string weights = read("model/model.safetensors");
  for (const std::string command :
       {"run --model model -p light --tokens 1 -o model/model.safetensors --force",
        "verify dump --model model --junit model/model.safetensors --force",
        "report dump --model model -o model/model.safetensors --force",
        "replay answer.nanscope --set kv.format=bf16 -o model/model.safetensors --force",
#ifdef NANSCOPE_GUI
        "gui dump --model model --screenshot model/model.safetensors --force",
        "gui dump --model model --csv model/model.safetensors --view tensors --force",
#endif
        "verify dump --model model --junit dump/request_0/step_0/tensors.safetensors --force"}) {
    const Output output = run(command);
    EXPECT_EQ(output.code, 2) << command << output.out;
    EXPECT_THAT(output.err, HasSubstr("this command reads")) << command;
  }
  EXPECT_EQ(read("model/model.safetensors"), weights);
}

TEST_F(Outputs, ARunThatFailsKeepsTheRecordingBefore) {
  const std::string before = read("small.nanscope");
  std::string huge = kSmall;
  huge += "[kv]\nblocks = 1048576\nblock_size = 4096\n";
  write("other/small.toml", huge);
  for (const std::string options : {"", " --force"}) {
    const Output output = run("run other/small.toml -o small.nanscope" + options);
    EXPECT_EQ(output.code, 2) << output.out;
    EXPECT_EQ(read("small.nanscope"), before);
  }
  const Output set = run("replay small.nanscope --set kv.blocks=1048576 --set kv.block_size=4096 -o precious --force");
  EXPECT_EQ(set.code, 2) << set.out;
  EXPECT_EQ(read("precious"), "mine");
  EXPECT_EQ(run("run small.toml").code, 0) << "over the recording of the same scenario";
}

TEST_F(Outputs, ACommandThatIsNotThereKeepsTheRecordingBefore) {
  EXPECT_EQ(run("attach --run --force -o precious -- ./not-there").code, 2);
  EXPECT_EQ(read("precious"), "mine");
}

TEST_F(Outputs, FilesBesideAreTheUsers) {
  write_dump("dump/a.npy");
  for (const char* name : {"new.nanscope.partial", "page.html.png.part", "page.html.part"}) write(name, "mine");
  EXPECT_EQ(run("attach dump -o new.nanscope").code, 0);
  EXPECT_EQ(run("report small.nanscope -o page.html --no-counterfactuals").code, 0);
  for (const char* name : {"new.nanscope.partial", "page.html.png.part", "page.html.part"})
    EXPECT_EQ(read(name), "mine");
  write("journaled.nanscope-journal", "mine");
  write("logged.nanscope-wal", "mine");
  expect_refused("run small.toml -o journaled.nanscope", "journaled.nanscope-journal: would be taken for a part");
  expect_refused("attach dump -o logged.nanscope", "logged.nanscope-wal: would be taken for a part");
  EXPECT_EQ(read("journaled.nanscope-journal"), "mine");
  EXPECT_EQ(read("logged.nanscope-wal"), "mine");
  EXPECT_EQ(names_with(".tmp"), 0U);
}

TEST_F(Outputs, OfTwoWritersOneWins) {
  write_dump("dump/a.npy");
  for (const std::string command : {"attach dump -o won.nanscope", "run small.toml -o won.nanscope"}) {
    for (int round = 0; round < 5; ++round) {
      fs::remove(folder_ / "won.nanscope");
      const std::string line = "cd '" + folder_.string() + "' && for i in 1 2 3; do { '" NANSCOPE_BINARY "' " +
                               command + " >/dev/null 2>&1; echo $? >code.$i; } & done; wait";
      ASSERT_EQ(std::system(line.c_str()), 0);
      const std::string codes = read("code.1") + read("code.2") + read("code.3");
      EXPECT_THAT(codes, HasSubstr("0")) << command;
      EXPECT_THAT(run("diagnose won.nanscope --brief").code, ::testing::AnyOf(0, 3)) << command;
    }
  }
}

TEST_F(Outputs, AnInterruptedRunIsReplacedWithItsJournal) {
  write("long.toml", kLong);
  write("other/long.toml", std::regex_replace(std::string(kSmall), std::regex("\"small\""), "\"long\""));
  for (const std::string options : {"", " --force"}) {
    fs::remove(folder_ / "long.nanscope");
    Started started(folder_, {"run", "long.toml"});
    Started::wait_for(folder_ / "long.nanscope");
    started.send(SIGKILL);
    started.wait();
    EXPECT_TRUE(fs::exists(folder_ / "long.nanscope-journal"));
    EXPECT_EQ(run("run other/long.toml" + options).code, 0) << "of the same name: it may be replaced";
    EXPECT_EQ(run("diagnose long.nanscope --brief").code, 0);
  }
}

TEST_F(Outputs, ALiveRecordingIsNotReplaced) {
  write("long.toml", kLong);
  Started started(folder_, {"run", "long.toml"});
  Started::wait_for(folder_ / "long.nanscope");
  started.send(SIGSTOP);
  for (const std::string command :
       {"run long.toml", "run long.toml --force", "trace small.nanscope -o long.nanscope --force"}) {
    expect_refused(command, "long.nanscope: is being written by another process");
  }
  started.send(SIGCONT);
  started.send(SIGTERM);
  EXPECT_EQ(started.wait(), 143) << "the first one went on";
  EXPECT_EQ(run("diagnose long.nanscope --brief --no-recompute").code, 3);
}

TEST_F(Outputs, ARunWaitsAWhileForAnotherIntoItsFile) {
  write("long.toml", kLong);
  write("other/long.toml", std::regex_replace(std::string(kSmall), std::regex("\"small\""), "\"long\""));
  Started first(folder_, {"run", "long.toml"});
  Started::wait_for(folder_ / "long.nanscope");
  Started second(folder_, {"run", "other/long.toml"});
  second.wait_for_signals();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait(), 143);
  EXPECT_EQ(second.wait(), 0) << "what the first left was its to replace";
}

TEST_F(Outputs, ASuiteReplacesItsOwnRecordingsAlone) {
  write("all/small.toml", kSmall);
  write("kept/small.nanscope", "mine");
  const Output output = run("run all -o kept");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(read("kept/small.nanscope"), "mine");
  EXPECT_EQ(run("run all -o kept --force").code, 0);
  EXPECT_EQ(run("run all -o kept").code, 0);
  fs::create_directory(folder_ / "nanscope-failures");
  EXPECT_EQ(run("run all").code, 0);
  EXPECT_TRUE(fs::exists(folder_ / "nanscope-failures")) << "the folder was there before";
}

TEST_F(Outputs, AnExportIsThereAsAWholeOrNotAtAll) {
  ASSERT_EQ(run("export small.nanscope -o dump").code, 0);
  expect_refused("export small.nanscope -o dump", "dump: is not empty");
  write("dump/request_0/step_0/tensors.safetensors", "mine");
  EXPECT_EQ(run("export small.nanscope -o dump --force").code, 0);
  EXPECT_NE(read("dump/request_0/step_0/tensors.safetensors"), "mine");
  EXPECT_EQ(names_with(".tmp"), 0U);
}

TEST_F(Outputs, TheReferenceModelIsACheckpointThatRuns) {
  ASSERT_EQ(run("export --reference-model -o model").code, 0);
  const Output output = run("run --model model -p Every --tokens 1 -o model.nanscope --brief");
  EXPECT_EQ(output.code, 0) << output.err;
}

TEST_F(Outputs, StandardOutputMayBeNamed) {
  const Output report = run("report small.nanscope -o /dev/stdout --no-counterfactuals");
  EXPECT_THAT(report.out, ::testing::StartsWith("<!"));
  EXPECT_THAT(report.out, ::testing::EndsWith("</html>\n")) << "nothing but the page";
  const Output trace = run("trace small.nanscope -o /dev/stdout");
  EXPECT_EQ(trace.code, 0) << trace.err;
  EXPECT_THAT(trace.out, HasSubstr("traceEvents"));
  EXPECT_THAT(trace.out, ::testing::Not(HasSubstr("perfetto.dev")));
  expect_refused("run small.toml -o /dev/stdout", "is no regular file");
  EXPECT_TRUE(fs::is_symlink("/dev/stdout") || !fs::exists("/dev/stdout"));
}

#ifdef NANSCOPE_GUI
TEST_F(Outputs, APictureIsNoTable) {
  expect_refused("gui small.nanscope --screenshot a --csv ./a --view scales",
                 "named for the picture and for the table");
}
#endif

}  // namespace
}  // namespace nanscope::testing
