#include "tests/corpus/dress.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "tests/corpus/matrix.h"

namespace nanscope::corpus {
namespace {

using Extents = std::vector<std::int64_t>;

std::int64_t count_of(const Extents& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::size_t element_bytes(const TapeEntry& entry) {
  const std::int64_t count = count_of(entry.shape);
  return count > 0 ? entry.bytes.size() / static_cast<std::size_t>(count) : 1;
}

/// An array of other dimensions, each element from where `from` says, or left as it is where that is negative.
TapeEntry rearranged(const TapeEntry& entry, Extents shape, const std::function<std::int64_t(const Extents& at)>& from,
                     std::byte fill = std::byte{0}) {
  TapeEntry out{entry.folder, entry.name, entry.tag, entry.dtype, std::move(shape), {}};
  const std::size_t size = element_bytes(entry);
  const std::int64_t count = count_of(out.shape);
  out.bytes.assign(static_cast<std::size_t>(count) * size, fill);
  Extents at(out.shape.size(), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    if (const std::int64_t source = from(at); source >= 0) {
      std::copy_n(entry.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(source) * size), size,
                  out.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * size));
    }
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < out.shape[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

std::int64_t flat(const Extents& shape, const Extents& at) {
  std::int64_t index = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + at[d];
  return index;
}

const TapeEntry* named(const Tape& tape, const std::string& name) {
  const auto all = tape.entries();
  const auto found = std::find_if(all.begin(), all.end(), [&](const TapeEntry& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

/// Without a first dimension of one, as some hooks have it.
Extents bare(const Extents& shape) {
  return shape.size() == 3 && shape.front() == 1 ? Extents(shape.begin() + 1, shape.end()) : shape;
}

bool ends_with(const TapeEntry& entry, std::string_view what) { return entry.tag.ends_with(what); }

/// Whether it is of this pass's tokens rather than of the model.
bool of_tokens(const TapeEntry& a, const TapeEntry& b) { return bare(a.shape) != bare(b.shape); }

bool of_keys(const TapeEntry& entry) {
  return ends_with(entry, ".scores") || ends_with(entry, ".probs") || ends_with(entry, ".mask") ||
         ends_with(entry, "_cache") || ends_with(entry, "_read") || ends_with(entry, ".seq_lens");
}

/// Both sequences in one array: (2, length ...), shorter ones padded.
TapeEntry side_by_side(const TapeEntry& a, const TapeEntry& b, bool left, bool nan) {
  const Extents one = bare(a.shape);
  const Extents two = bare(b.shape);
  Extents shape{2};
  for (std::size_t d = 0; d < one.size(); ++d) shape.push_back(std::max(one[d], two[d]));
  TapeEntry joined = a;
  joined.shape = {static_cast<std::int64_t>((a.bytes.size() + b.bytes.size()) / element_bytes(a))};
  joined.bytes.insert(joined.bytes.end(), b.bytes.begin(), b.bytes.end());
  const std::int64_t behind = count_of(one);
  // Keys of padding have no probability; all else of a padding row is what the other sequence has there, or NaN.
  const bool scores = ends_with(a, ".probs") || ends_with(a, ".scores");
  return rearranged(
      joined, shape,
      [&, nan](const Extents& at) -> std::int64_t {
        const Extents& own = at[0] == 0 ? one : two;
        Extents inside(own.size());
        bool real = true;
        for (std::size_t d = 0; d < own.size(); ++d) {
          inside[d] = at[d + 1] - (left ? shape[d + 1] - own[d] : 0);
          real = real && inside[d] >= 0 && inside[d] < own[d];
        }
        if (!real && (scores || nan)) return -1;
        for (std::size_t d = 0; d < own.size(); ++d) inside[d] = std::clamp<std::int64_t>(inside[d], 0, own[d] - 1);
        return (at[0] == 0 ? 0 : behind) + flat(own, inside);
      },
      nan && !scores && a.dtype != "I64" ? std::byte{0xFF} : std::byte{0});
}

}  // namespace

Tape batched(const Tape& a, const Tape& b, const std::string& folder, Padding padding, bool nan_in_padding) {
  Tape out(Dumped{});
  const bool left = padding == Padding::left;
  std::int64_t lengths[2] = {0, 0};
  for (const TapeEntry& entry : a.entries()) {
    const TapeEntry* other = named(b, entry.name);
    if (other == nullptr || ends_with(entry, ".mask") || ends_with(entry, ".seq_lens") || ends_with(entry, "_cache") ||
        ends_with(entry, "_read") || entry.tag == "next_token")
      continue;
    if (!of_tokens(entry, *other)) {
      out.put(entry);
      continue;
    }
    if (entry.tag == "tokens") {
      lengths[0] = entry.shape[0];
      lengths[1] = other->shape[0];
    }
    const bool computed = entry.tag != "tokens" && !entry.tag.starts_with("embed");
    TapeEntry made = side_by_side(entry, *other, left, nan_in_padding && computed);
    made.folder = folder;
    out.put(std::move(made));
  }
  const std::int64_t length = std::max(lengths[0], lengths[1]);
  std::vector<std::int64_t> mask;
  for (const std::int64_t own : lengths) {
    for (std::int64_t t = 0; t < length; ++t) mask.push_back(left ? (t >= length - own ? 1 : 0) : (t < own ? 1 : 0));
  }
  out.put_ids(folder, "attention_mask", {2, length}, mask);
  return out;
}

Tape flattened(const Tape& a, const Tape& b, const std::string& folder) {
  Tape out(Dumped{});
  std::vector<std::int64_t> lengths;
  for (const TapeEntry& entry : a.entries()) {
    const TapeEntry* other = named(b, entry.name);
    if (other == nullptr || of_keys(entry) || entry.tag == "next_token") continue;
    if (!of_tokens(entry, *other)) {
      out.put(entry);
      continue;
    }
    if (entry.tag == "tokens") lengths = {entry.shape[0], other->shape[0]};
    TapeEntry made = entry;
    made.folder = folder;
    made.shape = bare(entry.shape);
    made.shape[0] += bare(other->shape)[0];
    made.bytes.insert(made.bytes.end(), other->bytes.begin(), other->bytes.end());
    out.put(std::move(made));
  }
  std::vector<std::int64_t> positions;
  for (const std::int64_t length : lengths) {
    for (std::int64_t t = 0; t < length; ++t) positions.push_back(t);
  }
  out.put_ids(folder, "query_start_loc", {3}, std::vector{std::int64_t{0}, lengths[0], lengths[0] + lengths[1]});
  out.put_ids(folder, "seq_lens", {2}, lengths);
  out.put_ids(folder, "positions", {static_cast<std::int64_t>(positions.size())}, positions);
  return out;
}

namespace {

/// Which dimension of a tensor is split over ranks; nothing for what all ranks hold.
std::optional<std::size_t> split_dimension(const TapeEntry& entry) {
  const std::string& tag = entry.tag;
  const auto one_of = [&](std::initializer_list<std::string_view> list) {
    return std::find(list.begin(), list.end(), tag) != list.end();
  };
  if (one_of({"q.output", "k.output", "v.output", "gate.output", "up.output", "act.input", "act.output", "attn.output",
              "o.input", "down.input", "o.weight", "down.weight"}))
    return entry.shape.size() - 1;
  if (one_of({"q.weight", "k.weight", "v.weight", "gate.weight", "up.weight", "q.bias", "k.bias", "v.bias"})) return 0;
  if (one_of({"attn.q", "attn.k", "attn.v", "attn.k_cache", "attn.v_cache", "attn.k_read", "attn.v_read"})) return 1;
  if (one_of({"attn.scores", "attn.probs"})) return 0;
  return std::nullopt;
}

}  // namespace

void add_shard(const Tape& whole, int rank, Tape& into) {
  const std::string folder = "rank" + std::to_string(rank);
  for (const TapeEntry& entry : whole.entries()) {
    const auto dimension = split_dimension(entry);
    TapeEntry made = entry;
    if (dimension) {
      Extents shape = entry.shape;
      shape[*dimension] /= 2;
      made = rearranged(entry, shape, [&](const Extents& at) {
        Extents from = at;
        from[*dimension] += rank * shape[*dimension];
        return flat(entry.shape, from);
      });
    }
    made.folder = entry.folder.empty() ? folder : folder + '/' + entry.folder;
    into.put(std::move(made));
  }
}

Tape paged(const Tape& tape, Pages pages, std::uint64_t seed) {
  constexpr std::int64_t kSlots = 4;
  Tape out(Dumped{});
  std::map<std::string, std::int64_t> written;  // tokens in the cache, by folder
  std::int64_t most = 0;
  for (const TapeEntry& entry : tape.entries()) {
    if (ends_with(entry, "_cache")) most = std::max(most, entry.shape[0]);
  }
  const std::int64_t used = (most + kSlots - 1) / kSlots;
  const std::int64_t blocks = used + 3;
  std::vector<std::int64_t> table(static_cast<std::size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  for (std::size_t i = table.size(); i-- > 1;)
    std::swap(table[i], table[static_cast<std::size_t>(draw(seed + i, "pages", static_cast<std::int64_t>(i) + 1))]);
  std::vector<std::int64_t> logical(static_cast<std::size_t>(blocks), -1);
  for (std::int64_t i = 0; i < used; ++i) logical[static_cast<std::size_t>(table[static_cast<std::size_t>(i)])] = i;
  const TapeEntry* key = nullptr;
  for (const TapeEntry& entry : tape.entries()) {
    if (!ends_with(entry, "_cache")) {
      if (entry.tag == "tokens") {
        const std::int64_t before =
            written.empty() ? 0 : std::max_element(written.begin(), written.end(), [](const auto& a, const auto& b) {
                                    return a.second < b.second;
                                  })->second;
        const std::int64_t tokens = entry.shape[0];
        written[entry.folder] = before + tokens;
        std::vector<std::int64_t> slots;
        for (std::int64_t t = before; t < before + tokens; ++t)
          slots.push_back(table[static_cast<std::size_t>(t / kSlots)] * kSlots + t % kSlots);
        out.put_ids(entry.folder, "slot_mapping", {tokens}, slots);
        out.put_ids(entry.folder, "block_table", {1, used}, std::span(table).first(static_cast<std::size_t>(used)));
        out.put_ids(entry.folder, "seq_lens", {1}, std::vector{before + tokens});
      }
      out.put(entry);
      continue;
    }
    const bool is_key = entry.tag == "attn.k_cache";
    const bool both = pages == Pages::halves_first || pages == Pages::halves_second;
    if (is_key) key = &entry;
    if (is_key && both) continue;
    const std::int64_t heads = entry.shape[1];
    const std::int64_t width = entry.shape[2];
    const std::int64_t tokens = entry.shape[0];
    const auto source = [&](std::int64_t block, std::int64_t slot, std::int64_t head, std::int64_t channel) {
      const std::int64_t at = logical[static_cast<std::size_t>(block)];
      const std::int64_t position = at * kSlots + slot;
      const bool there = at >= 0 && position < tokens;
      // What lies in other slots was somebody's once.
      const std::int64_t row = there ? position : (block * kSlots + slot) % tokens;
      return (row * heads + head) * width + channel;
    };
    if (!both) {
      const bool first = pages == Pages::heads_first;
      out.put(
          rearranged(entry, first ? Extents{blocks, heads, kSlots, width} : Extents{blocks, kSlots, heads, width},
                     [&](const Extents& at) { return source(at[0], at[first ? 2 : 1], at[first ? 1 : 2], at[3]); }));
      continue;
    }
    TapeEntry joined = *key;
    joined.name = key->name.substr(0, key->name.size() - std::string_view("k_cache").size()) + "kv_cache";
    joined.tag = "attn.kv_cache";
    joined.shape = {2, tokens, heads, width};
    joined.bytes.insert(joined.bytes.end(), entry.bytes.begin(), entry.bytes.end());
    const bool halves_first = pages == Pages::halves_first;
    out.put(rearranged(
        joined, halves_first ? Extents{2, blocks, kSlots, heads, width} : Extents{blocks, 2, kSlots, heads, width},
        [&](const Extents& at) {
          const std::int64_t half = at[halves_first ? 0 : 1];
          return half * tokens * heads * width + source(at[halves_first ? 1 : 0], at[2], at[3], at[4]);
        }));
  }
  return out;
}

Tape untyped(const Tape& tape) {
  Tape out(Dumped{});
  for (TapeEntry entry : tape.entries()) {
    if (entry.dtype.starts_with("F8_E4") || entry.dtype.starts_with("F8_E5")) entry.dtype = "U8";
    out.put(std::move(entry));
  }
  return out;
}

Tape renamed(const Tape& tape) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"self_attn.q_proj", "zeta.lin_a"},
      {"self_attn.k_proj", "zeta.lin_b"},
      {"self_attn.v_proj", "zeta.lin_c"},
      {"self_attn.o_proj", "zeta.lin_d"},
      {"self_attn", "zeta"},
      {"mlp.gate_proj", "theta.lin_e"},
      {"mlp.up_proj", "theta.lin_f"},
      {"mlp.down_proj", "theta.lin_g"},
      {"mlp", "theta"},
      {"post_attention_layernorm", "pre_theta"},
      {"input_layernorm", "pre_zeta"},
  };
  Tape out(Dumped{});
  for (TapeEntry entry : tape.entries()) {
    for (const auto& [word, other] : kWords) {
      const std::size_t at = entry.name.find(word);
      if (at == std::string::npos) continue;
      entry.name.replace(at, word.size(), other);
      break;
    }
    out.put(std::move(entry));
  }
  return out;
}

}  // namespace nanscope::corpus
