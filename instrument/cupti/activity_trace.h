#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"
#include "instrument/cupti/api.h"
#include "instrument/cupti/decode.h"

/// CUPTI's activity API: it writes records into buffers that it asks for, and hands them back full.
namespace nanscope::cupti {

struct ActivityOptions {
  bool external_ids = false;  ///< also the records that join work to ids that are pushed
  std::size_t buffer_bytes = std::size_t{1} << 20;
  /// Buffers that CUPTI may hold at a time: what it has to report beyond them is dropped, and counted.
  int buffers = 64;
};

/// Tracing from start() until it ends. CUPTI knows one of these a process, its callbacks carry no user data.
/// push(), pop(): as the calling thread's API calls shall be marked. take() may be called by any thread.
class ActivityTrace {
 public:
  /// Errors: there is one already; CUPTI's, see checked().
  static Result<std::unique_ptr<ActivityTrace>> start(std::shared_ptr<const Api> api,
                                                      const ActivityOptions& options = {});
  /// Ends it; what was not taken is lost.
  ~ActivityTrace();
  ActivityTrace(const ActivityTrace&) = delete;
  ActivityTrace& operator=(const ActivityTrace&) = delete;

  void push(std::uint64_t id);
  void pop();

  /// What was handed back since the last call.
  Decoded take();
  /// Hands back buffers whose work has ended; `all`: also those that CUPTI still fills. Never from a callback.
  Status flush(bool all);
  /// Records that CUPTI dropped so far.
  std::int64_t dropped() const;

 private:
  class Buffers;
  ActivityTrace(std::shared_ptr<const Api> api, std::shared_ptr<Buffers> buffers);
  Status enable(bool external_ids);

  std::shared_ptr<const Api> api_;
  std::shared_ptr<Buffers> buffers_;
  std::vector<CUpti_ActivityKind> enabled_;
};

}  // namespace nanscope::cupti
