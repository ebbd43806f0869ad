#pragma once
#include <cupti.h>

#include <cstddef>
#include <cstdint>

/// Handles of the fake libcupti: a library of CUPTI's functions without a GPU, which hands out the records that a test
/// makes up as CUPTI does: in buffers that the client gives, completed when they are full or flushed.
struct FakeCuptiControl {
  /// Forgets all but the version.
  void (*reset)();
  /// Another client's name; CUPTI is then held by it. Null: nobody.
  void (*hold)(const char* name);
  /// What every call that needs a driver answers.
  void (*answer)(CUptiResult result);
  /// Reports a record. External ids that the calling thread has pushed precede those of `correlation`.
  void (*report)(const void* record, std::size_t bytes, std::uint32_t correlation);
  /// Counts so many records as dropped, to be told with the next buffer.
  void (*lose)(std::size_t records);
  /// Calls back the subscriber, if it listens.
  void (*call)(CUpti_CallbackDomain domain, CUpti_CallbackId id, const CUpti_CallbackData* data);
  int (*enabled)(CUpti_ActivityKind kind);
  int (*subscribed)();
  /// Buffers that the client gave and did not get back.
  int (*buffers_held)();
};

extern "C" const FakeCuptiControl* fake_cupti_control();
