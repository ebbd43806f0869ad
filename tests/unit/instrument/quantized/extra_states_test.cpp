// TransformerEngine's `_extra_state` in a checkpoint, as torch pickles it (make_extra_states.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "instrument/inspect/extra_state.h"
#include "instrument/inspect/inspection.h"
#include "tests/unit/instrument/quantized/edited_checkpoint.h"

namespace nanscope {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

const std::string kUp = "model.layers.0.mlp.up_proj";

class States {
 public:
  States()
      : file_(SafetensorsFile::open(
                  std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") /
                  "../extra_states.safetensors")
                  .value()) {}

  std::vector<std::byte> of(const std::string& name) const {
    for (const SafetensorsEntry& entry : file_.entries()) {
      if (entry.name == name) return {file_.bytes(entry).begin(), file_.bytes(entry).end()};
    }
    ADD_FAILURE() << "no " << name;
    return {};
  }

 private:
  SafetensorsFile file_;
};

Result<ExtraState> read(const std::string& name) { return read_extra_state(States().of(name), "x"); }

/// state_of() of the script, for the largest weight that the file says.
TEST(ExtraState, IsReadAsBothWaysStoreIt) {
  for (const char* way : {"pickled.", "saved."}) {
    const auto state = read(way + kUp);
    ASSERT_TRUE(state) << state.error().message;
    EXPECT_EQ(state->lacks, "");
    EXPECT_EQ(state->history, 4);
    EXPECT_EQ(state->backwards, 2U);
    ASSERT_EQ(state->scale.size(), 3U);
    EXPECT_FLOAT_EQ(state->scale[0], 128);
    EXPECT_FLOAT_EQ(state->scale[2], 448.0F / 7.25F);
    EXPECT_THAT(state->amax, ElementsAre(FloatEq(3.5F), FloatEq(448 / state->scale[1]), FloatEq(7.25F)));
    EXPECT_TRUE(state->used());
  }
  EXPECT_EQ(read("pickled." + kUp)->recipe, "DelayedScaling");
}

TEST(ExtraState, WhatHoldsNoScalesSaysWhy) {
  EXPECT_EQ(read_extra_state({}, "x")->lacks, "is of zero length");
  EXPECT_EQ(read("none")->lacks, "holds None");
  EXPECT_EQ(read("blocks")->lacks, "holds no scales");
  EXPECT_EQ(read("blocks")->recipe, "MXFP8BlockScaling");
  EXPECT_FALSE(read("fresh")->used());
}

TEST(ExtraState, AProgramIsNotRunAndDamageIsSaid) {
  const auto program = read("hostile");
  ASSERT_FALSE(program);
  EXPECT_THAT(program.error().message, HasSubstr("wants posix.system, which is not among what tensors need"));
  const std::vector<std::byte> whole = States().of("pickled." + kUp);
  for (std::size_t length = 1; length < whole.size(); ++length) {
    const auto cut = read_extra_state(std::span(whole).first(length), "x");
    ASSERT_FALSE(cut) << length;
    EXPECT_EQ(cut.error().message.find('\n'), std::string::npos);
  }
  // Whatever single byte is another, an answer comes.
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const std::byte other : {std::byte{0}, std::byte{0xff}}) {
      std::vector<std::byte> changed = whole;
      changed[at] = other;
      static_cast<void>(read_extra_state(changed, "x"));
    }
  }
}

struct Case {
  const char* what;
  std::function<void(EditedCheckpoint&, const States&)> edit;
  std::vector<std::string> ids;
  const char* says;  ///< a part of the first
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.what; }

void put(EditedCheckpoint& checkpoint, const std::string& module, std::vector<std::byte> state) {
  const auto size = static_cast<std::int64_t>(state.size());
  checkpoint.tensors[module + "._extra_state"] = {"U8", {size}, std::move(state)};
}

