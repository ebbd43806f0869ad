#include "gui/prepare/requests_told.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

namespace nanscope::gui {
namespace {

constexpr std::array<std::string_view, 4> kNumbered = {"request", "step", "rank", "pass"};

bool is_number(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// "warm up" of "warm up step 0": numbers are told beside it.
std::string without_numbers(const std::string& name) {
  if (name == kDumpDevice) return {};  // of a run that has no name
  std::istringstream stream(name);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    const bool told = is_number(word) && !words.empty() &&
                      std::find(kNumbered.begin(), kNumbered.end(), words.back()) != kNumbered.end();
    if (told) {
      words.pop_back();
    } else {
      words.push_back(word);
    }
  }
  std::string left;
  for (const std::string& word : words) left += (left.empty() ? "" : " ") + word;
  return left;
}

/// The token id that a tensor of ids has at a position of a span's sequence.
std::optional<std::int32_t> id_at(RunView& run, const Tensor& ids, const Span& span, std::int64_t position) {
  if (!ids.known || ids.channels != 1) return std::nullopt;
  const std::optional<std::int64_t> row = run.row_at(ids, span, position);
  if (!row || *row < 0 || *row >= ids.tokens) return std::nullopt;
  const auto values = run.row_values(ids, *row);
  if (!values || values->empty()) return std::nullopt;
  return static_cast<std::int32_t>(values->front());
}

void read_asked(RunView& run, const Tensor& ids, const Span& span, RequestRow& row) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < span.rows; ++i) {
    const auto id = id_at(run, ids, span, span.first_token + i);
    if (!id) return;
    tokens.push_back(*id);
  }
  row.prompt_tokens = std::move(tokens);
}

void read_answered(RunView& run, const Tensor& chosen, const Span& span, RequestRow& row) {
  if (const auto id = id_at(run, chosen, span, span.first_token + span.rows - 1)) row.output_tokens.push_back(*id);
}

}  // namespace

std::vector<RequestRow> requests_of(RunView& run) {
  const std::span<const RequestRow> stated = run.requests();
  std::vector<RequestRow> rows(stated.begin(), stated.end());
  if (run.info().device != kDumpDevice) return rows;
  std::map<std::int64_t, RequestRow*> by_id;
  for (RequestRow& row : rows) {
    row.name = without_numbers(row.name);
    by_id.emplace(row.id, &row);
  }
  for (const Step& step : run.steps()) {
    if (step.rank != 0) continue;
    for (const Op& op : run.content(step.id).ops) {
      const Tensor* asked = op.kind == OpKind::embedding ? run.input(op, "tokens") : nullptr;
      const Tensor* answered = op.kind == OpKind::argmax ? run.result(op) : nullptr;
      for (const Span& span : step.spans) {
        const auto row = by_id.find(span.request);
        if (row == by_id.end()) continue;
        if (asked != nullptr && row->second->prompt_tokens.empty()) read_asked(run, *asked, span, *row->second);
        if (answered != nullptr) read_answered(run, *answered, span, *row->second);
      }
    }
  }
  return rows;
}

std::string request_name(RunView& run, std::int64_t id) {
  const RequestRow* row = run.request(id);
  if (row == nullptr) return {};
  return run.info().device == kDumpDevice ? without_numbers(row->name) : row->name;
}

std::string request_title(const RequestRow& request) {
  if (request.name.empty()) return fmt::format("request {}", request.id);
  return request.id < 0 ? request.name : fmt::format("{}  {}", request.id, request.name);
}

}  // namespace nanscope::gui
