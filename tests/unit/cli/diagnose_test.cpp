#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/cli/command_fixture.h"

/// `nanscope diagnose`, `why`, `diff` and `report` of dumps through the real binary.
namespace {

namespace fs = std::filesystem;
using nanscope::testing::Command;
using nanscope::testing::Output;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class DiagnoseDumps : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    write_norm("clean/", 0, 1);
    write_norm("clean/", 1, 1);
    write_norm("one/", 0, kNan);
    write_norm("one/", 1, 1);
    write_norm("two/", 0, kNan);
    write_norm("two/", 1, kNan);
  }

  /// The input norm of a layer: two rows of four, its weight is 1 but for channel 2. A NaN weight makes that channel
  /// NaN.
  void write_norm(const std::string& folder, int layer, float weight) {
    const std::array<float, 8> x{30, -10, 20, 40, -50, 10, 0, 20};
    std::vector<float> out;
    for (std::size_t row = 0; row < 2; ++row) {
      double squares = 0;
      for (std::size_t i = 0; i < 4; ++i) squares += double{x[4 * row + i]} * double{x[4 * row + i]};
      for (std::size_t i = 0; i < 4; ++i) {
        const double normed = double{x[4 * row + i]} / std::sqrt(squares / 4 + 1e-6);
        out.push_back(static_cast<float>(i == 2 ? normed * double{weight} : normed));
      }
    }
    const std::string name = folder + "model.layers." + std::to_string(layer) + ".input_layernorm.";
    write_npy(name + "input.npy", 2, 4, {x.begin(), x.end()});
    write_npy(name + "weight.npy", 1, 4, {1, 1, weight, 1});
    write_npy(name + "output.npy", 2, 4, out);
  }

  void flip_a_bit_of(const std::string& recording, const std::string& tensor) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((folder_ / recording).c_str(), &database), SQLITE_OK);
    const std::string sql =
        "UPDATE chunks SET data = CAST(substr(data, 1, 4) || x'01' || substr(data, 6) AS BLOB) WHERE id IN "
        "(SELECT id * 65536 FROM tensors WHERE name LIKE '" +
        tensor + "')";
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    EXPECT_EQ(sqlite3_changes(database), 1);
    sqlite3_close(database);
  }

  nlohmann::json json(const std::string& arguments, int code) {
    const Output output = run(arguments + " --format json");
    EXPECT_EQ(output.code, code) << arguments << '\n' << output.out << output.err;
    return nlohmann::json::parse(output.out, nullptr, false);
  }
};

TEST_F(DiagnoseDumps, OneTargetIsOneDiagnosis) {
  const auto clean = json("diagnose clean", 0);
  EXPECT_EQ(clean["schema"], "nanscope.diagnosis/3");
  EXPECT_EQ(clean["target"], "clean");
  EXPECT_EQ(clean["verdict"], "no-fault-found");
  EXPECT_EQ(clean["coverage"]["outputs"], 4);
  EXPECT_EQ(clean["coverage"]["judged"], 3);
  const auto faulty = json("diagnose one", 1);
  EXPECT_EQ(faulty["verdict"], "fault");
  EXPECT_EQ(faulty["root_cause"]["class"], "weight-corruption");
  EXPECT_THAT(faulty["root_cause"]["tensor"].get<std::string>(), HasSubstr("layers.0.input_layernorm.weight"));
}

TEST_F(DiagnoseDumps, SeveralTargetsAreOneDocument) {
  const auto document = json("diagnose clean one", 1);
  EXPECT_EQ(document["schema"], "nanscope.diagnoses/1");
  ASSERT_EQ(document["targets"].size(), 2U);
  EXPECT_EQ(document["targets"][0]["verdict"], "no-fault-found");
  EXPECT_EQ(document["targets"][1]["verdict"], "fault");
}

TEST_F(DiagnoseDumps, ATargetThatCannotBeReadIsInTheDocumentAndHidesNoOther) {
  const auto document = json("diagnose absent one", 2);
  ASSERT_EQ(document["targets"].size(), 2U);
  EXPECT_EQ(document["targets"][0]["verdict"], "error");
  EXPECT_THAT(document["targets"][0]["error"].get<std::string>(), HasSubstr("absent"));
  EXPECT_EQ(document["targets"][1]["verdict"], "fault");
  const Output junit = run("diagnose absent one clean --format junit");
  EXPECT_EQ(junit.code, 2);
  EXPECT_THAT(junit.out, HasSubstr("tests=\"3\" failures=\"1\" errors=\"1\""));
  EXPECT_THAT(junit.err, StartsWith("nanscope: absent: "));
  const Output sarif = run("diagnose absent one --format sarif");
  EXPECT_EQ(sarif.code, 2);
  const auto log = nlohmann::json::parse(sarif.out);
  EXPECT_EQ(log["version"], "2.1.0");
  EXPECT_FALSE(log["runs"][0]["invocations"][0]["executionSuccessful"].get<bool>());
  EXPECT_EQ(log["runs"][0]["results"][0]["ruleId"], "weight-corruption");
  const Output text = run("diagnose absent one");
  EXPECT_EQ(text.code, 2);
  EXPECT_THAT(text.out, HasSubstr("weight-corruption"));
}

