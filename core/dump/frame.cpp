#include "core/dump/frame.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "core/run/mask.h"

namespace nanscope {
namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kMostMetadata = std::int64_t{1} << 20;

/// A row a token, whatever the module's heads: outputs and inputs of what computes row by row over channels.
bool shows_rows(const DumpTensor& tensor) {
  const TensorName& at = tensor.at;
  if (at.port == Port::state || at.form != Form::value || tensor.shape.size() < 2 || tensor.shape.size() > 3)
    return false;
  if (at.op == "lm_head" || at.role == "logits" || at.role == "rope") return false;
  switch (at.kind) {
    case OpKind::layer_norm:
      return at.op != "q_norm" && at.op != "k_norm";
    case OpKind::gemm:
    case OpKind::embedding:
    case OpKind::activation:
    case OpKind::residual_add:
    case OpKind::block:
      return true;
    default:
      return false;
  }
}

class Framer {
 public:
  Framer(std::span<const DumpTensor* const> pass, const ReadIntegers& read, const ReadValues& values)
      : read_(read), values_(values) {
    std::copy_if(pass.begin(), pass.end(), std::back_inserter(pass_), plausible);
  }

  Frame frame() {
    find_extent();
    if (frame_.rows == 0) return frame_;
    drop_implausible();
    if (by_query_starts() || by_mask() || by_lengths() || by_positions() || by_past()) {
      frame_.placed = true;
    } else {
      by_default([](std::int64_t) { return std::int64_t{0}; });
    }
    drop_unstored_rows();
    place_by_keys();
    place_by_cache();
    return frame_;
  }

 private:
  /// Statistics state any shape, and no bytes bear it out.
  static bool plausible(const DumpTensor* tensor) { return !tensor->stated || tensor->rows() <= kMostMetadata; }

  const DumpTensor* find(std::string_view role) const {
    const auto found = std::find_if(pass_.begin(), pass_.end(), [&](const DumpTensor* tensor) {
      return tensor->at.role == role && tensor->at.form == Form::value && tensor->at.port != Port::input &&
             tensor->at.tower.empty();
    });
    return found == pass_.end() ? nullptr : *found;
  }

  /// Before anything is summed or made of them: a wrong length is a loop of hours, or a sum that wraps.
  void drop_implausible() {
    for (const std::string_view role : {"positions", "seq_lens", "query_lens", "query_start_loc", "past_length"}) {
      const auto values = integers(role);
      const auto plausible = [](std::int64_t x) { return x >= -kMostContext && x <= kMostContext; };
      if (!values || std::all_of(values->begin(), values->end(), plausible)) continue;
      dropped_.insert(role);
      frame_.notes.push_back({find(role)->name, "holds what no sequence is long; it places no rows"});
    }
  }

  std::optional<Integers> integers(std::string_view role) const {
    if (dropped_.contains(role)) return std::nullopt;
    const DumpTensor* tensor = find(role);
    if (tensor == nullptr || tensor->count() == 0 || tensor->count() > kMostMetadata || tensor->stated)
      return std::nullopt;
    return read_(*tensor);
  }

  std::int64_t frame_length() const { return frame_.rows / frame_.batch; }

  /// The extent that most activations of the language model have.
  void find_extent() {
    std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> votes;  // batch, rows
    for (const DumpTensor* tensor : pass_) {
      if (!shows_rows(*tensor) || tensor->count() == 0) continue;
      const auto& shape = tensor->shape;
      const std::int64_t batch = shape.size() == 3 ? shape[0] : 1;
      votes[{batch, batch * shape[shape.size() - 2]}] += !tensor->at.tower.empty() ? 1 : tensor->at.layer ? 1000 : 10;
    }
    if (votes.empty()) {
      // No byte bears out an extent beside a 0.
      const DumpTensor* logits = find("logits");
      const DumpTensor* tokens = find("tokens");
      if (logits != nullptr && logits->shape.size() >= 2 && logits->count() > 0) {
        const std::int64_t batch = logits->shape.size() == 3 ? logits->shape[0] : 1;
        votes[{batch, logits->rows()}] = 1;
      } else if (tokens != nullptr && tokens->count() > 0) {
        votes[{tokens->shape.size() == 2 ? tokens->shape[0] : 1, tokens->count()}] = 1;
      } else {
        from_attention(votes);
      }
    }
    if (votes.empty()) from_calls(votes);
    if (votes.empty()) return;
    const auto most =
        std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    frame_.batch = most->first.first;
    frame_.rows = most->first.second;
    // Flattened rows of a batch whose ids were dumped as one.
    const DumpTensor* tokens = find("tokens");
    const bool batched = tokens != nullptr && tokens->shape.size() == 2 && tokens->shape[0] > 1;
    if (frame_.batch == 1 && batched && tokens->count() == frame_.rows) frame_.batch = tokens->shape[0];
    if (frame_.batch == 1) batch_by_scores();
  }

