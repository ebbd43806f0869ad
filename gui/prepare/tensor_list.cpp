#include "gui/prepare/tensor_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/numbers/format.h"
#include "gui/prepare/ledger.h"
#include "gui/prepare/subject.h"

namespace nanscope::gui {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

struct NumberField {
  std::string_view name;
  double (*of)(const TensorIndex& index, std::size_t tensor);  ///< NaN where there is none: that never compares
};

double number(std::uint64_t value) { return static_cast<double>(value); }
double number(std::int64_t value) { return static_cast<double>(value); }

constexpr NumberField kNumberFields[] = {
    {"headroom",
     [](const TensorIndex& index, std::size_t i) { return index.headroom[i] > 0 ? index.headroom[i] : kNoValue; }},
    {"absmax", [](const TensorIndex& index, std::size_t i) { return static_cast<double>(index.absmax[i]); }},
    {"layer", [](const TensorIndex& index,
                 std::size_t i) { return index.op(i).layer < 0 ? kNoValue : number(index.op(i).layer); }},
    {"nan", [](const TensorIndex& index, std::size_t i) { return number(index.counts_of(i).nan); }},
    {"inf", [](const TensorIndex& index, std::size_t i) { return number(index.counts_of(i).inf); }},
    {"clipped", [](const TensorIndex& index, std::size_t i) { return number(index.counts_of(i).clipped); }},
    {"largest", [](const TensorIndex& index, std::size_t i) { return number(index.counts_of(i).largest); }},
    {"tokens", [](const TensorIndex& index, std::size_t i) { return number(index.extent(i).tokens); }},
    {"channels", [](const TensorIndex& index, std::size_t i) { return number(index.extent(i).channels); }},
    {"request",
     [](const TensorIndex& index, std::size_t i) {
       const auto& request = index.steps[index.step[i]].request;
       return request ? number(*request) : kNoValue;
     }},
    {"step",
     [](const TensorIndex& index, std::size_t i) {
       const IndexStep& step = index.steps[index.step[i]];
       return step.request ? number(step.index) : kNoValue;
     }},
    {"rank", [](const TensorIndex& index, std::size_t i) { return number(index.steps[index.step[i]].rank); }},
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// A word of a query; between quotation marks it asks for nothing but itself.
struct QueryWord {
  std::string text;
  bool quoted = false;
  std::size_t begin = 0;  ///< in the text
  std::size_t end = 0;
};

std::vector<QueryWord> words_of(std::string_view text) {
  std::vector<QueryWord> words;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ' ') {
      ++at;
      continue;
    }
    const bool quoted = text[at] == '"';
    const std::size_t end = std::min(text.find(quoted ? '"' : ' ', at + 1), text.size());
    const std::size_t first = at + (quoted ? 1 : 0);
    const std::size_t after = quoted && end < text.size() ? end + 1 : end;
    if (end > first) words.push_back({lower(text.substr(first, end - first)), quoted, at, after});
    at = after;
  }
  return words;
}

std::optional<TensorKind> kind_of(const QueryWord& word) {
  const auto at = std::find(kTensorKinds.begin(), kTensorKinds.end(), word.text);
  if (word.quoted || at == kTensorKinds.end()) return std::nullopt;
  return static_cast<TensorKind>(at - kTensorKinds.begin());
}

std::vector<std::string> field_names() {
  std::vector<std::string> names{"role", "dtype"};
  for (const NumberField& field : kNumberFields) names.emplace_back(field.name);
  return names;
}

Result<double> number_of(std::string_view field, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty()) return fail(fmt::format("{} is compared with a number, such as {}<4", field, field));
  if (error != std::errc{} || end != text.data() + text.size()) {
    return fail(fmt::format("{} is compared with a number, and '{}' is none", field, text));
  }
  return value;
}

