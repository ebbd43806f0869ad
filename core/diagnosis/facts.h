#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/diagnosis/evidence.h"
#include "core/diagnosis/kv_slots.h"
#include "core/diagnosis/run_data.h"
#include "core/diagnosis/tensor_source.h"

/// What every detector and provenance rule asks, computed once from the recorded rows. Internal to
/// the diagnosis; detectors are written against it (docs/adding-a-detector.md).
namespace nanscope {

/// A key row that kv_read gathered, and who left what is in it.
struct KeyRow {
  std::int64_t row = 0;           ///< of k_read or v_read: the key's position in the request
  std::optional<Slot> slot;       ///< nothing when the history does not say
  const KvRow* writer = nullptr;  ///< null: never written
  bool in_context = false;        ///< the step may attend to it; else it is the tail of a block
  bool own = false;               ///< this very request wrote it
};

/// The row of a kv_store's codes that went into a slot.
struct StoredRow {
  TensorRow codes;
  std::int64_t row = 0;
};

/// An op with a NaN or Inf in an output.
struct SickOp {
  OpRow op;
  StepRow step;
  std::vector<InputRow> inputs;
  std::vector<TensorRow> outputs;     ///< all, bad or not
  std::vector<std::int64_t> newborn;  ///< rows of the output that are bad though what made them was healthy
  bool born = false;                  ///< there are such rows, or no row detail and healthy inputs
  bool matters = false;               ///< what was born here reaches the logits or the stored KV
  std::string bad_weight;             ///< an input weight that holds NaN or Inf, or empty
  std::vector<KeyRow> bad_keys;       ///< for kv_read
  bool spoilt = false;                ///< a kv_read that made them of healthy codes which the request wrote

  /// The bad output that speaks for the op: `out` or the first bad one.
  const TensorRow& bad_output() const;
  const TensorRow* output(const std::string& role) const;
};

/// A KV store whose values are beyond what its scale can hold by more than rounding explains.
struct Clip {
  ScaleRow scale;
  std::optional<TensorRow> codes;   ///< k_codes or v_codes
  std::optional<TensorRow> source;  ///< what was stored
  double noise = 0;                 ///< upper bound of the relative rms error that clipping adds
  bool significant = false;         ///< that is more than the format's own rounding adds
  bool stale = false;               ///< the scale was computed from another step's values
  bool delayed = false;             ///< and so is every scale of this layer and target, each from a step of its own
};

/// How one kv_read got its K or V out of the codes that its slots hold, told by the extremes of rows.
struct KvReading {
  OpRow op;
  TensorRow read;    ///< k_read or v_read
  Format stated{};   ///< as the codes were written
  double scale = 1;  ///< of the last row looked at
  std::string scale_policy;
  Format as{};            ///< what explains most rows: this format
  int power = 1;          ///< and this power of the scale
  std::int64_t rows = 0;  ///< looked at: those whose codes and scale are known and valid
  std::int64_t rows_as_stated = 0;
  std::int64_t rows_explained = 0;

  /// Another reading gives what was read, and the right one does not.
  bool wrong() const {
    return (as != stated || power != 1) && rows >= 4 && rows_explained * 10 >= rows * 9 && rows_as_stated * 2 <= rows;
  }
};

/// Headroom down to which a clip is rounding: values up to half a gap beyond the largest finite one
/// would round to it anyway. max / (max + gap/2): 448/464 for e4m3.
double rounding_headroom(Format format);
/// Root mean square of the relative rounding error at its largest, for a uniform error: half a gap
/// over sqrt(3), relative to the low end of a binade: 2^-(m+1)/sqrt(3). For integer formats the
/// gap is relative to `rms`, the root mean square of the codes.
double rounding_noise(Format format, double rms);

class Facts {
 public:
  Facts(RunData& run, TensorSource& tensors);

  RunData& run;
  CachedTensors tensors;