  /// Of a log of calls, whose names say what ran and not where: what most of them gave, as (batch, rows, channels).
  void from_calls(std::map<std::pair<std::int64_t, std::int64_t>, std::size_t>& votes) const {
    for (const DumpTensor* tensor : pass_) {
      const auto& shape = tensor->shape;
      const bool gave = tensor->at.known && tensor->at.port == Port::output && tensor->at.role == "out";
      if (!gave || shape.size() != 3 || tensor->count() == 0 || !plausible(tensor)) continue;
      if (tensor->dtype->kind == DtypeKind::real) ++votes[{shape[0], shape[0] * shape[1]}];
    }
  }

  /// Rows that lie flat and attend in sequences of one length: (batch, heads, queries, keys).
  void batch_by_scores() {
    for (const DumpTensor* tensor : pass_) {
      const auto& shape = tensor->shape;
      const bool over_keys = tensor->at.role == "scores" || tensor->at.role == "probs";
      if (!over_keys || shape.size() != 4 || !tensor->at.tower.empty() || tensor->at.sequence) continue;
      if (shape[0] > 1 && shape[0] * shape[2] == frame_.rows) frame_.batch = shape[0];
      return;
    }
  }

  void from_attention(std::map<std::pair<std::int64_t, std::int64_t>, std::size_t>& votes) const {
    for (const DumpTensor* tensor : pass_) {
      const std::string& role = tensor->at.role;
      const auto& shape = tensor->shape;
      if (tensor->at.form != Form::value || tensor->count() == 0) continue;
      if ((role == "scores" || role == "probs") && shape.size() >= 2) {
        const std::int64_t batch = shape.size() == 4 ? shape[0] : 1;
        ++votes[{batch, batch * shape[shape.size() - 2]}];
      } else if ((role == "q" || role == "k" || role == "v" || role == "attn_out") && !shape.empty()) {
        ++votes[{1, shape.size() == 1 ? 1 : shape[0]}];
      }
    }
  }

  void add(std::int64_t row, std::int64_t rows, std::int64_t first_token, std::int64_t context) {
    if (rows > 0) frame_.spans.push_back({0, 0, row, rows, first_token, context});
  }

  /// cu_seqlens, query_start_loc: sequences one after another.
  bool by_query_starts() {
    std::optional<Integers> starts = integers("query_start_loc");
    if (!starts) {
      const auto lens = integers("query_lens");
      if (!lens) return false;
      starts.emplace(1, 0);
      for (const std::int64_t length : *lens) starts->push_back(starts->back() + length);
    }
    const bool ascending = std::is_sorted(starts->begin(), starts->end());
    if (starts->size() < 2 || starts->front() != 0 || !ascending || starts->back() > frame_.rows) return false;
    const auto lengths = integers("seq_lens");
    const auto positions = integers("positions");
    for (std::size_t s = 0; s + 1 < starts->size(); ++s) {
      const std::int64_t row = (*starts)[s];
      const std::int64_t rows = (*starts)[s + 1] - row;
      std::int64_t first = 0;
      if (lengths && s < lengths->size() && (*lengths)[s] >= rows) {
        first = (*lengths)[s] - rows;
      } else if (positions && static_cast<std::size_t>(row) < positions->size()) {
        first = (*positions)[static_cast<std::size_t>(row)];
      }
      add(row, rows, first, first + rows);
    }
    frame_.batch = 1;
    return true;
  }