/// "layer:3", "headroom<4", "role:out".
Status add_field(TensorQuery& query, const std::string& word, std::size_t at) {
  const std::string name = word.substr(0, at);
  const bool wide = word[at] != ':' && word[at] != '=' && at + 1 < word.size() && word[at + 1] == '=';
  const std::string value = word.substr(at + (wide ? 2 : 1));
  if (name == "role" || name == "dtype") {
    if (word[at] != ':' && word[at] != '=') return fail(fmt::format("{} is a word: {}:{}", name, name, value));
    if (value.empty()) return fail(fmt::format("{} which? such as {}:{}", name, name, name == "role" ? "out" : "bf16"));
    if (name == "role") {
      query.roles.push_back(value);
      return {};
    }
    const std::optional<Format> format = format_from_name(value);
    if (!format) return fail(fmt::format("there is no dtype '{}'", value));
    query.formats.push_back(*format);
    return {};
  }
  const auto* field = std::find_if(std::begin(kNumberFields), std::end(kNumberFields),
                                   [&](const NumberField& one) { return one.name == name; });
  if (field == std::end(kNumberFields)) {
    return fail(fmt::format("there is no field '{}'; there are {}", name, fmt::join(field_names(), ", ")));
  }
  const Result<double> number = number_of(name, value);
  if (!number) return tl::unexpected(number.error());
  using Compare = TensorQuery::Compare;
  const Compare compare = word[at] == '<'   ? (wide ? Compare::at_most : Compare::less)
                          : word[at] == '>' ? (wide ? Compare::at_least : Compare::more)
                                            : Compare::equal;
  query.numbers.push_back({field->name, compare, *number});
  return {};
}

bool holds(TensorQuery::Compare compare, double a, double b) {
  using Compare = TensorQuery::Compare;
  switch (compare) {
    case Compare::less:
      return a < b;
    case Compare::at_most:
      return a <= b;
    case Compare::equal:
      return a == b;
    case Compare::at_least:
      return a >= b;
    case Compare::more:
      return a > b;
  }
  return false;
}

/// A query against one index: what can be looked up once is.
class Sieve {
 public:
  Sieve(const TensorIndex& index, const TensorQuery& query) : index_(index), query_(query) {
    for (const std::string& role : index.roles) {
      const std::string low = lower(role);
      roles_.push_back(query.roles.empty() ||
                       std::find(query.roles.begin(), query.roles.end(), low) != query.roles.end());
    }
    for (const TensorQuery::Number& number : query.numbers) {
      fields_.push_back(*std::find_if(std::begin(kNumberFields), std::end(kNumberFields),
                                      [&](const NumberField& field) { return field.name == number.field; }));
    }
  }

  bool passes(std::size_t tensor) {
    if (!roles_[index_.role[tensor]] || !of_kinds(tensor)) return false;
    const bool any_format = query_.formats.empty() || std::find(query_.formats.begin(), query_.formats.end(),
                                                                index_.format[tensor]) != query_.formats.end();
    if (!any_format) return false;
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (!holds(query_.numbers[i].compare, fields_[i].of(index_, tensor), query_.numbers[i].value)) return false;
    }
    return query_.words.empty() || says_words(tensor);
  }

 private:
  bool of_kinds(std::size_t tensor) const {
    if (!query_.asks_kinds()) return true;
    for (std::size_t i = 0; i < kTensorKinds.size(); ++i) {
      if (query_.kinds[i] && is_of_kind(index_, tensor, static_cast<TensorKind>(i))) return true;
    }
    return false;
  }

  bool says_words(std::size_t tensor) const {
    const std::string place = lower(to_string(index_.place(tensor)));
    const std::string name = lower(index_.name(tensor));
    return std::all_of(query_.words.begin(), query_.words.end(), [&](const std::string& word) {
      return place.find(word) != std::string::npos || name.find(word) != std::string::npos;
    });
  }

  const TensorIndex& index_;
  const TensorQuery& query_;
  std::vector<bool> roles_;
  std::vector<NumberField> fields_;
};

