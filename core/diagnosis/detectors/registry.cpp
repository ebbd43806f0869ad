#include <array>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {

#define NANSCOPE_LINK(number, function, id, title) Link detect_##function(Facts& facts);
#define NANSCOPE_FAULT(function, fault_class, looks_for) FaultReport detect_##function(Facts& facts);
#include "core/diagnosis/detectors/detectors.def"
#undef NANSCOPE_LINK
#undef NANSCOPE_FAULT

std::span<const LinkDetector> link_detectors() {
  static constexpr auto kLinks = std::to_array<LinkDetector>({
#define NANSCOPE_LINK(number, function, id, title) LinkDetector{number, id, title, detect_##function},
#include "core/diagnosis/detectors/detectors.def"
#undef NANSCOPE_LINK
  });
  static_assert(kLinks.size() == kCascadeLinks);
  return kLinks;
}

std::span<const FaultDetector> fault_detectors() {
  static constexpr auto kFaults = std::to_array<FaultDetector>({
#define NANSCOPE_FAULT(function, fault_class, looks_for) FaultDetector{fault_class, looks_for, detect_##function},
#include "core/diagnosis/detectors/detectors.def"
#undef NANSCOPE_FAULT
  });
  return kFaults;
}

}  // namespace nanscope