TEST_F(DiagnoseDumps, LessThanTheLeastCoverageIsNotJudged) {
  EXPECT_EQ(run("diagnose clean --brief --min-coverage 0.75").code, 0) << "3 of 4 outputs are recomputed";
  EXPECT_EQ(run("diagnose clean --brief --min-coverage 0.76").code, 3);
  EXPECT_EQ(run("diagnose one --brief --min-coverage 1").code, 1) << "a fault comes first";
  EXPECT_EQ(run("diagnose clean --min-coverage 1.5").code, 2);
}

/// A bit of the stored elements of an activation that was attached: a part that cannot be read, for every command.
TEST_F(DiagnoseDumps, ElementsAgainstTheirHashAreDamage) {
  ASSERT_EQ(run("attach one -o one.nanscope").code, 0);
  flip_a_bit_of("one.nanscope", "%layers.0.input_layernorm.output%");
  for (const std::string command : {"diagnose one.nanscope", "diagnose one.nanscope --format json",
                                    "report one.nanscope -o page.html", "why one.nanscope"}) {
    const Output output = run(command);
    EXPECT_EQ(output.code, 2) << command;
    EXPECT_THAT(output.err, HasSubstr("could not be read: one.nanscope: damaged: the elements of tensor")) << command;
  }
  const auto document = json("diagnose one.nanscope", 2);
  EXPECT_EQ(document["verdict"], "damaged");
  EXPECT_EQ(document["unread"].size(), 1U);
  for (const auto& check : document["checks"]) EXPECT_NE(check["state"], "excluded") << check;
  EXPECT_EQ(document["root_cause"]["class"], "weight-corruption") << "what was read is still judged";
}

TEST_F(DiagnoseDumps, BriefIsALineATarget) {
  const Output output = run("diagnose clean one --brief");
  EXPECT_EQ(output.code, 1);
  EXPECT_EQ(std::count(output.out.begin(), output.out.end(), '\n'), 2) << output.out;
  EXPECT_THAT(output.out, AllOf(StartsWith("clean: no fault found in 2 tokens; 1 of 4 outputs could not be judged\n"),
                                HasSubstr("\none: weight-corruption in ")));
  const Output one = run("diagnose one --brief");
  EXPECT_THAT(one.out, AllOf(StartsWith("Verdict   one: weight-corruption"), HasSubstr("\nPlace     "),
                             HasSubstr("\nCause     "), HasSubstr("\nFix       ")));
  EXPECT_LE(std::count(one.out.begin(), one.out.end(), '\n'), 5) << one.out;
  EXPECT_THAT(run("diagnose one").out, StartsWith(one.out + '\n'));
  expect_refused("diagnose one --brief --counterfactuals", "leave one of the two out");
  expect_refused("diagnose one --brief --format json", "--brief is for --format text");
}

TEST_F(DiagnoseDumps, OtherClassesThanThoseToFailForAreAccepted) {
  EXPECT_EQ(run("diagnose one --fail-on weight-corruption").code, 1);
  EXPECT_EQ(run("diagnose one --fail-on saturation,weight-corruption").code, 1);
  const Output other = run("diagnose one --fail-on saturation,f16-overflow");
  EXPECT_EQ(other.code, 0) << other.out;
  EXPECT_THAT(other.out, HasSubstr("Accepted  weight-corruption in "));
  EXPECT_THAT(run("diagnose one --fail-on saturation --brief").out, HasSubstr("one: accepted: weight-corruption"));
  EXPECT_EQ(run("diagnose one absent --fail-on saturation").code, 2) << "what cannot be read is never accepted";
}

TEST_F(DiagnoseDumps, AnUnknownClassIsAnErrorThatNamesTheKnownOnes) {
  expect_refused("diagnose one --fail-on weight-corupption",
                 "unknown class 'weight-corupption'; did you mean 'weight-corruption'? (known: argmax-nan-fallback, ");
}

