#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/run/kv_cache.h"
#include "core/run/run_view.h"
#include "instrument/diagnosis/evidence.h"

/// What every detector and provenance rule asks of a run, whatever it was read from. docs/adding-a-detector.md shows
/// how one is written against it.
namespace nanscope {

class Facts {
 public:
  explicit Facts(RunView& view) : run(view), cache(view) {}

  RunView& run;
  KvCache cache;

  Where where(const Op& op);
  /// With rows and channels of the tensor; rows become positions where they are somebody's.
  Where where(const Tensor& tensor, std::optional<Range> rows = {}, std::optional<Range> channels = {});
  Where where(const Tensor& tensor, const std::vector<std::int64_t>& rows);
  /// As the producer wrote it, or its place.
  std::string name_of(const Tensor& tensor);

  bool row_bad(const Tensor& tensor, std::int64_t row);
  /// Whose row it is, or that nobody knows.
  bool live(const Tensor& tensor, std::int64_t row) { return run.token_of(tensor, row).span != nullptr; }
  /// Rows whose finite elements are all one value, and which hold more than one element.
  std::vector<std::int64_t> constant_rows(const Tensor& tensor);
  /// The ledger entry of an op for `target` (k, v, x, x[3] ...); null when there is none. Where its heads have entries
  /// of their own, that of `head`, or without one the entry of the least headroom.
  const ScaleRow* scale_of(OpId op, std::string_view target, std::int64_t head = -1);
  /// Whether rows, or groups of channels, have scales of their own, of which the ledger's entry tells the largest.
  bool scale_by_row(const ScaleRow& entry);
  /// The largest finite magnitude in a parameter of an op, whether it is a tensor or a row of weights.
  const Health* parameter_health(const Input& input);
  std::string parameter_name(const Input& input);

 private:
  std::unordered_multimap<OpId, const ScaleRow*> scales_;
};

/// Whether a policy gives the rows of a step scales of their own.
bool scale_by_row(std::string_view policy, const Step& step);
/// "0x7F": the bits of a code in the width of its format.
std::string code_text(Format format, std::uint32_t code);
/// First and last of ascending rows.
std::optional<Range> range_of(const std::vector<std::int64_t>& rows);
/// "request 2 step 0", "the warm-up step 0".
std::string request_text(const Step& step);
std::string request_text(const Span& span);

}  // namespace nanscope