  /// A mask over frame positions, or one of queries and keys, additive or of ones: what it hides is padding.
  bool by_mask() {
    const DumpTensor* mask = find("mask");
    if (mask == nullptr || mask->count() == 0 || mask->count() > kMostMetadata || mask->stated) return false;
    const std::int64_t width = mask->shape.empty() ? 0 : mask->shape.back();
    const std::int64_t length = frame_length();
    if (width < length) return false;
    const auto values = read_(*mask);
    if (!values) return false;
    const bool additive = std::any_of(values->begin(), values->end(), [](std::int64_t x) { return x < 0; });
    const bool ones = std::all_of(values->begin(), values->end(), [](std::int64_t x) { return x == 0 || x == 1; });
    if (!additive && (!ones || std::find(values->begin(), values->end(), 1) == values->end())) return false;
    const bool hide =
        !additive && mask->count() != width * frame_.batch && ones_hide(std::span(*values), width, length);
    const auto visible = [&](std::int64_t at) {
      const std::int64_t value = (*values)[static_cast<std::size_t>(at)];
      return additive ? !hidden_by_mask(static_cast<double>(value)) : (value == 1) != hide;
    };
    if (mask->count() == width * frame_.batch && (length > 1 || !additive)) {
      for (std::int64_t b = 0; b < frame_.batch; ++b) {
        add_real(
            b, [&](std::int64_t t) { return visible(b * width + width - length + t); },
            [&] {
              std::int64_t before = 0;
              for (std::int64_t c = 0; c < width - length; ++c) before += visible(b * width + c) ? 1 : 0;
              return before;
            }());
      }
    } else {
      const std::int64_t grid = width * length;
      if (mask->count() != grid && mask->count() != grid * frame_.batch) return false;
      for (std::int64_t b = 0; b < frame_.batch; ++b) {
        const std::int64_t begin = mask->count() == grid ? 0 : b * grid;
        by_grid(b, width, [&](std::int64_t q, std::int64_t k) { return visible(begin + q * width + k); });
      }
    }
    return !frame_.spans.empty() && by_positions_too(mask->count() > width * frame_.batch);
  }

  /// The key of the first row's own token: the rows are the last of the keys, or a mask over all slots of a cache ends
  /// before its width.
  template <class Visible>
  std::int64_t diagonal(std::int64_t width, const Visible& visible) const {
    const std::int64_t length = frame_length();
    std::map<std::int64_t, std::int64_t> votes;
    for (std::int64_t t = 0; t < length; ++t) {
      std::int64_t last = width - 1;
      while (last >= 0 && !visible(t, last)) --last;
      if (last >= t) ++votes[last - t];
    }
    for (const auto& [offset, count] : votes) {
      if (2 * count > length && offset + length <= width) return offset;
    }
    return width - length;
  }

  /// A token that another row sees, or that sees itself, is somebody's. A causal mask that lets padding see all keys
  /// (so that its softmax has something to go over) lets it see the next one too. A mask that hides every token from
  /// itself says nothing of padding.
  template <class Visible>
  void by_grid(std::int64_t b, std::int64_t width, const Visible& visible) {
    const std::int64_t length = frame_length();
    const std::int64_t past = diagonal(width, visible);
    std::int64_t own = 0;
    std::int64_t next = 0;
    for (std::int64_t t = 0; t < length; ++t) {
      own += visible(t, past + t) ? 1 : 0;
      next += t + 1 < length && visible(t, past + t) && visible(t, past + t + 1) ? 1 : 0;
    }
    const bool causal = 2 * next < own || length == 1;
    const auto unmasked = [&](std::int64_t t) {
      return causal && t + 1 < length && visible(t, past + t) && visible(t, past + t + 1);
    };
    const auto real = [&](std::int64_t t) {
      if (own == 0) return true;
      if (visible(t, past + t)) return !unmasked(t);
      for (std::int64_t other = 0; other < length; ++other) {
        if (other != t && !unmasked(other) && visible(other, past + t)) return true;
      }
      return false;
    };
    std::int64_t before = 0;
    std::int64_t first = 0;
    while (first < length && !real(first)) ++first;
    for (std::int64_t k = 0; first < length && k < past; ++k) before += visible(first, k) ? 1 : 0;
    add_real(b, real, before);
    split_packed([&](std::int64_t t, std::int64_t other) { return visible(t, past + other); });
  }

  /// Sequences that were packed into one: positions begin again at 0, and the mask hides all that stands before.
  template <class Sees>
  void split_packed(const Sees& sees) {
    const auto positions = integers("positions");
    const std::int64_t length = frame_length();
    const auto count = positions ? static_cast<std::int64_t>(positions->size()) : 0;
    if (frame_.spans.empty() || frame_.batch > 1 || count != length) return;
    const auto at = [&](std::int64_t t) { return (*positions)[static_cast<std::size_t>(t)]; };
    const auto apart = [&](std::int64_t t, std::int64_t from, std::int64_t end) {
      for (std::int64_t row = t; row < end; ++row) {
        for (std::int64_t other = from; other < t; ++other) {
          if (sees(row, other)) return false;
        }
      }
      return true;
    };
    for (std::int64_t t = 1; t < length; ++t) {
      Span& last = frame_.spans.back();
      const std::int64_t from = last.row;
      const std::int64_t end = from + last.rows;
      if (t <= from || t >= end || at(t) != 0 || at(t - 1) < 0 || !apart(t, from, end)) continue;
      last.rows = t - from;
      last.context = last.first_token + last.rows;
      add(t, end - t, 0, end - t);
    }
  }