TEST_F(DiagnoseDumps, WhatABaselineKnowsDoesNotFail) {
  write("known.json", run("diagnose one --format json").out);
  const auto again = json("diagnose one --baseline known.json", 0);
  EXPECT_EQ(again["verdict"], "fault") << "it is there all the same";
  EXPECT_EQ(again["accepted"].size(), again["faults"].size());
  const auto more = json("diagnose two --baseline known.json", 1);
  const std::string accepted = more["faults"][more["accepted"][0].get<std::size_t>()]["tensor"];
  EXPECT_THAT(accepted, HasSubstr("layers.0."));
  EXPECT_LT(more["accepted"].size(), more["faults"].size());
  fs::rename(folder_ / "one", folder_ / "moved");
  const Output text = run("diagnose moved --baseline known.json");
  EXPECT_EQ(text.code, 0) << "another folder is no other fault";
  EXPECT_THAT(text.out, AllOf(HasSubstr("Accepted  weight-corruption in "), Not(HasSubstr("Gone "))));
  EXPECT_THAT(run("diagnose moved --baseline known.json --format markdown").out,
              HasSubstr("\n- accepted: weight-corruption in "));
}

TEST_F(DiagnoseDumps, ABaselineOfSeveralTargetsHoldsForAll) {
  write("known.json", run("diagnose absent two clean --format json").out);
  EXPECT_EQ(run("diagnose one --baseline known.json").code, 0);
  const Output gone = run("diagnose one clean --baseline known.json");
  EXPECT_EQ(gone.code, 0);
  EXPECT_THAT(gone.out, HasSubstr("Gone      weight-corruption in model.layers.1.input_layernorm.weight"));
  EXPECT_THAT(run("diagnose one absent --baseline known.json").out, Not(HasSubstr("Gone ")))
      << "it may be in what could not be read";
}

TEST_F(DiagnoseDumps, ABrokenBaselineIsRefused) {
  expect_refused("diagnose one --baseline absent.json", "--baseline: absent.json: ");
  write("broken.json", run("diagnose one --format json").out.substr(0, 200));
  expect_refused("diagnose one --baseline broken.json", "--baseline: broken.json: is no JSON object");
  write("other.json", R"({"schema": "nanscope.why/1"})");
  expect_refused("diagnose one --baseline other.json", "is of schema 'nanscope.why/1'");
  expect_refused("diagnose one --baseline clean", "--baseline: clean: ");
}

TEST_F(DiagnoseDumps, NothingIsDoneAgainWhereThatIsNotWanted) {
  EXPECT_GT(json("diagnose clean", 0)["recomputation"]["ops"].get<int>(), 0);
  EXPECT_EQ(json("diagnose clean --no-recompute", 0)["recomputation"]["ops"], 0);
}

TEST_F(DiagnoseDumps, CounterfactualsOfADumpAreLeftOutWithASentence) {
  ASSERT_EQ(run("attach one -o one.nanscope").code, 0);
  for (const std::string target : {"one", "one.nanscope"}) {
    const Output text = run("diagnose " + target + " --counterfactuals");
    EXPECT_EQ(text.code, 1);
    EXPECT_THAT(text.out, HasSubstr("No counterfactuals: nanscope cannot rerun a dump."));
    const Output document = run("diagnose " + target + " --counterfactuals --format json");
    EXPECT_EQ(nlohmann::json::parse(document.out)["verdict"], "fault");
    EXPECT_EQ(document.err, "nanscope: " + target + ": No counterfactuals: nanscope cannot rerun a dump.\n");
    EXPECT_EQ(run("report " + target + " -o page.html --force").code, 0);
    EXPECT_THAT(read("page.html"), HasSubstr("No counterfactuals: nanscope cannot rerun a dump."));
  }
}

TEST_F(DiagnoseDumps, WhyBeginsAtTheFirstBadElement) {
  const auto path = json("why one", 0);
  EXPECT_EQ(path["schema"], "nanscope.why/1");
  ASSERT_FALSE(path["hops"].empty());
  EXPECT_THAT(path["hops"][0]["tensor"].get<std::string>(), HasSubstr("layers.0.input_layernorm.output"));
  EXPECT_EQ(path["hops"][0]["channels"], nlohmann::json({2, 2})) << "the channel of the NaN weight";
  EXPECT_TRUE(path["hops"][0]["bad"].get<bool>());
  const Output clean = run("why clean");
  EXPECT_EQ(clean.code, 0);
  EXPECT_THAT(clean.out, HasSubstr("No token of a request holds a NaN or Inf"));
  EXPECT_TRUE(json("why clean", 0)["hops"].empty());
}

