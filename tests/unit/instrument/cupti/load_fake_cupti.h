#pragma once
#include <dlfcn.h>

#include <cstdlib>

#include "tests/unit/instrument/cupti/fake_cupti.h"

namespace nanscope::cupti {

/// The fake libcupti at `path`, emptied, and named as the one to be opened; null where it cannot be loaded.
inline const FakeCuptiControl* load_fake_cupti(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) return nullptr;
  const auto get = reinterpret_cast<decltype(&fake_cupti_control)>(dlsym(library, "fake_cupti_control"));
  if (get == nullptr) return nullptr;
  get()->reset();
  setenv("NANSCOPE_CUPTI", path, 1);
  return get();
}

}  // namespace nanscope::cupti