  /// Spans of the real rows of a sequence of the batch.
  template <class Real>
  void add_real(std::int64_t b, const Real& real, std::int64_t position) {
    const std::int64_t length = frame_length();
    for (std::int64_t at = 0; at < length; ++at) {
      if (!real(at)) continue;
      std::int64_t end = at;
      while (end < length && real(end)) ++end;
      add(b * length + at, end - at, position, position + end - at);
      position += end - at;
      at = end;
    }
  }

  /// What a mask does not tell: of a sliding window it covers the last keys alone, and one of queries and keys may hide
  /// a token that the positions count.
  bool by_positions_too(bool grid) {
    const auto positions = integers("positions");
    if (!positions || static_cast<std::int64_t>(positions->size()) != frame_.rows) return true;
    for (Span& span : frame_.spans) {
      const auto at = [&](std::int64_t row) { return (*positions)[static_cast<std::size_t>(row)]; };
      const std::int64_t first = at(span.row);
      const std::int64_t begin = span.row / frame_length() * frame_length();
      if (first > span.first_token) {
        span.context += first - span.first_token;
        span.first_token = first;
      }
      while (grid && span.row > begin && at(span.row - 1) == span.first_token - 1) {
        --span.row;
        ++span.rows;
        --span.first_token;
      }
    }
    return true;
  }

  bool by_lengths() {
    const auto lengths = integers("seq_lens");
    if (!lengths || lengths->empty()) return false;
    const auto count = static_cast<std::int64_t>(lengths->size());
    const std::int64_t sum = std::accumulate(lengths->begin(), lengths->end(), std::int64_t{0});
    const bool positive = std::all_of(lengths->begin(), lengths->end(), [](std::int64_t one) { return one > 0; });
    if (!positive) return false;
    if (frame_.batch > 1 && count == frame_.batch && frame_length() > 1) {
      const bool prefill =
          std::all_of(lengths->begin(), lengths->end(), [&](std::int64_t one) { return one <= frame_length(); });
      for (std::int64_t b = 0; prefill && b < count; ++b) {
        const std::int64_t length = (*lengths)[static_cast<std::size_t>(b)];
        add(b * frame_length(), length, 0, length);
      }
      return prefill;
    }
    if (count > 1 && sum <= frame_.rows) {
      std::int64_t row = 0;
      for (const std::int64_t length : *lengths) {
        add(row, length, 0, length);
        row += length;
      }
      return true;
    }
    if (count > 1 && count <= frame_.rows && last_positions(*lengths)) {
      for (std::int64_t s = 0; s < count; ++s) {
        const std::int64_t length = (*lengths)[static_cast<std::size_t>(s)];
        add(s, 1, length - 1, length);
      }
      return true;
    }
    if (count != 1) return false;
    const std::int64_t rows = std::min(frame_.rows, sum);
    const auto positions = integers("positions");
    const std::int64_t first =
        positions && !positions->empty() && positions->front() + rows <= sum ? positions->front() : sum - rows;
    add(0, rows, first, first + rows);
    return true;
  }

  /// Whether rows stand at the ends of sequences of these lengths, as far as it is said where they stand.
  bool last_positions(const Integers& lengths) const {
    const auto positions = integers("positions");
    if (!positions || positions->size() < lengths.size()) return true;
    return std::equal(lengths.begin(), lengths.end(), positions->begin(),
                      [](std::int64_t length, std::int64_t position) { return position == length - 1; });
  }

