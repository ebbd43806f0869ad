#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/run/run_view.h"
#include "gui/facts.h"
#include "gui/prepare/kv_map.h"
#include "gui/prepare/prepared.h"
#include "instrument/image/image.h"

namespace nanscope::gui {

/// Text, or a picture.
struct PromptPiece {
  std::string text;                      ///< of a picture: its name
  std::shared_ptr<const Image> picture;  ///< null for text, and for a picture that cannot be decoded
  bool image = false;
};

struct OutputToken {
  std::int32_t id = 0;
  std::string text;       ///< bytes, not to be trusted
  bool artefact = false;  ///< token 0 of a request whose logits are NaN
};

struct RequestSheetRow {
  std::int64_t id = 0;
  std::string name;  ///< with its number
  std::vector<PromptPiece> prompt;
  std::size_t text_tokens = 0;
  std::size_t image_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::vector<OutputToken> output;
  std::string output_text;
  bool nan_logits = false;
  bool dumped = false;  ///< what is not here may have been asked and answered all the same
};

/// Who asked what and what came back; does not change while a recording is looked at.
using RequestRows = std::vector<RequestSheetRow>;
/// Errors: rows cannot be read.
Result<RequestRows> make_request_rows(RunView& run);

/// The requests, and the KV cache during one step.
struct RequestsSheet final : Prepared {
  std::shared_ptr<const RequestRows> requests;
  KvMap kv;
};

/// `rows`: what an earlier sheet of this recording holds; else they are read. Without a step, the
/// last one of the request, or of the run.
Result<PreparedPtr> prepare_requests(RunFacts& facts, const Place& place, std::shared_ptr<const RequestRows> rows);

}  // namespace nanscope::gui
