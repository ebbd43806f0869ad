#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/run/key_columns.h"
#include "instrument/recompute/values.h"

/// Keys and values as attention reads them: one row a column of the scores, out of projections, caches and the steps
/// before.
namespace nanscope {

struct KeyMatrix {
  Block block;                         ///< a row a column of the scores; zero where it is not there
  std::vector<bool> there;             ///< whether the row could be had
  std::vector<std::int64_t> position;  ///< in the sequence, -1 for padding
  bool all_there = false;
  /// Of each group of channels and row, one row after another: the norm, and the norm of the errors. Filled by
  /// measure_keys(), as is `turned`: rows of channels, each with room for `stride` keys.
  std::vector<double> norms, off_norms;
  std::vector<float> turned;
  std::vector<float> turned_squares;  ///< of the same numbers, where they are wanted
  std::int64_t stride = 0;
};

/// Keys that attention of a span goes over: those of its context, or the last ones that a mask of a window covers.
std::int64_t key_columns(Values& values, const Op& op, const Step& step, const Span& span);

/// OpForm::rounded of attention: nothing on the way, all of it to the activations' format (of codes, what is read back
/// of them), or keys and values to 8 bits of e4m3 (int8 loses less of what matters) or of e5m2.
enum Rounded : int { kUnrounded = 0, kToActivations = 1, kByCache = 2, kByCoarseCache = 3 };

/// Whether what an op reads as `role` are the step's own keys or values, and a token that sees itself alone shows that
/// its value went through 8 bits before it was read: a cache that was not dumped.
bool cached_unseen(Values& values, const Op& op, std::string_view role);

/// A form whose keys or values came out of such a cache, one for each format that it may have had.
void add_cached(std::vector<OpForm>& forms, const OpForm& plain, std::string_view said);

/// Forms of a sequence's first step that goes over its own keys or values (`role`) as they were before they were
/// stored, where the op reads a cache of codes: kernels of prefills are given what was projected.
void add_own_keys(Values& values, const Op& op, std::string_view role, std::vector<OpForm>& forms);

/// Whether what an op reads as `role` are codes with a scale: some kernels round what they read back, some do not.
bool reads_scaled_codes(Values& values, const Op& op, std::string_view role);

/// The row that holds a position of a span's sequence in a step before, in the tensor of the same op and role.
std::optional<std::pair<const Tensor*, std::int64_t>> row_before(RunView& run, const Tensor& now, const Step& step,
                                                                 const Span& span, std::int64_t position);

/// What `op` reads as `role` (k or v), with its scale to a power and, for codes, in a format. Nothing when its input
/// was not dumped at all.
std::optional<KeyMatrix> gather_keys(Values& values, const Op& op, std::string_view role, const Step& step,
                                     const Span& span, std::int64_t columns, const OpForm& form, std::string& why);

/// Forms of attention to a cache whose keys, or values (`role`), are rotated by a Hadamard matrix where queries, or
/// what comes out, are not; heads are `width` channels wide. Of a width that no power of two divides there are none. A
/// cache that was not dumped, which a step reads tokens before its own from, may have 8 bits besides.
void add_rotated_alone(Values& values, const Op& op, std::vector<OpForm>& forms, const OpForm& chosen,
                       std::string_view role, std::int64_t width);

/// Which keys a row may see, and what is added to its scores.
struct RowMask {
  std::vector<bool> visible;
  std::vector<float> added;  ///< empty: nothing
};

/// OpForm::variant of a mask.
enum Masking : int { kCausal = 0, kNoMask = 1, kGivenMask = 2, kGivenCausal = 3, kWindow = 4, kAround = 5 };

/// Of a row of a span, by OpForm::variant; OpForm::number is a window's width, or of one on both sides (kAround) how
/// far a key may be; OpForm::shift lets later keys in.
std::optional<RowMask> row_mask(Values& values, const Op& op, const Step& step, const Span& span, std::int64_t row,
                                const std::vector<std::int64_t>& positions, const OpForm& form);

/// Heads that queries may have, given how attention copied the value of a first token, which sees no other: heads that
/// share keys show it. All that fit where nothing shows.
std::vector<std::int64_t> heads_that_copy(Values& values, const Op& op, std::int64_t query_channels,
                                          std::int64_t key_channels);

/// Masks gone wrong: later keys let in, a token's own hidden, none at all.
std::vector<OpForm> wrong_masks(const OpForm& chosen);

/// Whether the op was given a mask that covers these columns.
bool has_mask(Values& values, const Op& op, std::int64_t columns);

}  // namespace nanscope
