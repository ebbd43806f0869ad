#include "tests/unit/cli/command_fixture.h"

/// What the command that trains says, leaves behind, and refuses. tests/train/kill_train.py ends it at any moment.
namespace nanscope::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kTrain = R"([model]
weights = "random"
layers = 1
width = 16
heads = 2
kv_heads = 2
head_dim = 8
mlp_width = 24
[train]
text = "text.txt"
steps = 6
batch = 2
length = 8
)";

class TrainCommand : public Command {
 protected:
  void SetUp() override {
    write("train.toml", kTrain);
    write("text.txt", "The light turns once in twelve seconds, and the keeper counts them all, night after night.\n");
  }

  /// The curves without the seconds, which are the last column.
  std::vector<std::string> rows(const std::string& file) {
    std::vector<std::string> rows;
    std::istringstream text(read(file));
    for (std::string row; std::getline(text, row);) rows.push_back(row.substr(0, row.rfind(',')));
    return rows;
  }
};

/// The loss at the end is what `nanscope loss` measures of the folder.
TEST_F(TrainCommand, MeasuresAHeldOutTextAfterEachSave) {
  write("held.txt", "In winter the sea takes a little of the wall, and in summer the keeper puts it back again.\n");
  const Output output = run("train train.toml -o model --save-every 3 --held-out held.txt");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr("step 0: held-out loss "));
  EXPECT_THAT(output.err, HasSubstr("step 3: held-out loss "));
  const std::size_t last = output.err.find("step 6: held-out loss ");
  ASSERT_NE(last, std::string::npos) << output.err;
  const Output measured = run("loss model held.txt --length 9 --sequences 64 --format csv");
  ASSERT_EQ(measured.code, 0) << measured.err;
  std::istringstream text(measured.out);
  std::string row;
  double sum = 0;
  int count = -1;  // the title
  for (; std::getline(text, row); ++count) {
    if (count >= 0) sum += std::stod(row.substr(row.find(',', row.find(',') + 1) + 1));
  }
  ASSERT_GT(count, 0);
  EXPECT_NEAR(std::stod(output.err.substr(last + 22)), sum / count, 2e-6);
  EXPECT_EQ(run("train train.toml -o other --held-out nothing.txt").code, 2);
  write("short.txt", "One.\n");
  const Output refused = run("train train.toml -o other --held-out short.txt");
  EXPECT_THAT(refused.err, HasSubstr("short.txt: has "));
  EXPECT_THAT(refused.err, Not(HasSubstr("step 6"))) << "before anything is trained";
}

TEST_F(TrainCommand, SaysHowItGoesAndWhatItLeft) {
  const Output output = run("train train.toml -o model --csv curves.csv --log-every 2");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, StartsWith("trained 6 steps: loss "));
  EXPECT_THAT(output.err, HasSubstr("step 2 of 6: loss "));
  EXPECT_THAT(output.err, HasSubstr("tokens/s\nstep 6 of 6: loss "));
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 3) << output.err;
  const std::vector<std::string> curves = rows("curves.csv");
  ASSERT_EQ(curves.size(), 7U);
  EXPECT_EQ(curves[0], "step,loss,gradient_norm,learning_rate,loss_scale,skipped");
  EXPECT_THAT(curves[6], StartsWith("5,"));
  EXPECT_EQ(run("run --model model -p light --tokens 2 -o answer.nanscope").code, 0);
}

/// The cache of a checkpoint's run grows with its prompts, unless its size is set.
TEST_F(TrainCommand, ALongPromptFitsIntoTheCache) {
  ASSERT_EQ(run("train train.toml -o model --steps 1").code, 0);
  std::string ids = "1";
  for (int i = 0; i < 1200; ++i) ids += "," + std::to_string(1 + i % 40);
  const Output output = run("run --model model --prompt-tokens " + ids + " --tokens 2 -o long.nanscope");
  EXPECT_EQ(output.code, 0) << output.err << output.out;
  EXPECT_THAT(run("run --model model --prompt-tokens " + ids + " --set kv.blocks=64 -o set.nanscope").err,
              HasSubstr("KV blocks, kv.blocks is 64"));
}

TEST_F(TrainCommand, WritesScalesOfAttention) {
  const std::string fp8 = "--set scores.format=e4m3 --set scores.policy=delayed ";
  const Output output = run("train train.toml " + fp8 + "-o whole --scales-csv whole.csv");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("scales of attention: "));
  const std::vector<std::string> whole = rows("whole.csv");
  EXPECT_EQ(whole[0], "step,layer,target,head,scale,absmax");
  EXPECT_THAT(whole[1], StartsWith("0,0,scores,all,"));
  ASSERT_EQ(run("train train.toml " + fp8 + "-o part --scales-csv part.csv --steps 2").code, 0);
  ASSERT_EQ(run("train train.toml " + fp8 + "-o part --scales-csv part.csv --steps 6 --resume").code, 0);
  EXPECT_EQ(read("part.csv"), read("whole.csv"));
  EXPECT_THAT(run("train train.toml -o new --scales-csv text.txt").err, HasSubstr("text.txt"));
}

