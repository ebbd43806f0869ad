#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/numbers/format.h"
#include "core/tensor/health.h"

/// The rows of a recording, one struct per table. Writers fill them, readers return them,
/// detectors and views know nothing else about a run. docs/recording.md describes the tables.
namespace nanscope {

/// Consecutive rows of a step that are consecutive positions of one sequence.
struct Span {
  std::int64_t request = 0;
  std::int64_t index = 0;  ///< of the step within the request, 0 is the prefill
  std::int64_t row = 0;    ///< the first
  std::int64_t rows = 0;
  std::int64_t first_token = 0;  ///< position of the first row
  std::int64_t context = 0;      ///< keys visible to the last row, itself included
  std::int64_t prefix_of = -1;   ///< the request whose rows wrote the tokens that this one never ran (prefix cache)

  std::int64_t position(std::int64_t at) const { return first_token + at - row; }
  bool has(std::int64_t at) const { return at >= row && at < row + rows; }
};

/// What the rows of a tensor are.
enum class Axis : std::uint8_t {
  rows,   ///< the step's
  live,   ///< the step's, those of somebody alone
  ends,   ///< the last row of each span
  keys,   ///< what attention reads: positions of one sequence from `first_token`, or frame positions batch by batch
  part,   ///< positions from `first_token` on, of one sequence
  slots,  ///< of a KV pool
  none,   ///< of a parameter
};

/// Something about a run that the reader of a diagnosis should know.
struct RunNote {
  std::string tensor;  ///< or a file; may be empty
  std::string text;

  /// Beginnings of texts with a meaning of their own: a file or tensor that could not be read, and a name that is not
  /// known.
  static constexpr std::string_view kNotRead = "not read: ";
  static constexpr std::string_view kUnknownName = "its name says nothing that is known";
  bool is_unread() const { return text.starts_with(kNotRead); }
  bool is_unknown_name() const { return text.starts_with(kUnknownName); }
};

/// Every recorded tensor is a matrix: `tokens` rows by `channels` columns, row-major. For tensors
/// with heads the channels are head-major (head * head_dim + i, or head * keys + key for scores).
/// Where nothing says otherwise, row r belongs to the token at position first_token + r of its request.
struct TensorRow {
  std::int64_t id = 0;  ///< ascending in logical order, unique in the recording, from 1
  std::int64_t op = 0;  ///< OpRow::id of the op that made it
  std::string role;     ///< which output of the op: out, stats, k_codes, probs, ...
  Format format = Format::f32;
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  std::int64_t heads = 1;  ///< channels = heads * (channels / heads)
  std::int64_t first_token = 0;
  std::uint64_t hash = 0;  ///< 64-bit content hash of the stored bytes
  bool stored = false;     ///< the bytes are in the recording; else replay re-makes them
  Health health;
  std::optional<Axis> axis = {};  ///< nothing: of a recording of schema 1, which shapes tell, see axis_by_shape()
  std::int64_t sequence = -1;     ///< Axis::keys and part: which of the step's spans; -1: the only one, or all
  std::string name = {};          ///< as the producer wrote it; empty where its place is its name
  bool known = true;              ///< false: never dumped, there for what lies before and behind it
  bool guessed = false;           ///< bytes whose format nothing states
  bool stated = false;            ///< its health was measured by the producer; elements and rows are not known
};

/// One executed operation. Ids ascend in logical order; timestamps never order anything.
struct OpRow {
  std::int64_t id = 0;
  std::int64_t step = 0;    ///< StepRow::id; 0: before every step, as parameters are
  std::int64_t layer = -1;  ///< -1 for ops outside the layers
  std::string name;         ///< its place in the model: attn_norm, q_proj, kv_store, inner_norm, lm_head, argmax ...
  std::string kind;         ///< the kernel: layer_norm, gemm, kv_store, softmax ...
  std::string attributes;   ///< JSON object of the op's parameters: eps, variance, order, scale, mask ...
  bool by_name = true;      ///< its kind is stated, or known by its name; else guessed by shapes
};

/// One input of an op: another tensor of the recording, or a weight by name.
struct InputRow {
  std::int64_t op = 0;
  std::string role;         ///< x, weight, bias, q, k ...
  std::int64_t tensor = 0;  ///< TensorRow::id, 0 when it is a weight or the KV pool
  std::string weight;       ///< WeightRow::name, or empty
};

/// What a map of the whole run needs of a tensor: there may be millions of them.
struct TensorGlance {
  std::int64_t id = 0;
  std::int64_t op = 0;
  std::string role;
  Format format = Format::f32;
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  std::int64_t first_token = 0;
  bool detailed = false;  ///< the health of each token row is in the recording
  Health health;          ///< elements, NaN, Inf, at the largest finite value, clipped, largest |x|; nothing else
};

/// What two runs must agree on.
struct TensorHash {
  std::int64_t id = 0;
  Format format = Format::f32;
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  std::uint64_t hash = 0;
};

struct WeightRow {
  std::string name;
  Format format = Format::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::uint64_t hash = 0;
  Health health;
};

/// Requests that nobody asked for and whose answers nobody gets have negative ids.
inline constexpr std::int64_t kWarmUpRequest = -1;
inline constexpr std::int64_t kDummyRequest = -2;  ///< a batch of graph capture or of an idle rank

struct RequestRow {
  std::int64_t id = 0;
  std::string name;
  std::string prompt;                       ///< JSON array of parts: {"text": ...} or {"image": path, "png": base64}
  std::vector<std::int32_t> prompt_tokens;  ///< image tokens are -1
  std::int64_t cached_tokens = 0;           ///< leading tokens served from the prefix cache
  std::vector<std::int32_t> output_tokens;
  std::string output_text;
};

/// The last three are those of a training step. Its sequences are requests of their own, and forward, backward and
/// optimizer are the numbers 0, 1 and 2 within them.
enum class StepKind : std::uint8_t { prefill, decode, forward, backward, optimizer };

/// One pass of one rank. Request, index, first token and context are those of its first span. An optimizer step works
/// on weights and has no rows: its one span, of none, is of the training step's first sequence, which gives its ops a
/// place.
struct StepRow {
  std::int64_t id = 0;  ///< ascending over the run, from 1
  std::int64_t request = 0;
  std::int64_t index = 0;  ///< within the request: 0 is the prefill
  StepKind kind = StepKind::prefill;
  std::int64_t first_token = 0;  ///< position of the first token processed
  std::int64_t tokens = 0;       ///< rows of its activations: the tokens processed, and padding
  std::int64_t context = 0;      ///< keys visible to the last of them, itself included
  std::int64_t rank = 0;
  std::int64_t batch = 1;  ///< rows are `batch` sequences of tokens / batch frame positions each
  std::string run = {};    ///< tells runs apart that were dumped side by side; empty for one
  std::string pass = {};   ///< how the dump's folders call it
  bool placed = true;      ///< false: nothing says at which positions the rows stand, it was guessed
  /// Whose its rows are; those of no span are nobody's. Nothing: all are of the one that the fields above state.
  std::optional<std::vector<Span>> spans = {};

