#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/recording/decode.h"
#include "core/recording/id_ranges.h"
#include "core/recording/reader_impl.h"

/// The parts of Recording::check(). Errors do not name the file. Private to core/recording.
namespace nanscope {

template <class... Args>
tl::unexpected<Error> damaged(fmt::format_string<Args...> text, Args&&... args) {
  return fail("damaged: " + fmt::format(text, std::forward<Args>(args)...));
}

/// One pass over a table, whose ids must ascend from 1; the first column is the id.
class Recording::Impl::Cursor {
 public:
  /// `what` the rows are, in the plural.
  Cursor(Impl& impl, std::string_view what) : impl_(impl), what_(what) {}

  Status open(const std::string& sql);
  Status next();
  bool there() const { return there_; }
  /// Of the current row; behind the last one the largest number there is.
  std::int64_t id() const { return id_; }
  const sqlite::Statement& row() const { return **loan_; }

 private:
  Impl& impl_;
  std::string_view what_;
  std::unique_ptr<Loan> loan_;
  bool there_ = false;
  std::int64_t id_ = 0;
};

/// Tensors beside the parts of their elements and the health of their rows, which lie in the order of their ids.
class Recording::Impl::TensorCheck {
 public:
  /// `made_again`: a replay makes its elements, of which the recording need not hold anything.
  TensorCheck(Impl& impl, bool made_again)
      : version_(impl.version),
        made_again_(made_again),
        rows_(impl, "tensors"),
        parts_(impl, "chunks"),
        details_(impl, "details") {}

  Status open();
  bool there() const { return rows_.there(); }
  std::int64_t id() const { return rows_.id(); }
  std::int64_t op() const { return rows_.row().integer(1); }
  /// Compares the current tensor with the step that it is of, which is null before the first, and goes on to the next.
  Status take(const StepRow* step);
  /// After the last one.
  Status finish(const RecordingCounts& counts) const;

  const IdRanges& ids() const { return ids_; }

 private:
  Status compare_health(const TensorRow& tensor) const;
  Status take_parts(const TensorRow& tensor, bool& any);
  Status take_detail(const TensorRow& tensor);

  std::uint32_t version_;
  bool made_again_;
  TensorRow tensor_;  ///< the current one; as much of it as is compared
  Cursor rows_;
  Cursor parts_;
  Cursor details_;
  IdRanges ids_;
  std::int64_t known_ = 0;
  std::int64_t stored_ = 0;
  std::int64_t empty_ = 0;  ///< without elements: whether they are stored cannot be told
};

}  // namespace nanscope