TEST_F(TrainCommand, GoesOnWhereItWasAndReplacesNothingElse) {
  ASSERT_EQ(run("train train.toml -o whole --csv whole.csv --steps 9").code, 0);
  ASSERT_EQ(run("train train.toml -o part --csv part.csv --steps 4").code, 0);
  EXPECT_THAT(run("train train.toml -o part").err, HasSubstr("--resume continues from it, --force starts again"));
  EXPECT_THAT(run("train train.toml -o part --resume --set train.batch=3").err,
              HasSubstr("was trained with train.batch=2, not with 3"));
  EXPECT_THAT(run("train train.toml -o part --resume --steps 3").err, HasSubstr("has done 4 steps already"));
  EXPECT_THAT(run("train train.toml -o part --resume --record r.nanscope").err, HasSubstr("record a run from its"));
  EXPECT_EQ(run("train train.toml -o part --csv part.csv --steps 9 --resume").code, 0);
  EXPECT_EQ(rows("part.csv"), rows("whole.csv"));
  EXPECT_EQ(read("part/model.safetensors"), read("whole/model.safetensors"));
  EXPECT_EQ(read("part/optimizer-9.safetensors"), read("whole/optimizer-9.safetensors"));
  EXPECT_THAT(run("train train.toml -o part --resume --steps 9").out, HasSubstr("all 9 steps are done already"));
  EXPECT_EQ(run("train train.toml -o part --force").code, 0);
  EXPECT_NE(read("part/model.safetensors"), read("whole/model.safetensors"));

  write("mine/notes.txt", "mine");
  EXPECT_THAT(run("train train.toml -o mine").err, HasSubstr("is not empty and holds no checkpoint"));
  EXPECT_THAT(run("train train.toml -o new --csv text.txt").err, HasSubstr("text.txt"));
  EXPECT_THAT(read("text.txt"), StartsWith("The light")) << "what is there needs --force";
}

TEST_F(TrainCommand, ReplacesNothingThatItReads) {
  ASSERT_EQ(run("train train.toml -o model --steps 1").code, 0);
  const std::string weights = read("model/model.safetensors");
  std::string from(kTrain);
  from.replace(from.find("random"), 6, "model/model.safetensors");
  write("from.toml", from);
  for (const char* output : {"--csv text.txt", "--csv from.toml", "--csv model/model.safetensors", "--record text.txt",
                             "--record model/model.safetensors"}) {
    const Output refused = run("train from.toml -o other --steps 1 --force " + std::string(output));
    EXPECT_EQ(refused.code, 2) << output;
    EXPECT_THAT(refused.err, HasSubstr("this command reads")) << output;
  }
  EXPECT_THAT(read("text.txt"), StartsWith("The light"));
  EXPECT_EQ(read("from.toml"), from);
  EXPECT_EQ(read("model/model.safetensors"), weights);
}

TEST_F(TrainCommand, KeepsFilesOfOthersInItsFolder) {
  ASSERT_EQ(run("train train.toml -o model --steps 2").code, 0);
  const std::vector<std::string> mine = {"model/optimizer-notes.md", "model/optimizer-99.safetensors",
                                         "model/config.json.before.tmp"};
  for (const std::string& name : mine) write(name, "mine");
  write("model/config.json.aaaabbbbcccc.tmp", "of a process that was killed");
  ASSERT_EQ(run("train train.toml -o model --resume --steps 4").code, 0);
  for (const std::string& name : mine) EXPECT_EQ(read(name), "mine") << name;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model/config.json.aaaabbbbcccc.tmp"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model/optimizer-2.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "model/optimizer-4.safetensors"));
}

/// A process that was killed may have written rows of steps that it did not save, and a part of one.
TEST_F(TrainCommand, WritesEachRowOnce) {
  ASSERT_EQ(run("train train.toml -o model --csv curves.csv --steps 3").code, 0);
  const std::string saved = read("curves.csv");
  write("curves.csv", saved + "3,1,1,1,1,0,0.5\n4,1.0");
  ASSERT_EQ(run("train train.toml -o model --csv curves.csv --resume").code, 0);
  const std::vector<std::string> curves = rows("curves.csv");
  ASSERT_EQ(curves.size(), 7U);
  for (std::size_t step = 0; step < 6; ++step) EXPECT_THAT(curves[step + 1], StartsWith(std::to_string(step) + ","));
  EXPECT_THAT(read("curves.csv"), StartsWith(saved));
  write("curves.csv", "my own\n");
  EXPECT_THAT(run("train train.toml -o model --csv curves.csv --resume --steps 8").err,
              HasSubstr("holds no curves of a training run"));
}