  std::vector<Span> all_spans() const {
    return spans ? *spans : std::vector<Span>{{request, index, 0, tokens, first_token, context}};
  }
};

/// Where a scale came from.
enum class ScaleSource : std::uint8_t { checkpoint, fixed, calibrated, sentinel, none };

/// One entry of the scale ledger: what scale a KV store used, and how far it was from clipping.
struct ScaleRow {
  std::int64_t step = 0;
  std::int64_t op = 0;  ///< the kv_store op
  std::int64_t layer = 0;
  std::string target;  ///< k or v
  std::string policy;  ///< the scale policy's registry name
  Format format = Format::e4m3;
  double scale = 1;  ///< real = code value * scale
  ScaleSource source = ScaleSource::none;
  std::int64_t calibrated_request = -1;  ///< whose values it was computed from
  std::int64_t calibrated_step = -1;     ///< StepRow::id at which it was computed
  std::int64_t calibrated_tokens = 0;
  double calibrated_absmax = 0;
  bool locked = false;  ///< it will not be recomputed
  double absmax = 0;    ///< of the values stored at this step
  double headroom = 0;  ///< largest finite * scale / absmax; below 1 clips
};

/// What happened to a range of slots of one KV block.
enum class KvAction : std::uint8_t { allocated, written, shared, freed, scrubbed };

/// One entry of the KV slot history. A slot that no `written` or `scrubbed` row covers was never
/// written. Layers share block numbers, so a row speaks of all layers unless `layer` is given.
struct KvRow {
  std::int64_t step = 0;
  std::int64_t request = 0;
  std::int64_t layer = -1;  ///< -1: all
  std::int64_t block = 0;
  std::int64_t slot_begin = 0;  ///< within the block
  std::int64_t slot_end = 0;
  std::int64_t first_token = 0;  ///< position of the token in slot_begin
  KvAction action = KvAction::written;
  std::string writer;            ///< attention, recurrent_state, warm_up ...: who wrote the bytes
  Format format = Format::e4m3;  ///< as what
};

enum class TokenSource : std::uint8_t { prompt, image, generated };

struct TokenRow {
  std::int64_t request = 0;
  std::int64_t position = 0;
  std::int32_t token = 0;  ///< -1 for an image token
  std::string text;        ///< its bytes, which may be no valid UTF-8
  TokenSource source = TokenSource::prompt;
};

/// GPU activity of a run, when it was traced. Joined to ops by `op`.
struct KernelRow {
  std::int64_t op = 0;
  std::string name;
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
  std::string details;  ///< JSON: grid, block, registers, shared memory, kind
};

/// One link of a diagnosis that was written into the recording after the run.
struct EventRow {
  std::int64_t id = 0;       ///< from 1, in the order of the chain
  std::string fault;         ///< the fault class's stable identifier
  std::int64_t tensor = 0;   ///< TensorRow::id it was found in, 0 when it is of no tensor
  std::int64_t because = 0;  ///< EventRow::id of its cause, 0 for the root
  std::string summary;       ///< one sentence
  std::string evidence;      ///< JSON object of numbers
};

/// RunInfo::device of what was dumped by somebody else's server, and cannot be run again.
inline constexpr const char* kDumpDevice = "dump";

/// What the run was: all that replay depends on, and by its state whether the recording is whole.
struct RunInfo {
  std::string nanscope_version;
  std::string created;   ///< UTC, ISO 8601
  std::string scenario;  ///< name, may be empty
  std::string config;    ///< JSON: the complete resolved configuration, prompts and images included
  std::string device;    ///< cpu, or the GPU's name
  std::string isa;       ///< baseline, avx2, avx512, sm_90
  std::string build;     ///< compiler and flags
  std::string cpu_features;
  std::string float_environment;  ///< rounding mode, FTZ, DAZ as found at the start
  std::string capture;            ///< the capture policy, as text
  std::int64_t expected_ops = 0;  ///< ops the run will execute, 0 while unknown
};

enum class RunState : std::uint8_t { recording, complete, interrupted };

}  // namespace nanscope
