#include "gui/prepare/requests_sheet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gui/prepare/requests_told.h"
#include "gui/prepare/subject.h"
#include "instrument/engine/request.h"
#include "scenarios/analysis.h"

namespace nanscope::gui {
namespace {

std::vector<PromptPiece> pieces_of(const RequestRow& row) {
  std::vector<PromptPiece> pieces;
  const Result<std::vector<PromptPart>> parts = prompt_from_json(row.prompt);
  if (parts && parts->empty() && !row.prompt_tokens.empty()) {
    pieces.push_back({fmt::format("{}", fmt::join(row.prompt_tokens, " ")), nullptr, false});
    return pieces;
  }
  if (!parts) {
    pieces.push_back({"the prompt cannot be read: " + parts.error().message, nullptr, false});
    return pieces;
  }
  for (const PromptPart& part : *parts) {
    if (const auto* text = std::get_if<TextPart>(&part)) {
      pieces.push_back({text->text, nullptr, false});
      continue;
    }
    if (const auto* tokens = std::get_if<TokensPart>(&part)) {
      pieces.push_back({fmt::format("{}", fmt::join(tokens->ids, " ")), nullptr, false});
      continue;
    }
    const auto& image = std::get<ImagePart>(part);
    PromptPiece piece{image.name, nullptr, true};
    Result<Image> decoded = decode_png(image.png, image.name);
    if (decoded) piece.picture = std::make_shared<const Image>(std::move(*decoded));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<OutputToken> output_of(RunView& run, const RequestRow& row, bool nan_logits) {
  std::vector<OutputToken> output;
  for (const std::int32_t id : row.output_tokens) output.push_back({id, {}, nan_logits && id == 0});
  std::size_t next = 0;
  for (const TokenRow& token : run.tokens(row.id)) {
    if (token.source == TokenSource::generated && next < output.size()) output[next++].text = token.text;
  }
  return output;
}

/// The selected step, else the last one of the selected request, else of the run.
const Step* step_of(RunView& run, const Place& place) {
  if (const SpanOfStep at = find_span(run, place); at.step != nullptr) return at.step;
  const Step* last = nullptr;
  for (const Step& step : run.steps()) {
    const bool asked = std::any_of(step.spans.begin(), step.spans.end(),
                                   [&](const Span& span) { return span.request == place.request; });
    if (!place.request || asked) last = &step;
  }
  return last;
}

/// Of a dump, which tells no prompts.
std::size_t tokens_in_steps(RunView& run, std::int64_t request) {
  std::int64_t tokens = 0;
  for (const Step& step : run.steps()) {
    for (const Span& span : step.spans) {
      if (span.request == request && step.rank == 0) tokens += span.rows;
    }
  }
  return static_cast<std::size_t>(std::max<std::int64_t>(0, tokens));
}

}  // namespace

Result<RequestRows> make_request_rows(RunView& run) {
  const auto outcomes = scenarios::request_outcomes(run);
  if (!outcomes) return tl::unexpected(outcomes.error());
  const std::vector<RequestRow> told = requests_of(run);
  RequestRows rows;
  for (std::size_t i = 0; i < outcomes->size(); ++i) {
    const scenarios::RequestOutcome& outcome = (*outcomes)[i];
    const RequestRow& request = told[i];
    RequestSheetRow row;
    row.id = request.id;
    row.name = request_title(request);
    row.prompt = pieces_of(request);
    row.image_tokens = static_cast<std::size_t>(outcome.image_tokens);
    row.text_tokens = request.prompt_tokens.size() - row.image_tokens;
    if (request.prompt_tokens.empty()) row.text_tokens = tokens_in_steps(run, row.id);
    row.cached_tokens = request.cached_tokens;
    row.output = output_of(run, request, outcome.nan_logits);
    row.output_text = request.output_text;
    row.nan_logits = outcome.nan_logits;
    row.dumped = run.info().device == kDumpDevice;
    rows.push_back(std::move(row));
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return rows;
}

Result<PreparedPtr> prepare_requests(RunFacts& facts, const Place& place, std::shared_ptr<const RequestRows> rows) {
  RunView& run = facts.view();
  if (!rows) {
    Result<RequestRows> made = make_request_rows(run);
    if (!made) return tl::unexpected(made.error());
    rows = std::make_shared<const RequestRows>(std::move(*made));
  }
  auto sheet = std::make_shared<RequestsSheet>();
  sheet->requests = std::move(rows);
  if (const Step* step = step_of(run, place)) {
    Facts known(run);
    std::shared_ptr<const RunMap> map;
    if (facts.recording() == nullptr) {
      for (map = nullptr; !map || !map->exact;) {
        Result<std::shared_ptr<const RunMap>> more = facts.map();
        if (!more) return tl::unexpected(more.error());
        map = std::move(*more);
      }
    }
    Result<KvMap> kv = make_kv_map(known, *step, facts.stop(), map ? &map->clipped_rows : nullptr);
    if (!kv) return tl::unexpected(kv.error());
    sheet->kv = std::move(*kv);
  }
  return sheet;
}

}  // namespace nanscope::gui
