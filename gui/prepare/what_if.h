#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/recording/reader.h"
#include "core/result.h"
#include "gui/prepare/prepared.h"
#include "scenarios/counterfactuals.h"

namespace nanscope::gui {

/// A knob and what will be tried instead of its value.
struct WhatIfKnob {
  std::string name;
  std::string doc;
  std::string value;  ///< as recorded
  std::vector<std::string> tried;
};

/// What "what if" is going to try, before anything is run.
struct WhatIfPlan final : Prepared {
  std::filesystem::path recording;
  std::vector<WhatIfKnob> knobs;
  std::size_t changes = 0;
  std::string notice;  ///< why there is nothing to try; else empty
};

/// `recording` is null for a dump.
WhatIfPlan plan_what_if(const Recording* recording);

/// What became of one request.
struct WhatIfAnswer {
  bool faulty = false;  ///< it answers from NaN logits
  std::string text;     ///< bytes, not to be trusted
};

/// One run, as a line of the table.
struct WhatIfRow {
  std::vector<std::string> settings;  ///< "kv.format=bf16"; empty for the run as recorded
  std::vector<bool> links;            ///< of each of WhatIfTable::chain, whether this run has it
  int breaks_at = 0;  ///< number of the first link that the recorded run has and this one lacks, 0: none
  std::vector<WhatIfAnswer> answers;
  std::size_t faulty = 0;  ///< how many of the answers are
  double kv_bytes = 0;     ///< a token
  double kv_ratio = 0;     ///< to the recorded run's, 0 where there is none
  std::string top1;        ///< "100 %", empty when nothing could be compared
  std::string error;       ///< largest one in logits, likewise
  std::string faults;      ///< classes, separated by commas
};

/// Changes that do the same to the fault.
struct WhatIfGroup {
  scenarios::Effect effect = scenarios::Effect::no_effect;
  std::string title;
  std::string meaning;  ///< in words
  std::vector<WhatIfRow> rows;
};

struct WhatIfTable {
  std::vector<std::string> chain;  ///< kinds of the recorded run's events, in words
  WhatIfRow recorded;
  std::vector<WhatIfGroup> groups;  ///< strongest effect first, those without any effect left out
  std::vector<std::string> without_effect;
  std::vector<std::string> not_run;  ///< with the reason
  std::int64_t runs = 0;
  std::string conclusion;  ///< one sentence
};

WhatIfTable tabulate(const scenarios::Counterfactuals& counterfactuals);

}  // namespace nanscope::gui
