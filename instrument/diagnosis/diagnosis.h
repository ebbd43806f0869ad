#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"
#include "instrument/diagnosis/evidence.h"
#include "instrument/diagnosis/server_settings.h"
#include "instrument/recompute/judgements.h"
#include "instrument/recompute/known_model.h"

namespace nanscope {

class Arithmetic;

/// How certain the cause of a fault is. What nothing says more of is possible.
enum class Certainty : std::uint8_t {
  possible,  ///< the dumped numbers fit it, and do not exclude other causes
  shown,     ///< they fit it, and no other cause that nanscope knows
  proved,    ///< counted in the dumped values, or recomputed from them within a derived bound
};

/// One fault: a class of detectors.def, where it is, and the numbers that prove it.
struct Fault {
  std::string fault_class;  ///< "kv-scale-locked", "variance-collapse" ...
  Where where;
  std::string tensor;  ///< as the producer wrote it, or its place
  std::vector<Evidence> evidence;
  std::string summary;                  ///< one sentence
  std::string fix;                      ///< one sentence; empty where the cause is only possible
  std::vector<ServerSetting> settings;  ///< of servers, that avoid it; none where the cause is only possible
  Certainty certainty = Certainty::possible;
  bool breaks = false;                 ///< NaN or Inf is born here or enters a request here
  std::optional<std::size_t> because;  ///< index in Diagnosis::faults of the fault that led to it; nothing: a root
  std::vector<OpId> ops;               ///< that show it, ascending, the first where it begins
};

/// What became of the search for a class of fault.
enum class Checked : std::uint8_t {
  found,
  excluded,       ///< looked for and not there, with the figure that says so
  not_in_dump,    ///< what it takes to tell is not there; the text says what to capture
  not_looked_at,  ///< could not be read, or the search was stopped
};

struct Check {
  std::string fault_class;
  Checked state = Checked::excluded;
  std::string text;
};

/// What is no fault yet and tends to become one: a number that was healthy, and how far it is from where it is not.
struct Warning {
  std::string kind;  ///< "headroom-falling", "outlier-owns-scale" ...
  Where where;
  std::string tensor;
  std::vector<Evidence> evidence;
  std::string summary;    ///< one sentence
  std::string advice;     ///< one sentence
  std::int64_t more = 0;  ///< tensors that show the same, less
};

struct Spread {
  std::string first_bad_tensor;  ///< empty when nothing is bad
  std::int64_t bad_tokens = 0;   ///< tokens with a NaN or Inf in a tensor of theirs
  std::int64_t tokens = 0;       ///< tokens processed, over all steps
  bool at_least = false;         ///< more may be bad: of some tensors only statistics are known
};

struct Completeness {
  std::int64_t read = 0;      ///< ops; of a dump, tensors
  std::int64_t expected = 0;  ///< 0: unknown
  bool interrupted = false;   ///< the recording ended before the run did
  std::string reached;        ///< the last op of an interrupted recording, as its place; empty when there is none
};

/// Outputs that were recomputed from their inputs.
struct Recomputation {
  std::int64_t ops = 0;              ///< outputs that were recomputed and compared
  std::int64_t ops_with_inputs = 0;  ///< and those whose inputs are there, and whose arithmetic is not understood
  std::int64_t elements = 0;         ///< compared
  std::int64_t explained = 0;        ///< of them, within the rounding of the dumped formats
  struct Left {
    std::string tensor;
    std::string reason;
  };
  std::vector<Left> not_recomputed;
};

/// How much of a run was judged: an output counts as judged if it was recomputed from its inputs and compared.
struct Coverage {
  struct Gap {
    std::string reason;
    std::int64_t outputs = 0;
    std::string example;  ///< the first of them
  };
  std::int64_t outputs = 0;        ///< that were dumped or recorded, without parameters
  std::int64_t judged = 0;         ///< of them
  std::int64_t in_part = 0;        ///< of those, outputs some of whose elements could not be recomputed
  std::int64_t unknown_names = 0;  ///< tensors that were scanned alone
  std::int64_t absent = 0;         ///< tensors that every other step of the run has
  std::int64_t not_looked_at = 0;  ///< tensors that were left out, as the facts that were to be used lack them
  std::string first_absent;        ///< the first of them; empty: there are none
  std::vector<Gap> gaps;           ///< the most frequent first
  std::string next_step;           ///< the one that would judge most of the rest; empty where none is known

  double share() const { return outputs == 0 ? 0.0 : static_cast<double>(judged) / static_cast<double>(outputs); }
};

/// A part of the target that could not be read.
struct UnreadPart {
  std::string name;  ///< a tensor or a file
  std::string text;  ///< the error
};

/// A link of the chain from a root cause to the answer: what happened, where, and of what it came.
struct Event {
  std::string kind;  ///< a class of fault, or what values went through on their way ("scale-computed", "token")
  Where where;
  std::string tensor;
  std::string text;  ///< one sentence
  std::vector<Evidence> evidence;
  std::optional<std::size_t> because;  ///< index of the event before it
  std::optional<std::size_t> fault;    ///< index in Diagnosis::faults
};

/// docs/diagnosis.md has the table. Only known facts decide it.
enum class Verdict : std::uint8_t {
  fault,
  damaged,           ///< a part of the target could not be read; faults may have been found in the rest
  clean,             ///< everything was read, named and scanned, and every output was recomputed and explained
  no_fault_found,    ///< nothing bad was seen, and not everything could be judged
  nothing_to_judge,  ///< no token, no op, only weights, or no known name
};

struct Diagnosis {
  std::string target;
  std::vector<Fault> faults;              ///< in order of execution
  std::optional<std::size_t> root_cause;  ///< index in faults: the root that reaches the output first
  std::vector<Event> chain;               ///< in order of execution
  std::vector<Check> checks;              ///< all classes
  std::vector<Warning> warnings;          ///< a kind at most once, where it is worst
  Spread spread;
  Completeness completeness;
  Recomputation recomputation;
  Coverage coverage;
  std::vector<UnreadPart> unread;  ///< parts that could not be read
  std::vector<RunNote> notes;      ///< names and files that were not understood or not read

  Verdict verdict() const;
  /// Nothing bad was seen, and nothing is damaged: clean, no_fault_found or nothing_to_judge.
  bool healthy() const { return faults.empty() && unread.empty(); }
};

struct DiagnoseOptions {
  std::string target;     ///< how the report calls the run
  bool recompute = true;  ///< recompute ops from their inputs
  std::stop_token stop = {};
  std::function<void(std::size_t done, std::size_t total)> progress = {};  ///< ops recomputed
  KnownModel model = {};  ///< what is known of the run's model; empty: the diagnosis infers it from the numbers
  Judgements* judgements = nullptr;  ///< see RecomputerOptions
};

/// Applies every detector to a run. Errors: it cannot be read; it was stopped.
Result<Diagnosis> diagnose(RunView& run, Arithmetic& arithmetic, const DiagnoseOptions& options = {});

std::string_view name(Verdict verdict);
std::string_view name(Certainty certainty);
std::string_view name(Checked state);

/// Schema "nanscope.diagnosis/3", published as docs/diagnosis.schema.json. NaN and infinities are the strings "nan",
/// "inf", "-inf".
nlohmann::ordered_json to_json(const Diagnosis& diagnosis);

}  // namespace nanscope