TEST_F(DiagnoseDumps, WhyTakesTheNamesOfTheProducer) {
  const std::string whole = "model.layers.1.input_layernorm.output";
  const Output named = run("why two " + whole);
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_THAT(named.out, HasSubstr("  0  " + whole + "[0,2]  f32 nan 0x7FC00000"));
  EXPECT_THAT(run("why two 'layers.1.input_layernorm.output[1,2]'").out, HasSubstr("  0  " + whole + "[1,2]  f32 nan"));
  EXPECT_THAT(run("why two '0/0/1/attn_norm.out[1,3]'").out, HasSubstr("  0  " + whole + "[1,3]  f32 ")) << "a place";
  EXPECT_EQ(run("why two " + whole + " --brief").code, 0);
}

TEST_F(DiagnoseDumps, WhyRefusesWhatIsNotThere) {
  expect_refused("why absent", "absent");
  expect_refused("why one input_layernorm.output",
                 "matches several: model.layers.0.input_layernorm.output, model.layers.1");
  expect_refused("why one model.layers.0.input_layernorm.otput", "near: 'model.layers.0.input_layernorm.output'");
  expect_refused("why one 'model.layers.0.input_layernorm.output[2,0]'", "outside of it");
  expect_refused("why one 'model.layers.0.input_layernorm.output[0,4]'",
                 "channel 4 is outside of it: it has 4 channels");
  expect_refused("why one 7/0/0/attn_norm", "there is no request 7");
}

TEST_F(DiagnoseDumps, DiffTakesDumpsAndMixedTargets) {
  EXPECT_EQ(run("diff clean clean").code, 0);
  const Output dumps = run("diff clean one");
  EXPECT_EQ(dumps.code, 1);
  EXPECT_THAT(dumps.out, HasSubstr("layers.0.input_layernorm"));
  ASSERT_EQ(run("run small.toml").code, 0);
  const Output mixed = run("diff small.nanscope clean");
  EXPECT_EQ(mixed.code, 1) << mixed.err;
  EXPECT_THAT(mixed.out, HasSubstr("without a partner"));
  EXPECT_THAT(run("diff clean one --repeat clean").out, HasSubstr("layers.0.input_layernorm"));
  EXPECT_EQ(run("diff clean clean --repeat clean").code, 0);
  write("names", "model.layers.0 model.layers.1\nalone\n");
  expect_refused("diff clean one --map names", "names: line 2");
  expect_refused("diff clean one --map absent", "absent");
  expect_refused("diff clean absent", "absent");
}

/// Two files of one tensor each are meant to be compared, whatever they are called and however far they are apart.
TEST_F(DiagnoseDumps, DiffComparesTwoFiles) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
  const auto array = [&](const std::string& elements) {
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + std::string(117 - header.size(), ' ') + '\n' +
           elements;
  };
  write("x.npy", array(std::string(16, '\0')));
  write("y.npy", array(std::string(12, '\0') + std::string("\0\0\x80\x3f", 4)));
  const Output apart = run("diff x.npy y.npy");
  EXPECT_EQ(apart.code, 1) << apart.err;
  EXPECT_THAT(apart.out, HasSubstr("1 tensor compared"));
  EXPECT_THAT(apart.out, HasSubstr("rows met in their order"));
  EXPECT_THAT(apart.out, HasSubstr("channel 1 of row 1 is 0 in A, 1 in B"));
  EXPECT_EQ(run("diff x.npy x.npy").code, 0) << "zeros as well";
}

TEST_F(DiagnoseDumps, AReportIsMadeOfADump) {
  const Output written = run("report one/");
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.out, "one.html\n");
  EXPECT_THAT(read("one.html"), AllOf(HasSubstr("weight-corruption"), HasSubstr("layers.0.input_layernorm.weight")));
  EXPECT_EQ(run("report clean -o clean.html").code, 0);
  expect_refused("report absent", "absent");
}

TEST_F(DiagnoseDumps, ExportAndAttachKeepTheDiagnosis) {
  const Output attached = run("attach one -o one.nanscope");
  ASSERT_EQ(attached.code, 0) << attached.err;
  const auto recording = json("diagnose one.nanscope", 1);
  EXPECT_EQ(recording["root_cause"]["class"], "weight-corruption");
  EXPECT_EQ(run("why one.nanscope").code, 0);
}

}  // namespace