  /// Runs of consecutive positions.
  bool by_positions() {
    const auto positions = integers("positions");
    const auto count = positions ? static_cast<std::int64_t>(positions->size()) : 0;
    if (count == 0 || count > frame_.rows) return false;
    const std::int64_t length = frame_length();
    // One row of positions serves all sequences of a batch.
    const std::int64_t copies = frame_.batch > 1 && count == length ? frame_.batch : 1;
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      std::int64_t begin = 0;
      for (std::int64_t at = 1; at <= count; ++at) {
        const auto here = static_cast<std::size_t>(at);
        const bool goes_on =
            at < count && (*positions)[here] == (*positions)[here - 1] + 1 && (frame_.batch == 1 || at % length != 0);
        if (goes_on) continue;
        const std::int64_t first = (*positions)[static_cast<std::size_t>(begin)];
        if (first < 0) return false;
        add(copy * length + begin, at - begin, first, first + at - begin);
        begin = at;
      }
    }
    if (frame_.batch > 1 && length > 1) drop_padding();
    return true;
  }

  /// Positions of padding do not go on: one row each beside the sequence of a frame.
  void drop_padding() {
    std::map<std::int64_t, std::int64_t> longest;
    for (const Span& span : frame_.spans) {
      std::int64_t& most = longest[span.row / frame_length()];
      most = std::max(most, span.rows);
    }
    std::erase_if(frame_.spans,
                  [&](const Span& span) { return span.rows == 1 && longest[span.row / frame_length()] > 1; });
  }

  /// How many tokens the cache held when the pass began: one number, or one a sequence of the batch.
  bool by_past() {
    const auto past = integers("past_length");
    if (!past || past->empty() || *std::min_element(past->begin(), past->end()) < 0) return false;
    if (past->size() != 1 && static_cast<std::int64_t>(past->size()) != frame_.batch) return false;
    by_default(
        [&](std::int64_t b) { return past->size() == 1 ? past->front() : (*past)[static_cast<std::size_t>(b)]; });
    return true;
  }

  /// All sequences as long as the frame, behind `before(b)` tokens.
  template <class Before>
  void by_default(const Before& before) {
    const auto tokens = integers("tokens");
    const std::int64_t ids = tokens ? static_cast<std::int64_t>(tokens->size()) : frame_.rows;
    const std::int64_t length = frame_length();
    for (std::int64_t b = 0; b < frame_.batch; ++b) {
      const std::int64_t rows = frame_.batch == 1 ? std::min(ids, frame_.rows) : length;
      add(b * length, rows, before(b), before(b) + rows);
    }
  }

  /// Rows whose slot is -1 are nobody's.
  void drop_unstored_rows() {
    const auto slots = integers("slot_mapping");
    if (!slots || static_cast<std::int64_t>(slots->size()) != frame_.rows) return;
    const bool some = std::any_of(slots->begin(), slots->end(), [](std::int64_t slot) { return slot >= 0; });
    if (!some) return;
    for (Span& span : frame_.spans) {
      std::int64_t kept = span.rows;
      while (kept > 0 && (*slots)[static_cast<std::size_t>(span.row + kept - 1)] < 0) --kept;
      span.context -= span.rows - kept;
      span.rows = kept;
    }
    std::erase_if(frame_.spans, [](const Span& span) { return span.rows == 0; });
  }

  /// Without positions, the keys that probabilities or scores go over tell how many came before.
  void place_by_keys() {
    if (frame_.placed || frame_.spans.size() != 1) return;
    const Span& span = frame_.spans.front();
    const DumpTensor* over_keys = nullptr;
    for (const DumpTensor* tensor : pass_) {
      const bool probs = tensor->at.role == "probs";
      if ((!probs && tensor->at.role != "scores") || tensor->shape.size() < 2 || !tensor->at.tower.empty()) continue;
      const std::int64_t keys = tensor->shape.back();
      if (keys < span.rows || tensor->shape[tensor->shape.size() - 2] != span.rows) continue;
      if (probs && place_by_last_key(*tensor)) return;
      // Of probabilities that are NaN nobody can tell which keys they saw.
      if (probs && values_ && tensor->health.nan > 0) return;
      if (over_keys == nullptr) over_keys = tensor;
    }
    if (over_keys == nullptr) return;
    const std::int64_t keys = over_keys->shape.back();
    if (keys > kMostContext) return;
    // A prefill that reads the tail of its last block has more keys than tokens, too.
    if (span.rows > 1 && keys - span.rows < 16) return;
    frame_.keys = keys;
    place_at(keys - span.rows);
  }

  void place_at(std::int64_t first_token) {
    Span& span = frame_.spans.front();
    span.first_token = first_token;
    span.context = first_token + span.rows;
    frame_.placed = true;
  }