/// What the tensors are sorted by, ascending; equal ones stay in the order of the run.
double sort_key(const TensorIndex& index, std::size_t i, TensorColumn column) {
  const TensorCounts& counts = index.counts_of(i);
  switch (column) {
    case TensorColumn::health:  // shades of what is healthy are alike: then the order of the run tells more
      return -static_cast<double>(index.cell[i] >= kLowHeadroom ? index.cell[i] : kAbsent);
    case TensorColumn::place:
      return static_cast<double>(i);
    case TensorColumn::layer:
      return number(std::int64_t{index.row[i]});
    case TensorColumn::role:
    case TensorColumn::format:
      return 0;  // by name, see names_of()
    case TensorColumn::shape:
      return -number(index.extent(i).tokens) * number(index.extent(i).channels);
    case TensorColumn::nan:
      return -number(counts.nan);
    case TensorColumn::inf:
      return -number(counts.inf);
    case TensorColumn::clipped:
      return -number(counts.clipped + counts.clipped_rows);
    case TensorColumn::largest:
      return -number(counts.largest);
    case TensorColumn::absmax:
      return -static_cast<double>(index.absmax[i]);
    case TensorColumn::headroom:
      return index.headroom[i] > 0 ? index.headroom[i] : std::numeric_limits<double>::infinity();
  }
  return 0;
}

/// Where each name stands in the alphabet.
template <class Names>
std::vector<double> ranks_of(const Names& names) {
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return names[a] < names[b]; });
  std::vector<double> ranks(names.size());
  for (std::size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<double>(i);
  return ranks;
}

void sort(TensorList& list) {
  const TensorIndex& index = *list.index;
  std::vector<std::string_view> formats;
  for (const FormatInfo& format : nanscope::formats()) formats.push_back(format.name);
  const std::vector<double> of_role = ranks_of(index.roles);
  const std::vector<double> of_format = ranks_of(formats);
  struct Keyed {
    double key;
    std::uint32_t tensor;
  };
  std::vector<Keyed> keyed;
  keyed.reserve(list.shown.size());
  const TensorColumn by = list.order.by;
  for (const std::uint32_t i : list.shown) {
    const double key = by == TensorColumn::role     ? of_role[index.role[i]]
                       : by == TensorColumn::format ? of_format[static_cast<std::size_t>(index.format[i])]
                                                    : sort_key(index, i, by);
    keyed.push_back({list.order.reversed ? -key : key, i});
  }
  std::sort(keyed.begin(), keyed.end(),
            [](const Keyed& a, const Keyed& b) { return a.key != b.key ? a.key < b.key : a.tensor < b.tensor; });
  for (std::size_t i = 0; i < keyed.size(); ++i) list.shown[i] = keyed[i].tensor;
}

/// Exact as long as a column has room for it.
std::string counted_or_none(std::uint64_t count) {
  if (count == 0) return {};
  if (count < 10'000'000) return std::to_string(count);
  const double millions = static_cast<double>(count) / 1e6;
  return millions < 1e4 ? fmt::format("{:.4g}M", millions) : fmt::format("{:.4g}G", millions / 1e3);
}

}  // namespace

bool TensorQuery::asks_kinds() const {
  return std::any_of(kinds.begin(), kinds.end(), [](bool kind) { return kind; });
}

Result<TensorQuery> parse_tensor_query(std::string_view text) {
  TensorQuery query;
  for (const QueryWord& word : words_of(text)) {
    const std::size_t at = word.quoted ? std::string::npos : word.text.find_first_of(":<>=");
    if (const std::optional<TensorKind> kind = kind_of(word)) {
      query.kinds[static_cast<std::size_t>(*kind)] = true;
    } else if (at != std::string::npos && at > 0) {
      if (Status added = add_field(query, word.text, at); !added) return tl::unexpected(added.error());
    } else {
      query.words.push_back(word.text);
    }
  }
  return query;
}

std::string toggled(std::string_view text, TensorKind kind) {
  std::string out(text);
  bool found = false;
  const std::vector<QueryWord> words = words_of(text);
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    if (kind_of(*word) != kind) continue;
    found = true;
    out.erase(word->begin, word->end - word->begin);
  }
  if (!found)
    return (out.empty() || out.back() == ' ' ? out : out + ' ') +
           std::string(kTensorKinds[static_cast<std::size_t>(kind)]);
  while (!out.empty() && out.back() == ' ') out.pop_back();
  while (!out.empty() && out.front() == ' ') out.erase(0, 1);
  return out;
}