/// Killed before it saved anything, a run has left curves alone: they are its own, and made again. Of a run that saved
/// they cannot be.
TEST_F(TrainCommand, CurvesOfWhatWasNeverSavedAreMadeAgain) {
  ASSERT_EQ(run("train train.toml -o whole --csv whole.csv --steps 4 --save-every 3").code, 0);
  const std::string whole = read("whole.csv");
  const std::string begun = whole.substr(0, whole.find("\n2,") + 1);  // of steps 0 and 1
  write("curves.csv", begun + "2,4.1");
  EXPECT_EQ(run("train train.toml -o new --csv curves.csv --steps 4 --save-every 3").code, 2) << "without --resume";
  EXPECT_EQ(read("curves.csv"), begun + "2,4.1");
  EXPECT_EQ(run("train train.toml -o new --csv curves.csv --steps 4 --save-every 3 --resume").code, 0);
  EXPECT_EQ(rows("curves.csv"), rows("whole.csv"));
  const Output refused = run("train train.toml -o other --csv whole.csv --steps 4 --save-every 3 --resume");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("whole.csv: holds curves of another run"));
  EXPECT_EQ(read("whole.csv"), whole);
}

TEST_F(TrainCommand, ASignalFinishesTheStepAndSaves) {
  for (const auto& [signal, code] : {std::pair(SIGTERM, 143), std::pair(SIGINT, 130)}) {
    const std::string name = std::to_string(code);
    Started training(folder_, {"train", "train.toml", "-o", name, "--csv", name + ".csv", "--steps", "1000000",
                               "--save-every", "0"});
    for (int i = 0; i < 2000 && rows(name + ".csv").size() < 3; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    training.send(signal);
    EXPECT_EQ(training.wait(), code);
    const std::size_t done = rows(name + ".csv").size() - 1;
    EXPECT_TRUE(std::filesystem::exists(folder_ / (name + "/optimizer-" + std::to_string(done) + ".safetensors")));
    const std::string more = std::to_string(done + 1);
    EXPECT_EQ(run("train train.toml -o " + name + " --resume --steps " + more).code, 0);
  }
}

/// Other commands have 0.6 s to end in; a second signal ends this one too.
TEST_F(TrainCommand, ALongStepIsFinishedUnlessASecondSignalComes) {
  for (const bool twice : {false, true}) {
    const std::string name = twice ? "twice" : "once";
    Started training(folder_, {"train", "train.toml", "-o", name, "--csv", name + ".csv", "--save-every", "0", "--set",
                               "train.batch=1024", "--threads", "1"});
    for (int i = 0; i < 12000 && rows(name + ".csv").size() < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    training.send(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (twice) training.send(SIGTERM);
    EXPECT_EQ(training.wait(), 143);
    EXPECT_EQ(std::filesystem::exists(folder_ / (name + "/optimizer-2.safetensors")), !twice);
  }
}

TEST_F(TrainCommand, RecordsWhatReplaysAndIsDiagnosed) {
  ASSERT_EQ(run("train train.toml -o model --record run.nanscope").code, 0);
  EXPECT_THAT(run("replay run.nanscope").out, HasSubstr("Same, bit for bit"));
  EXPECT_EQ(run("diagnose run.nanscope").code, 0);
  EXPECT_THAT(run("why run.nanscope 2/2/0/q_proj_weight_adamw.weight[3,5]").out,
              HasSubstr("q_proj_grad.dweight[3,5] is"));
  write("text.txt", "Another text that is long enough.");
  const Output changed = run("replay run.nanscope");
  EXPECT_EQ(changed.code, 2);
  EXPECT_THAT(changed.err, HasSubstr("text.txt: is not the text of this run"));
}

TEST_F(TrainCommand, ALossThatIsNoNumberIsAFinding) {
  const Output output = run("train train.toml -o model --set train.learning_rate=1e9 --set train.clip=0 --steps 40");
  EXPECT_EQ(output.code, 1) << output.out << output.err;
  EXPECT_THAT(output.out, HasSubstr("loss nan"));
}

TEST_F(TrainCommand, MistakesAreOneLine) {
  for (const auto& [words, part] : std::vector<std::pair<std::string, std::string>>{
           {"train nothing.toml", "nothing.toml"},
           {"train train.toml --resume --force", "leave one of the two out"},
           {"train train.toml --set train.steps=0", "train.steps is 0"},
           {"train train.toml --set train.text=gone.txt", "gone.txt"},
           {"train train.toml --set train.length=4000", "train.text: has"},
           {"train train.toml --set engine.ranks=2", "it cannot be trained"}}) {
    const Output output = run(words);
    EXPECT_EQ(output.code, 2) << words;
    EXPECT_THAT(output.err, HasSubstr(part)) << words;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  }
}

}  // namespace
}  // namespace nanscope::testing
