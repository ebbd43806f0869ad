#include "scenarios/export_dump.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <string>

#include "instrument/diagnosis/diagnosis.h"
#include "instrument/recompute/arithmetic.h"
#include "scenarios/open_run.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/runner.h"
#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"

namespace nanscope::scenarios {
namespace {

namespace fs = std::filesystem;

struct Expected {
  const char* scenario;
  const char* fault_class;  ///< as each scenario file expects it of its recording; empty: clean
  const char* knob = "";    ///< what is changed of the scenario, and to which value
  const char* value = "";
  const char* weights = nullptr;  ///< checkpoint that was dumped with the activations
};
void PrintTo(const Expected& expected, std::ostream* out) { *out << expected.scenario; }

class ExportedScenario : public testing::TestWithParam<Expected> {};

/// Stripped of all that a recording knows, the tensors of a run tell the same.
TEST_P(ExportedScenario, IsDiagnosedAgainFromItsDump) {
  const TemporaryFolder folder;
  const fs::path file = fs::path(NANSCOPE_SOURCE_DIR) / "scenarios" / (std::string(GetParam().scenario) + ".toml");
  Scenario scenario = load_scenario(file).value();
  if (*GetParam().knob != 0) {
    std::erase_if(scenario.knobs, [](const KnobSetting& setting) { return setting.name == GetParam().knob; });
    scenario.knobs.push_back({GetParam().knob, GetParam().value, "test"});
  }
  RunnerOptions options;
  options.output = folder / "run.nanscope";
  options.capture = "all";
  const auto bench = workbench_for(scenario, options).value();
  ASSERT_TRUE(run_scenario(*bench, scenario, options));
  const Recording recording = Recording::open(options.output).value();
  RecordingTensors tensors(recording);
  const Result<std::int64_t> count = export_dump(recording, tensors, folder / "dump");
  ASSERT_TRUE(count) << count.error().message;
  EXPECT_GT(*count, 0);
  EXPECT_FALSE(export_dump(recording, tensors, folder / "dump")) << "into a folder that is not empty";

  if (GetParam().weights != nullptr) {
    fs::copy_file(file.parent_path() / "weights" / GetParam().weights, folder / "dump" / "model.safetensors");
  }
  const auto dump = OpenRun::open(folder / "dump");
  ASSERT_TRUE(dump) << dump.error().message;
  PlainArithmetic arithmetic;
  const Result<Diagnosis> found = diagnose((*dump)->view(), arithmetic);
  ASSERT_TRUE(found) << found.error().message;
  const std::string first_pass = fs::path((*dump)->dump()->dump().tensors.front().name).parent_path().string();
  for (const Fault& fault : found->faults) {
    const bool in_first = !first_pass.empty() && fault.tensor.starts_with(first_pass + '/');
    EXPECT_FALSE(in_first && fault.fault_class == "prefix-cache-poison") << "nobody was there before: " << fault.tensor;
  }
  EXPECT_EQ(found->root_cause ? found->faults[*found->root_cause].fault_class : "", GetParam().fault_class);
}

// The mask of empty-softmax-row is no tensor of the run: its scores are finite, and what is proven is an invalid op. So
// are the grammar of grammar-no-legal-token and the empty context of a dummy batch, whose passes stand in the dump like
// any other. A faulty weight is proven by the weights: activations alone are healthy, if odd. Of weight-scale-lost not
// even these prove it: the scale is there, under the name that another family has it under.
// Of nonsaturating-cast a dump shows that codes are NaN of finite values; that their scale was locked on the first
// request, which a recording's ledger says, is the weaker proof. A state that is finite and not one's own is of no
// class. Of calibrated-on-stale-state every request clips, and a dump does not say that its warm-up came before them.
INSTANTIATE_TEST_SUITE_P(
    Library, ExportedScenario,
    testing::Values(
        Expected{"kv-scale-lock", "kv-scale-locked"}, Expected{"locked-scale-warmup", "kv-scale-locked"},
        Expected{"nonsaturating-cast", "fp8-nonsaturating-overflow"},
        Expected{"unit-scale-nonsaturating", "fp8-nonsaturating-overflow"},
        Expected{"masked-v-poison", "masked-tail-poison"}, Expected{"prefix-poison", "masked-tail-poison"},
        Expected{"recycled-block-bits", "masked-tail-poison"}, Expected{"onepass-variance", "variance-collapse"},
        Expected{"residual-overflow-f16", "f16-overflow"}, Expected{"empty-softmax-row", "invalid-op"},
        Expected{"scale-left-out", "scale-misapplied"}, Expected{"scale-twice", "scale-misapplied"},
        Expected{"scale-inverted", "scale-misapplied"}, Expected{"fp8-two-flavours", "fp8-format-mismatch"},
        Expected{"sentinel-scale", "scale-invalid"}, Expected{"zero-scale", "scale-invalid"},
        Expected{"sleep-wake-scales", "scale-invalid"}, Expected{"static-scale-too-small", "saturation"},
        Expected{"outlier-squash", "outlier-squash"}, Expected{"delayed-scale-stale", "delayed-scale-stale"},
        Expected{"calibrated-on-stale-state", "saturation"}, Expected{"null-block-poison", "invalid-op"},
        Expected{"padding-rows-write-slot-0", "invalid-op"}, Expected{"additive-mask-nan", "masked-tail-poison"},
        Expected{"grammar-no-legal-token", "invalid-op"}, Expected{"weight-bit-flip", ""},
        Expected{"weight-bit-flip", "weight-corruption", "", "", "bit_flip.safetensors"},
        Expected{"weight-scale-lost", ""}, Expected{"benign-nan-constant", ""}, Expected{"legitimate-token-0", ""},
        Expected{"rmsnorm-locked-scale", ""}, Expected{"two-pass-variance", ""},
        Expected{"cast-launders-nan", "variance-collapse"}, Expected{"softmax-launders-nan", "variance-collapse"},
        Expected{"mlp-overflow-f16", "f16-overflow"}, Expected{"half-range-block-sum", "f16-overflow"},
        Expected{"half-range-block-sum", "", "activation.partial_sums", "f32"},
        Expected{"cast-launders-nan", "", "norm.variance", "two_pass"},
        Expected{"router-cancellation", "router-cancellation"},
        Expected{"router-cancellation", "", "moe.weights", "gate"}, Expected{"state-index-minus-one", ""},
        Expected{"state-not-reset", ""}, Expected{"future-leakage", "future-leakage"},
        Expected{"future-leakage", "", "attention.causal", "exact"}, Expected{"block-mask-leaks", "future-leakage"},
        Expected{"block-mask-leaks", "", "attention.causal", "exact"},
        Expected{"null-block-poison", "", "engine.dummy_batch", "none"},
        Expected{"padding-rows-write-slot-0", "", "engine.dummy_batch", "none"},
        Expected{"additive-mask-nan", "", "kv.memory", "zeroed"},
        Expected{"grammar-no-legal-token", "", "engine.grammar_empty", "keep"},
        Expected{"rope-served-too-short", "invalid-op"},
        Expected{"rope-served-too-short", "", "rope.scaling", "dynamic"},
        Expected{"rope-served-too-short", "", "rope.served", "4096"}, Expected{"scale-padding-uninit", "scale-invalid"},
        Expected{"scale-padding-uninit", "", "activation.scale_reads", "used"},
        Expected{"scale-padding-uninit", "", "activation.scale_memory", "zeroed"},
        Expected{"scale-packing-mantissa", "scale-invalid"},
        Expected{"scale-packing-mantissa", "", "activation.scale_packing", "rounded"},
        Expected{"scale-byte-127", "scale-invalid"},
        Expected{"scale-byte-127", "", "activation.scale_overflow", "saturate"}));

}  // namespace
}  // namespace nanscope::scenarios