  /// A cache that holds the context and no more ends with the values of the pass: the slots before them are what came
  /// before. Signs tell, whatever scale and format the cache has.
  void place_by_cache() {
    if (frame_.placed || frame_.spans.size() != 1 || frame_.spans.front().rows < 2 || !values_) return;
    if (find("slot_mapping") != nullptr || find("block_table") != nullptr) return;
    for (const DumpTensor* fresh : pass_) {
      if (fresh->at.role != "v" || !holds_values(*fresh)) continue;
      for (const DumpTensor* cache : pass_) {
        if (cache->at.role != "v_cache" || cache->at.layer != fresh->at.layer || !holds_values(*cache)) continue;
        const auto before = slots_before(*fresh, *cache);
        if (before) place_at(*before);
        return;
      }
    }
  }

  static bool holds_values(const DumpTensor& tensor) {
    return (tensor.at.form == Form::value || tensor.at.form == Form::codes) && tensor.at.tower.empty() &&
           !tensor.stated && tensor.count() > 0 && tensor.count() <= kMostMetadata;
  }

  std::optional<std::int64_t> slots_before(const DumpTensor& fresh, const DumpTensor& cache) const {
    const std::int64_t rows = frame_.spans.front().rows;
    const auto leads = [](const DumpTensor& tensor, std::int64_t count) {
      const std::size_t first = tensor.shape.size() > 2 && tensor.shape[0] == 1 ? 1 : 0;
      return tensor.shape.size() >= first + 2 && tensor.shape[first] == count;
    };
    const std::int64_t channels = fresh.count() / rows;
    const std::int64_t slots = channels > 0 ? cache.count() / channels : 0;
    if (slots <= rows || fresh.count() % rows != 0 || cache.count() % channels != 0) return std::nullopt;
    if (!leads(fresh, rows) || !leads(cache, slots)) return std::nullopt;
    const auto made = values_(fresh, fresh.count());
    const auto held = values_(cache, cache.count());
    if (!made || !held) return std::nullopt;
    const auto alike = [&](std::int64_t from) {
      std::int64_t compared = 0;
      std::int64_t same = 0;
      for (std::size_t i = 0; i < made->size(); ++i) {
        const float slot = (*held)[static_cast<std::size_t>(from * channels) + i];
        if ((*made)[i] == 0 || slot == 0 || !std::isfinite(slot)) continue;
        ++compared;
        same += std::signbit((*made)[i]) == std::signbit(slot) ? 1 : 0;
      }
      return compared < 16 ? 0.0 : static_cast<double>(same) / static_cast<double>(compared);
    };
    static constexpr double kSame = 0.95;
    static constexpr double kOther = 0.8;
    return alike(slots - rows) >= kSame && alike(0) < kOther ? std::optional(slots - rows) : std::nullopt;
  }

  /// Behind a causal mask a row's last probability that is not zero is that of its own token.
  bool place_by_last_key(const DumpTensor& probs) {
    static constexpr std::int64_t kRowsRead = 64;
    static constexpr std::int64_t kBlock = 8;  ///< the smallest of a cache: other numbers of keys have no tail
    const std::int64_t keys = probs.shape.back();
    const std::int64_t rows = std::min(frame_.spans.front().rows, kRowsRead);
    if (!values_ || probs.stated || keys > kMostMetadata / rows) return false;
    const auto values = values_(probs, rows * keys);
    if (!values || static_cast<std::int64_t>(values->size()) != rows * keys) return false;
    std::map<std::int64_t, std::int64_t> votes;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto begin = values->begin() + row * keys;
      std::int64_t last = keys - 1;
      while (last >= 0 && begin[last] == 0) --last;
      if (last >= row && std::isfinite(begin[last])) ++votes[last - row];
    }
    if (rows == 1 && !votes.empty()) {
      frame_.keys = keys;
      frame_.seen = votes.begin()->first + 1;
      place_at(keys % kBlock == 0 ? votes.begin()->first : keys - 1);
      return true;
    }
    for (const auto& [first, count] : votes) {
      if (2 * count <= rows || first + frame_.spans.front().rows > keys) continue;
      place_at(first);
      return true;
    }
    return false;
  }

  std::vector<const DumpTensor*> pass_;
  const ReadIntegers& read_;
  const ReadValues& values_;
  std::set<std::string_view> dropped_;  ///< roles
  Frame frame_;
};

}  // namespace

Frame frame_of(std::span<const DumpTensor* const> pass, const ReadIntegers& read, const ReadValues& values) {
  return Framer(pass, read, values).frame();
}

}  // namespace nanscope
