#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "gui/facts.h"
#include "gui/script_player.h"
#include "gui/session.h"
#include "gui/views/registry.h"
#include "scenarios/export_dump.h"
#include "scenarios/runner.h"
#include "tests/gui/agreement.h"
#include "tests/temporary_folder.h"

#ifdef __SANITIZE_ADDRESS__
/// OpenGL's driver stays loaded: what it still holds at the end is no leak, but nobody can see that once it is gone.
extern "C" int dlclose(void*) { return 0; }
#endif

/// Views on the recording of every scenario, pointed at, clicked, zoomed and played. That nothing crashes and no view
/// fails is all that is asked; the sanitizers' build runs this too.
namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;

/// The library is a folder of this source tree, whatever the environment says.
std::vector<fs::path> library() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(NANSCOPE_SOURCE_DIR) / "scenarios")) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// What is done with each view of the whole window. The view's pane is around 600,700 at 1200x900.
std::string tour_of(const std::string& view) {
  return fmt::format(R"(
view {}
expect view {}
wait settled
key O
key N
wait settled
move 600 700
wheel 4 600 700
wheel CTRL -2 610 720
drag 600 700 by 60 -30
click 620 710
wait settled
click double right 600 700
click 450 620
click 700 760
key F
wait settled
click 800 400
wait settled
key ESCAPE
expect no text "cannot be shown"
expect no text "internal error"
)",
                     view, view);
}

/// Every fifth view of a scenario, so that each view is toured on a fifth of them; NANSCOPE_LONG_TESTS=1 tours all on
/// all.
std::string whole_tour(const fs::path& scenario, const TemporaryFolder& folder) {
  const std::vector<fs::path> scenarios = library();
  const auto place = std::find(scenarios.begin(), scenarios.end(), scenario) - scenarios.begin();
  const std::size_t stride = std::getenv("NANSCOPE_LONG_TESTS") != nullptr ? 1 : 5;
  const std::vector<std::string> views = view_names();
  std::string tour = "wait settled\n";
  for (std::size_t i = static_cast<std::size_t>(place) % stride; i < views.size(); i += stride)
    tour += tour_of(views[i]);
  return tour + R"(
click 400 200
wheel 6 500 250
wheel SHIFT -3 500 250
drag 500 250 by -80 40
click right double 500 250
click 1100 400
wheel -5 1100 400
key F1
key ESCAPE
key SPACE
wait 0.3
key SPACE
key RIGHT
key LEFT
key ALT+LEFT
key ALT+RIGHT
drag item scrubber by 100 0
drag item "middle splitter" by 0 40
resize 720x520
wait settled
resize 2400x400
wait settled
expect no text "cannot be shown"
picture ")" +
         (folder / "end.png").string() + R"("
)";
}

class Smoke : public ::testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    if (const auto platform = open_egl_platform({64, 64}); !platform) GTEST_SKIP() << platform.error().message;
    const auto scenario = scenarios::load_scenario(GetParam());
    ASSERT_TRUE(scenario) << scenario.error().message;
    scenarios::RunnerOptions options;
    options.output = folder_ / "run.nanscope";
    const auto bench = scenarios::workbench_for(*scenario, options);
    ASSERT_TRUE(bench) << bench.error().message;
    const auto run = scenarios::run_scenario(**bench, *scenario, options);
    ASSERT_TRUE(run) << run.error().message;
    options_.file = options.output;
  }

  void play(const std::string& text) {
    const auto script = parse_script(text, folder_ / "tour");
    ASSERT_TRUE(script) << script.error().message;
    options_.script = script->path;
    Result<OpenedRun> run = open_run(options_.file);
    ASSERT_TRUE(run) << run.error().message;
    const auto session = Session::open(options_, std::move(*run), {});
    ASSERT_TRUE(session) << session.error().message;
    const Status played =
        ScriptPlayer(**session, false, [](std::string_view) {}, {.output = {}, .stop = {}}).play(*script);
    EXPECT_TRUE(played) << played.error().message << '\n' << text;
  }

  /// Folders of dumps have no word for the steps of training.
  void expect_agreement_of_its_dump() {
    Result<OpenedRun> run = open_run(options_.file);
    ASSERT_TRUE(run) << run.error().message;
    RunFacts facts(std::move(*run));
    const auto steps = facts.recording()->steps();
    ASSERT_TRUE(steps) << steps.error().message;
    if (!steps->empty() && steps->front().kind == StepKind::forward) return;
    const auto exported = scenarios::export_dump(*facts.recording(), facts.tensors(), folder_ / "dump");
    ASSERT_TRUE(exported) << exported.error().message;
    SCOPED_TRACE("the dump of it");
    expect_agreement(folder_ / "dump");
  }

  TemporaryFolder folder_;
  AppOptions options_;
};

/// A run is recorded once for all that is asked of its window.
TEST_P(Smoke, ViewsAreShownAndSayWhatTheDiagnosisSays) {
  expect_agreement(options_.file);
  expect_agreement_of_its_dump();
  options_.size = {1200, 900};
  play(whole_tour(GetParam(), folder_));
}

INSTANTIATE_TEST_SUITE_P(Scenarios, Smoke, ::testing::ValuesIn(library()), [](const auto& info) {
  std::string name = info.param.stem().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace nanscope::gui
