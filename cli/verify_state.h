#pragma once
#include <cstddef>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "core/result.h"
#include "instrument/verify/verify.h"

namespace nanscope::cli {

/// The results of a check so far, in a file from which another run continues: one line of JSON that identifies the
/// check, then one line per output.
class VerifyState {
 public:
  /// Creates the file, or reads an existing one and skips incomplete lines of a killed run. `about` identifies the
  /// check. Errors: the file has another `about`; it cannot be read or written.
  static Result<VerifyState> open(const std::string& path, const std::string& about);

  std::optional<VerifiedOutput> known(const std::string& name) const;
  /// Error: a result could not be written.
  Status status() const;
  /// Writes the result at once.
  void found(const VerifiedOutput& one);
  std::size_t count() const { return known_.size(); }

 private:
  std::map<std::string, VerifiedOutput> known_;
  std::string path_;
  std::ofstream file_;
};

}  // namespace nanscope::cli