  const KvSlots& slots();
  /// Ops with bad outputs, in logical order: of each request the steps up to the first whose logits
  /// are bad. What follows in a request that answers NaN are consequences.
  const std::vector<SickOp>& sick_ops();
  /// Those at which a NaN or Inf was born or entered the request, and reached the logits or the cache.
  std::vector<const SickOp*> births();
  /// The sick op with this id, null when it is healthy or was not looked at.
  const SickOp* sick(std::int64_t op);
  const std::vector<Clip>& clips();
  /// Of 8-bit caches, in logical order: the prefill and a decode step of the first requests.
  const std::vector<KvReading>& readings();

  /// Health of each row; for a matrix of one row its own. Empty when it was not recorded.
  const std::vector<Health>& rows(const TensorRow& tensor);
  /// Whether a row holds NaN or Inf; without row detail, whether the tensor does.
  bool row_bad(const TensorRow& tensor, std::int64_t row);
  std::vector<std::int64_t> bad_rows(const TensorRow& tensor);
  /// Rows whose finite elements are all one value, and which hold more than one element.
  std::vector<std::int64_t> constant_rows(const TensorRow& tensor);
  std::shared_ptr<const TensorData> elements(const TensorRow& tensor) { return tensors.fetch(tensor.id); }

  Where where(const OpRow& op);
  /// With rows and channels of the tensor; rows become positions.
  Where where(const TensorRow& tensor, std::optional<Range> rows = {}, std::optional<Range> channels = {});
  Where where(const TensorRow& tensor, const std::vector<std::int64_t>& rows);

  /// The key row `row` of a kv_read in `step` of `layer`.
  KeyRow key_row(const StepRow& step, std::int64_t layer, std::int64_t row);
  /// The codes (`target` k or v) that a write put into `slot`; nothing when no recorded kv_store did.
  std::optional<StoredRow> stored_row(const KvRow& write, const Slot& slot, std::int64_t layer,
                                      const std::string& target);
  /// The ledger entry of a kv_store op for `target` (k or v); null when there is none.
  const ScaleRow* scale_of(std::int64_t op, const std::string& target);
  /// Whether kv_read made NaN or Inf of codes that are neither, in a slot that the request wrote: by its scale, or by
  /// taking them for another format.
  bool spoilt_by_reading(std::int64_t layer, const TensorRow& read, const KeyRow& key);

 private:
  void collect();
  void collect_step(const StepRow& step);
  void examine(SickOp& op);
  void mark_what_matters(std::size_t first);
  void collect_readings(const StepRow& step);
  KvReading reading_of(const StepRow& step, const OpRow& op, const TensorRow& read, const std::string& target);

  std::unique_ptr<KvSlots> slots_;
  std::optional<std::vector<SickOp>> sick_;
  std::optional<std::vector<Clip>> clips_;
  std::optional<std::vector<KvReading>> readings_;
  std::unordered_map<std::int64_t, std::size_t> sick_index_;
  std::unordered_map<std::int64_t, std::vector<Health>> rows_;
  std::unordered_multimap<std::int64_t, const ScaleRow*> scales_;  ///< by op
};

/// The attribute of an op as a number or text; nothing when it is absent or the JSON is not an object.
std::optional<double> number_attribute(const OpRow& op, const std::string& name);
std::optional<std::string> text_attribute(const OpRow& op, const std::string& name);

/// The same as a count: `fallback` when it is absent, and never negative nor beyond 2^31, whatever a file says.
std::int64_t count_attribute(const OpRow& op, const std::string& name, std::int64_t fallback);

/// Ops whose output row t depends on row t of their inputs alone.
bool row_local(const OpRow& op);
/// "0x7F": the bits of a code in the width of its format.
std::string code_text(Format format, std::uint32_t code);
/// First and last of ascending rows.
std::optional<Range> range_of(const std::vector<std::int64_t>& rows);
/// "request 2 step 0", "the warm-up step 0".
std::string request_text(const StepRow& step);

}  // namespace nanscope
