#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/engine/transient.h"

/// A scenario is a TOML file that states a deployment (knobs, requests) and what must come of it.
/// It sets only what a deployment sets; docs/adding-a-scenario.md describes the file.
namespace nanscope::scenarios {

/// One knob as the file gives it. The value is in the knob registry's spelling: `4`, `true`, `e4m3`.
struct KnobSetting {
  std::string name;  ///< dotted: kv.format
  std::string value;
  std::string where;  ///< file:line:column of the value, for messages
};

/// Text, the bytes of a PNG file, or token ids.
struct ScenarioPart {
  std::string text;
  std::string image;           ///< path as the file has it; empty for text
  std::vector<std::byte> png;  ///< its bytes
  std::vector<std::int32_t> tokens;
};

struct ScenarioRequest {
  std::string name;
  std::vector<ScenarioPart> parts;
  int max_tokens = 8;
  std::int64_t arrive = 0;  ///< RequestSpec::arrive
  std::string where;
};

/// What a request must answer: a text, or nothing but token 0.
struct ExpectedOutput {
  std::size_t request = 0;  ///< index in Scenario::requests
  bool all_bang = false;
  std::string text;
};

/// A place (`2/0/1/inner_norm.stats`) that must be an origin of this fault class.
struct ExpectedPlace {
  std::string place;
  std::string fault_class;
};

/// Everything optional but the verdict: what is not stated is not judged.
struct Expectation {
  Verdict verdict = Verdict::clean;
  std::string fault_class;
  std::vector<std::string> chain;        ///< kinds of events that must be in the diagnosis' chain
  std::vector<std::string> not_reached;  ///< kinds that must not
  std::vector<ExpectedOutput> outputs;
  std::vector<ExpectedPlace> places;
  std::optional<std::vector<std::size_t>> requests_nan;  ///< exactly these hold a NaN
  std::optional<std::uint64_t> hash;                     ///< digest of every recorded tensor
};

struct Scenario {
  std::filesystem::path path;  ///< the file it came from
  bool has_file = true;        ///< else it is made of a command's options: errors name what they are about themselves
  std::string name;            ///< the file's stem must be the same
  std::string title;
  std::string text;                  ///< what happens and which link is documented where
  std::vector<std::string> threads;  ///< owner/repo#number, or an address
  std::vector<KnobSetting> knobs;
  std::vector<ScenarioRequest> requests;
  std::vector<Transient> transients;
  Expectation expect;

  /// Before an error of its run: its file, if it has one.
  std::string where() const { return has_file ? path.string() + ": " : std::string(); }
};

/// Reads a scenario and the images it names (relative to the file). Errors are one line,
/// `file:line:column: what`, for a missing file, bad TOML, an unknown key, a wrong type, an image
/// that cannot be read, a request that does not exist. Knob names and values are checked by
/// resolve() (scenarios/resolve.h).
Result<Scenario> load_scenario(const std::filesystem::path& path);
/// The same of a file to be trained by: name and [expect] may be left out, and requests are refused.
Result<Scenario> load_training_scenario(const std::filesystem::path& path);
/// The same for text in memory; `path` only names it and gives the folder of its images.
Result<Scenario> parse_scenario(std::string_view text, const std::filesystem::path& path);

/// The `*.toml` of a folder by name, not descending. Errors: no such folder, none in it.
Result<std::vector<std::filesystem::path>> scenario_files(const std::filesystem::path& folder);

}  // namespace nanscope::scenarios