/// Every product's own.
void put_all(EditedCheckpoint& checkpoint, const States& states, const std::string& way) {
  for (const std::string& name : checkpoint.ending("proj.weight")) {
    const std::string module = name.substr(0, name.size() - 7);
    put(checkpoint, module, states.of(way + module));
  }
}

std::vector<Case> cases() {
  const auto one_is = [](const char* name) {
    return [name](EditedCheckpoint& one, const States& states) {
      put_all(one, states, "pickled.");
      put(one, kUp, states.of(name));
    };
  };
  using Ids = std::vector<std::string>;
  const Ids lacking = {"fp8-state-missing", "fp8-state"};
  return {
      {"none", [](EditedCheckpoint&, const States&) {}, {}, ""},
      {"pickled",
       [](EditedCheckpoint& one, const States& states) { put_all(one, states, "pickled."); },
       {"fp8-state"},
       "7 modules (model.layers.0.mlp.down_proj, model.layers.0.mlp.gate_proj, model.layers.0.mlp.up_proj and 4 more) "
       "have TransformerEngine's scaling state beside them, by DelayedScaling, an amax of 4 steps"},
      {"saved",
       [](EditedCheckpoint& one, const States& states) { put_all(one, states, "saved."); },
       {"fp8-state"},
       "an amax of 4 steps"},
      {"one is None", one_is("none"), lacking,
       "of 1 module (model.layers.0.mlp.up_proj) there is no scaling state of "
       "TransformerEngine (_extra_state: 1 holds None), which 6 others have"},
      {"one counted no step", one_is("fresh"), lacking, "1 has a history of zeros"},
      {"one is of zero length",
       [](EditedCheckpoint& one, const States& states) { put_all(one, states, "pickled."), put(one, kUp, {}); },
       lacking, "1 is of zero length"},
      {"one is not there",
       [](EditedCheckpoint& one, const States& states) {
         put_all(one, states, "pickled.");
         one.tensors.erase(kUp + "._extra_state");
       },
       lacking, "(_extra_state: 1 has none), which 6 others have: where training goes on in fp8 with delayed scaling"},
      {"all are of zero length",
       [](EditedCheckpoint& one, const States&) {
         for (const std::string& name : one.ending("proj.weight")) put(one, name.substr(0, name.size() - 7), {});
       },
       {"fp8-state-missing"},
       "of 7 modules"},
      {"one is of other weights", one_is("random"), {"fp8-state-stale", "fp8-state"}, "made of an amax of 0.0625"},
      {"one has a NaN",
       one_is("nan"),
       {"fp8-state-invalid", "fp8-state"},
       "scale 2 of 'model.layers.0.mlp.up_proj' is nan"},
      {"one is a program", one_is("hostile"), {"fp8-state-refused", "fp8-state"}, "posix.system"},
      {"one is by blocks", one_is("blocks"), {"fp8-state"}, "7 modules"},
      {"attention has none",
       [](EditedCheckpoint& one, const States& states) {
         put_all(one, states, "pickled."), put(one, "model.layers.0.self_attn.core_attention", {});
       },
       {"fp8-state"},
       "7 modules"},
  };
}

class ExtraStates : public ::testing::TestWithParam<Case> {};

TEST_P(ExtraStates, AreComparedWithTheWeights) {
  const Case& one = GetParam();
  EditedCheckpoint checkpoint("plain");
  one.edit(checkpoint, States());
  InspectOptions options;
  options.loader = find_loader("vllm");
  const auto made = inspect_checkpoint(checkpoint.write(), options);
  ASSERT_TRUE(made) << made.error().message;
  std::vector<std::string> ids;
  for (const InspectFinding& finding : made->findings) ids.push_back(finding.id);
  EXPECT_EQ(ids, one.ids);
  if (one.ids.empty() || made->findings.empty()) return;
  EXPECT_THAT(made->findings.front().text, HasSubstr(one.says));
}

INSTANTIATE_TEST_SUITE_P(All, ExtraStates, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace nanscope
