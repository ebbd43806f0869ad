#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "instrument/server_probe/mechanisms.h"
#include "instrument/server_probe/study.h"

namespace nanscope::server_probe {

/// What the probe came to.
struct Finding {
  std::string target;  ///< the URL or the file
  std::string model;
  std::vector<Observation> observations;
  std::map<Sign, std::string> signs;
  std::vector<Ranked> ranked;
  int requests = 0;
  double seconds = 0;
  std::string unfinished;  ///< why not all was asked; empty: all was

  bool broken() const;
  /// An invariant was compared at all.
  bool judged() const;
};

/// Asks all experiments.
Finding investigate(Conversation& talk, Conversation* reference, std::string target);

std::string verdict(const Finding& finding);  ///< "healthy-as-far-as-asked", "broken", "not-judged"
nlohmann::ordered_json finding_json(const Finding& finding);
/// Answer first, as plain lines.
std::string finding_text(const Finding& finding);
std::string finding_markdown(const Finding& finding);

}  // namespace nanscope::server_probe
