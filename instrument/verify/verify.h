#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "core/dump/dump_run.h"
#include "core/result.h"
#include "instrument/dump/open_dump.h"
#include "instrument/model/model_spec.h"
#include "instrument/recompute/arithmetic.h"
#include "instrument/recompute/recompute.h"

/// A dump against its own checkpoint: every dumped op is fed with its dumped inputs and the checkpoint's weights, done
/// as the checkpoint's config.json says, and compared with its dumped output.
namespace nanscope {

/// Something else that a server may have done, and how much of an output that explains.
struct ExplainedBy {
  std::string alternative;  ///< its name in alternatives.def, or "scaled", "low-rank", "zero-points",
                            ///< "adapter-scale", "weight-in-memory", "bad-weight"
  std::string text;
  std::string op;              ///< whose change it is: the op itself, or one before it that was not dumped
  double share = 0;            ///< of the elements
  double distance = 0;         ///< root mean square, in units of the bound
  double log10_chance = -300;  ///< that something else comes out so: see Recomputed::log10_chance
};

enum class HowSure : std::uint8_t {
  none,      ///< nothing that is known explains it
  possible,  ///< others explain it as well, or chance may
  shown,     ///< no other explanation comes near
};

/// What was checked: an output of an op, a table of cosines and sines, a weight.
struct VerifiedOutput {
  TensorId tensor = 0;  ///< 0: a weight
  std::string name;     ///< as its producer wrote it
  std::string op;
  std::string role;  ///< which of the op's outputs
  std::string kind;  ///< of the op; "rope_table", "weight"
  std::optional<std::int64_t> layer;
  StepId step = 0;
  std::string pass;
  std::int64_t elements = 0;
  std::int64_t explained = 0;
  double distance = 0;  ///< root mean square of what it is off by, in units of the bound
  bool off = false;     ///< further than rounding
  WorstElement worst;
  std::vector<std::int64_t> bad_rows;
  std::int64_t rows = 0;                  ///< looked at
  std::vector<RowDistance> distances;     ///< of these, with VerifyOptions::distances
  std::vector<ScatteredRow> scattered;    ///< of the bad rows those that are off as a whole
  std::vector<std::int64_t> not_finite;   ///< rows with a NaN or an Inf where the model has a number
  std::vector<ExplainedBy> explanations;  ///< of what is off, best first
  bool shared = false;                    ///< the same change explains another one before it
};

HowSure certainty(const VerifiedOutput& one);

struct NotChecked {
  std::string name;
  std::string reason;
  std::string op;
  std::string role;
  std::int64_t elements = 0;
  std::optional<std::int64_t> layer;
};

struct Verification {
  std::string target;
  std::string model;
  std::string family;
  std::vector<VerifiedOutput> checked;  ///< in order of execution, weights first
  std::vector<NotChecked> not_checked;
  std::vector<std::string> notes;    ///< ids that no token has, positions that do not begin where they should
  bool complete = true;              ///< false: it was stopped
  std::string open;                  ///< why nothing that is off is no agreement; empty: it is one
  std::vector<std::string> open_at;  ///< outputs that were not checked where the free run leaves the model

  std::size_t off() const;
  const VerifiedOutput* first() const;  ///< that is off
  /// The share of the elements of all outputs that was checked; 1 where there is none.
  double coverage() const;
};

struct VerifyOptions {
  std::set<std::int64_t> layers;  ///< empty: all, and what stands outside of layers
  std::vector<std::string> ops;   ///< their names; empty: all
  std::stop_token stop;
  std::function<bool()> go_on;  ///< asked between ops; false stops the check, not what is asked of the verifier later
  std::function<void(std::size_t done, std::size_t total)> progress;  ///< outputs
  /// What is known of an output already, and where to what becomes known is told.
  std::function<std::optional<VerifiedOutput>(const std::string& name)> known;
  std::function<void(const VerifiedOutput&)> found;
  std::function<void(const NotChecked&)> skipped;
  bool distances = false;  ///< keep how far each row is off
};

/// An output of an op by what is told of it.
struct OutputName {
  std::string name;  ///< as its producer wrote it
  std::string op;
  std::string role;
};

/// A dump that is checked, and of which single outputs can be looked at, in between and afterwards. For one thread.
class Verifier {
 public:
  /// All of them must outlive it. OpenDumpOptions::checkpoint gave the dump the weights of the model.
  Verifier(OpenDump& dump, DumpRun& run, const ModelSpec& spec, Arithmetic& arithmetic, VerifyOptions options);
  ~Verifier();

  /// Checks all. To be called once. Errors: nothing of it is an op that can be done again.
  Result<Verification> check();
  /// Rows of an output that can be done again, all of them or those of a pool that the step wrote or reads. Errors:
  /// there is no such output, or its shape is another.
  Result<std::vector<std::int64_t>> rows(const OutputName& output, std::int64_t tokens, std::int64_t channels);
  /// What rows of it should have been. Errors: why they cannot be had.
  Result<Prediction> predict(const OutputName& output, std::int64_t first, std::int64_t count);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Verifier::check() of a dump.
Result<Verification> verify(OpenDump& dump, DumpRun& run, const ModelSpec& spec, Arithmetic& arithmetic,
                            const VerifyOptions& options);

}  // namespace nanscope
