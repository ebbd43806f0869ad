#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/inspect/loader.h"

/// What a loader will do with a checkpoint's tensors, without the loader.
namespace nanscope {

/// What becomes of a module's weight.
enum class Fate : std::uint8_t {
  quantized,     ///< loaded as codes with their scales
  ignored,       ///< loaded as the floats that it is
  unclassified,  ///< neither fits: config and tensors disagree, or a part is missing
};

struct InspectedModule {
  std::string path;
  Fate fate = Fate::ignored;
  std::string storage;  ///< "e4m3, f32 scales of 128 x 128"
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::uint64_t bytes = 0;  ///< of all its tensors
  double rms = 0;           ///< root mean square of the rows that were looked at; 0: of none
  double change = 0;        ///< that the loader makes in them: root mean square over `rms`; 0: none that is known
};

enum class Severity : std::uint8_t {
  note,     ///< worth knowing
  warning,  ///< the loader's numbers differ from the checkpoint's
  error,    ///< it does not load, or what it computes has little to do with the model
};

struct InspectFinding {
  std::string id;  ///< stable: "scale-missing"
  Severity severity = Severity::note;
  std::string text;
  std::string known_as;              ///< where it was met: "vllm-project/vllm #47515"; may be empty
  std::vector<std::string> modules;  ///< those that it concerns, by path
  std::vector<double> changes = {};  ///< of each of them, InspectedModule::change; empty: it is not told by a number
  bool unfits = false;               ///< the loader has no use for their codes: they are Fate::unclassified
};

struct Inspection {
  std::string target;
  std::string model_type;
  std::string quantization;
  const Loader* loader = nullptr;
  std::size_t files = 0;
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::vector<InspectedModule> modules;  ///< with a matrix that a product reads
  std::vector<InspectFinding> findings;  ///< the gravest first

  std::size_t count(Fate fate) const;
  std::size_t count(Severity severity) const;
};

struct InspectOptions {
  const Loader* loader = nullptr;       ///< needed
  std::int64_t rows = 64;               ///< of each weight that are looked at, spread evenly; 0: all
  std::string kv_cache_dtype = "auto";  ///< what the server is told to store the cache in: "fp8", "fp8_e5m2" ...
  std::stop_token stop;
  std::function<void(std::size_t done, std::size_t total)> progress;
};

/// Errors: the folder is no checkpoint, a file is damaged or changed meanwhile, stopped.
Result<Inspection> inspect_checkpoint(const std::filesystem::path& folder, const InspectOptions& options);

}  // namespace nanscope
