#pragma once
#include <cstddef>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "core/result.h"
#include "instrument/verify/verify.h"

namespace nanscope::cli {

/// What a check found so far, in a file that another run of it goes on from: a line of JSON for what is checked, and
/// one for each output.
class VerifyState {
 public:
  /// `about` says what is checked: a file that is of something else is an error. Lines that are not whole, as those of
  /// a run that was killed, are left out.
  static Result<VerifyState> open(const std::string& path, const std::string& about);

  std::optional<VerifiedOutput> known(const std::string& name) const;
  /// Writes it down at once.
  void found(const VerifiedOutput& one);
  std::size_t count() const { return known_.size(); }

 private:
  std::map<std::string, VerifiedOutput> known_;
  std::ofstream file_;
};

}  // namespace nanscope::cli
