#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

/// Which tensors' bytes go into a recording. Rows, health and hashes are always recorded.
namespace nanscope {

/// What to do with the bytes of one tensor.
enum class Capture : std::uint8_t {
  skip,   ///< replay re-makes them
  write,  ///< into the recording
  hold,   ///< into a CaptureRing, to be written if a fault appears nearby
};

/// A parsed policy: `all`, `none`, `ring:N` (N steps before and after the first NaN or Inf), or
/// `named:role,op.role,...` (a bare name is a role of any op, `op.*` every output of an op).
class CapturePolicy {
 public:
  /// Errors: an unknown word, N below 1 or not a number, an empty name.
  static Result<CapturePolicy> parse(std::string_view text);

  Capture wants(std::string_view op, std::string_view role) const;
  int ring_steps() const { return ring_steps_; }  ///< N of ring:N, else 0
  std::string text() const;                       ///< parses back to the same policy

 private:
  enum class Kind : std::uint8_t { all, none, ring, named };
  struct Name {
    std::string op;    ///< empty: any
    std::string role;  ///< empty: any
  };
  Kind kind_ = Kind::none;
  int ring_steps_ = 0;
  std::vector<Name> names_;
};

/// Holds the tensors of the last steps and gives them out when the first fault appears.
class CaptureRing {
 public:
  struct Tensor {
    std::int64_t id = 0;
    std::vector<std::byte> bytes;
  };

  /// Keeps the bytes of the last `steps` steps before the running one, at most `budget` bytes: the
  /// oldest tensors are dropped first, and counted.
  CaptureRing(int steps, std::size_t budget) : steps_(steps), budget_(budget) {}

  /// Takes one tensor of the running step (steps ascend by one) and returns those to be written
  /// now: none while all is healthy; at the first `bad` one, all that are held and this; this one
  /// alone during the rest of that step and the `steps` steps after it; none later.
  std::vector<Tensor> push(std::int64_t step, bool bad, Tensor tensor);

  bool triggered() const { return fault_step_ >= 0; }
  std::size_t held_bytes() const { return held_bytes_; }
  std::int64_t dropped() const { return dropped_; }  ///< tensors lost to the budget

 private:
  struct Held {
    std::int64_t step;
    Tensor tensor;
  };
  int steps_;
  std::size_t budget_;
  std::size_t held_bytes_ = 0;
  std::int64_t fault_step_ = -1;
  std::int64_t dropped_ = 0;
  std::deque<Held> held_;
};

}  // namespace nanscope
