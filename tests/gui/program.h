#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gui/platform/platform.h"
#include "tests/temporary_folder.h"

namespace nanscope::gui {

struct Output {
  int code = -1;
  std::string out;
  std::string err;
};

/// Why no picture can be drawn without a screen here; empty when one can.
inline std::string no_picture() {
  const auto platform = open_egl_platform({64, 64});
  return platform ? "" : platform.error().message;
}

/// A dump that does not keep to its model, and that model.
inline constexpr const char* kOffDump = NANSCOPE_SOURCE_DIR "/tests/golden/verify/fault-softcap-left-out/dump";
inline constexpr const char* kItsModel = NANSCOPE_SOURCE_DIR "/tests/unit/instrument/model/checkpoints/gemma2";
/// What follows `gui` for the one beside the other.
inline const std::string kCheckedDump = std::string("'") + kOffDump + "' --model '" + kItsModel + "'";

/// A scenario of few ops: what a view computes of a run (what-if: the run again, once a setting) takes 1 s, of the
/// flagship 12.
inline constexpr const char* kSmallScenario = "onepass-variance";
/// One that trains.
inline constexpr const char* kTrainingScenario = "optimizer-epsilon-f16";

/// The built nanscope, run in a folder of its own, without a display, its state below that folder.
class Program {
 public:
  const std::filesystem::path& folder() const { return folder_.path(); }

  Output run(const std::string& arguments) const { return shell("'" NANSCOPE_BINARY "' " + arguments); }
  /// Records a scenario of the library as `name`; or takes the recording that the same program made for another test,
  /// which is kept beside where the tests run. The output of `run`, empty where none was needed.
  Output record(const std::string& scenario, const std::string& name, const std::string& options = "") const {
    namespace fs = std::filesystem;
    const fs::path kept = fs::absolute("recordings") / (scenario + options + ".nanscope");
    const fs::path source = fs::path(NANSCOPE_SOURCE_DIR) / "scenarios" / (scenario + ".toml");
    if (is_newer(kept, NANSCOPE_BINARY) && is_newer(kept, source)) {
      fs::copy_file(kept, folder() / name);
      return {0, "", ""};
    }
    const Output output = run("run " + scenario + " -o " + name + options);
    if (output.code != 0) return output;
    // Under its name it is whole: other tests run at the same time.
    const fs::path partial = kept.string() + '.' + std::to_string(getpid());
    fs::create_directories(kept.parent_path());
    fs::copy_file(folder() / name, partial, fs::copy_options::overwrite_existing);
    fs::rename(partial, kept);
    return output;
  }
  /// Any other command there.
  Output shell(const std::string& command) const {
    const std::string line = "cd '" + folder().string() +
                             "' && env -u DISPLAY -u WAYLAND_DISPLAY LC_ALL=C XDG_STATE_HOME=\"$PWD/state\" " +
                             command + " >out.txt 2>err.txt </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  /// Copies the pictures of the folder to where the test runs, below `name`.
  void keep(const std::string& name) const {
    const std::filesystem::path kept = std::filesystem::path("failed") / name;
    std::filesystem::create_directories(kept);
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      if (entry.path().extension() != ".png") continue;
      std::filesystem::copy(entry.path(), kept / entry.path().filename(),
                            std::filesystem::copy_options::overwrite_existing);
    }
  }

 private:
  static bool is_newer(const std::filesystem::path& file, const std::filesystem::path& than) {
    return std::filesystem::exists(file) &&
           std::filesystem::last_write_time(file) > std::filesystem::last_write_time(than);
  }

  TemporaryFolder folder_;
};

}  // namespace nanscope::gui