bool is_of_kind(const TensorIndex& index, std::size_t tensor, TensorKind kind) {
  const TensorCounts& counts = index.counts_of(tensor);
  switch (kind) {
    case TensorKind::nan:
      return counts.nan > 0;
    case TensorKind::inf:
      return counts.inf > 0;
    case TensorKind::clipped:
      return counts.clipped + counts.clipped_rows > 0;
    case TensorKind::low:
      return index.headroom[tensor] > 0 && index.headroom[tensor] < kLowHeadroomBelow;
  }
  return false;
}

std::string_view column_title(TensorColumn column) {
  switch (column) {
    case TensorColumn::health:
      return "worst first";
    case TensorColumn::place:
      return "tensor";
    case TensorColumn::layer:
      return "layer";
    case TensorColumn::role:
      return "role";
    case TensorColumn::format:
      return "dtype";
    case TensorColumn::shape:
      return "shape";
    case TensorColumn::nan:
      return "NaN";
    case TensorColumn::inf:
      return "Inf";
    case TensorColumn::clipped:
      return "clipped";
    case TensorColumn::largest:
      return "at largest";
    case TensorColumn::absmax:
      return "|max|";
    case TensorColumn::headroom:
      return "headroom";
  }
  return "";
}

std::string TensorList::text(std::size_t tensor, TensorColumn column) const {
  const TensorCounts& counts = index->counts_of(tensor);
  switch (column) {
    case TensorColumn::health:
      return std::string(cell_name(index->cell[tensor]));
    case TensorColumn::place:
      return index->name(tensor).empty() ? to_string(index->place(tensor)) : index->name(tensor);
    case TensorColumn::layer:
      return index->op(tensor).layer < 0 ? "\u2013" : fmt::format("{}", index->op(tensor).layer);
    case TensorColumn::role:
      return index->role_of(tensor);
    case TensorColumn::format:
      return std::string(name(index->format[tensor]));
    case TensorColumn::shape:
      return fmt::format("{} \u00D7 {}", index->extent(tensor).tokens, index->extent(tensor).channels);
    case TensorColumn::nan:
      return counted_or_none(counts.nan);
    case TensorColumn::inf:
      return counted_or_none(counts.inf);
    case TensorColumn::clipped:
      return counts.clipped == 0 && counts.clipped_rows > 0 ? fmt::format("{} rows", counts.clipped_rows)
                                                            : counted_or_none(counts.clipped);
    case TensorColumn::largest:
      return counted_or_none(counts.largest);
    case TensorColumn::absmax:
      return short_number(static_cast<double>(index->absmax[tensor]));
    case TensorColumn::headroom:
      return index->headroom[tensor] > 0 ? headroom_text(index->headroom[tensor]) : "\u2013";
  }
  return {};
}

TensorList make_tensor_list(std::shared_ptr<const TensorIndex> index, const TensorQuery& query, TensorOrder order) {
  TensorList list;
  list.index = std::move(index);
  list.order = order;
  Sieve sieve(*list.index, query);
  for (std::size_t i = 0; i < list.index->size(); ++i) {
    for (std::size_t kind = 0; kind < kTensorKinds.size(); ++kind) {
      if (is_of_kind(*list.index, i, static_cast<TensorKind>(kind))) ++list.of_kind[kind];
    }
    if (sieve.passes(i)) list.shown.push_back(static_cast<std::uint32_t>(i));
  }
  sort(list);
  return list;
}

std::optional<ListedTensor> find_in(const TensorList& list, RunView& run, const Place& place) {
  const Result<Subject> subject = find_subject(run, place);
  if (!subject) return std::nullopt;
  const std::optional<std::size_t> tensor = list.index->find(subject->tensor.id);
  if (!tensor) return std::nullopt;
  ListedTensor found{*tensor, {}};
  const auto at = std::find(list.shown.begin(), list.shown.end(), static_cast<std::uint32_t>(*tensor));
  if (at != list.shown.end()) found.at = static_cast<std::size_t>(at - list.shown.begin());
  return found;
}

}  // namespace nanscope::gui
