/// The attention of a layer: projections, rotary embedding, the KV cache, scores and mix.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/dump/name_words.h"
#include "core/dump/pass_builder.h"
#include "core/dump/slot_history.h"

namespace nanscope {
namespace {

/// Whether a name says so: q_pre_rope, pre_q. The folders in front of it ("prefill") say nothing.
bool before_rotation(const std::string& name) {
  std::string words = in_words(std::string_view(name).substr(name.rfind('/') + 1));
  std::replace(words.begin(), words.end(), '.', '_');
  const std::vector<std::string_view> all = split_text(words, '_');
  return std::any_of(all.begin(), all.end(), [](std::string_view word) {
    return word == "pre" || word.starts_with("prerope") || word.starts_with("prerot");
  });
}

}  // namespace

TensorId PassBuilder::attention(TensorId x) {
  const auto outs = find("self_attn", Port::output);
  const bool inside =
      seen_any({"q_proj",  "k_proj",  "v_proj",   "qkv_proj", "o_proj",   "q",        "k",         "v",
                "k_cache", "v_cache", "kv_cache", "scores",   "probs",    "softmax",  "attention", "attn_out",
                "q_rot",   "k_rot",   "k_read",   "v_read",   "q_a_proj", "kv_a_proj"});
  x = input_of("self_attn", x);
  const auto dumped_here = [this](std::string_view op) { return !find(op, Port::output).empty(); };
  if (dumped_here("recurrent_in") || dumped_here("recurrent") || dumped_here("recurrent_out")) return recurrence(x);
  if (dumped_here("gdn_qkv_proj")) return delta_net(x);
  if (!inside) return emit("self_attn", OpKind::block, {{"x", x, {}}}, {"out", outs});
  gate_ = 0;
  auto [q, k, v] = knows_latents() ? latents(x) : projections(x);
  if (!knows_latents()) {
    if (seen("q_norm")) q = norm("q_norm", q);
    if (seen("k_norm")) k = norm("k_norm", k);
    q = rotated("q", q);
    k = rotated("k", k);
  }
  store(k, v);
  const std::vector<TensorId> read_k = keys("k", k);
  const std::vector<TensorId> read_v = keys("v", v);
  TensorId out = mix(q, read_k, read_v, own_of(k, read_k), own_of(v, read_v));
  if (gate_ != 0) out = emit("attn_gated", OpKind::activation, {{"gate", gate_, {}}, {"up", out, {}}}, {"out"});
  // Of a model with delta nets only those have one.
  if (seen("inner_norm") && !seen("gdn_qkv_proj")) out = norm("inner_norm", out);
  // MiniMax's linear attention multiplies by a gate.
  if (is_here("output_gate")) out = emit("attn_gated", OpKind::block, {{"x", out, {}}}, {"out"});
  if (seen("o_proj")) {
    out = linear("o_proj", out, "out", {});
  } else if (!outs.empty()) {
    return emit("self_attn", OpKind::block, {{"x", out, {}}}, {"out", outs});
  }
  return whole("self_attn", out);
}

/// A layer of another kind among those of attention: its state takes in one token after the other.
TensorId PassBuilder::recurrence(TensorId x) {
  const TensorId in = linear("recurrent_in", x, "out");
  const TensorId scanned = emit("recurrent", OpKind::recurrent_scan, {{"x", input_of("recurrent", in), {}}},
                                {"out", find("recurrent", Port::output)});
  return whole("self_attn", linear("recurrent_out", scanned, "out"));
}

/// What was dumped as queries, keys or values before the rotation.
std::vector<PassBuilder::Index> PassBuilder::states(std::string_view letter) {
  std::vector<Index> found = find_role(letter);
  std::erase_if(found, [&](Index index) { return tensor(index).at.port == Port::input; });
  // What attention is called with is behind the rotation, where there is one.
  const bool rotates = seen("rope") || seen("q_rot") || seen("k_rot") || cos_ != 0;
  const bool named = !find_role(std::string(letter) + "_rot").empty();
  if (letter == "v" || named) return found;
  const std::vector<Index> made = find(std::string(letter) + "_proj", Port::output);
  std::erase_if(found, [&](Index index) {
    if (tensor(index).at.op != letter || before_rotation(tensor(index).name)) return false;
    if (rotates) return seen(std::string(letter) + "_proj");
    return !made.empty() && !same_bytes(made.front(), index);
  });
  return found;
}

std::tuple<TensorId, TensorId, TensorId> PassBuilder::projections(TensorId x) {
  if (seen("qkv_proj") && !seen("q_proj")) {
    const TensorId fused = linear("qkv_proj", x, "qkv", find_role("qkv"));
    const Geometry& g = geometry_[scope_.tower];
    if (g.fused_by_heads && g.heads > 0 && g.kv_heads > 0) return parts_of_heads(fused);
    const std::int64_t q = g.heads * g.width;
    const Tensor* whole = run_.tensor(fused);
    // Two parts of one size are what the queries leave.
    const std::int64_t left = whole != nullptr && whole->known && q > 0 ? whole->channels - q : 0;
    const bool halves = left > 0 && left % 2 == 0 && left / 2 <= q && left / 2 % g.width == 0;
    const std::int64_t kv = g.kv_heads > 0 ? g.kv_heads * g.width : halves ? left / 2 : q;
    // Without heads at hand, three parts of one size are the only guess that a width allows.
    const bool thirds = q == 0 && whole != nullptr && whole->known && whole->channels % 3 == 0;
    const std::int64_t rows = thirds ? whole->channels / 3 : q;
    const std::int64_t others = thirds ? whole->channels / 3 : kv;
    return {part_of(fused, "q_proj", "q", 0, rows), part_of(fused, "k_proj", "k", rows, others),
            part_of(fused, "v_proj", "v", rows + others, others)};
  }
  if (seen("kv_a_proj")) {
    TensorId q = x;
    if (seen("q_a_proj")) q = linear("q_a_proj", x, "q_a");
    if (seen("q_a_norm")) q = norm("q_a_norm", q);
    q = linear("q_proj", q, "q", states("q"));
    TensorId kv = linear("kv_a_proj", x, "kv_a");
    if (seen("kv_a_norm")) kv = norm("kv_a_norm", kv);
    kv = linear("kv_b_proj", kv, "kv");
    const auto part = [&](std::string_view letter) {
      return emit(std::string(letter) + "_proj", OpKind::dumped, {{"x", kv, {}}},
                  {std::string(letter), states(letter)});
    };
    const TensorId k = part("k");
    return {q, k, part("v")};
  }
  const bool gated = geometry_[scope_.tower].attention_gate;
  TensorId q = linear("q_proj", x, gated ? "qkv" : "q", gated ? std::vector<Index>{} : states("q"));
  if (gated) std::tie(q, gate_) = query_and_gate(q);
  const TensorId k = linear("k_proj", x, "k", states("k"));
  return {q, k, linear("v_proj", x, "v", states("v"))};
}

/// Each key head's queries, key and value lie one behind the other.
std::tuple<TensorId, TensorId, TensorId> PassBuilder::parts_of_heads(TensorId fused) {
  const Geometry& g = geometry_[scope_.tower];
  const std::int64_t queries = g.heads / g.kv_heads * g.width;
  const auto part = [&](std::string_view letter, std::int64_t first, std::int64_t heads) {
    const TensorId id = emit(std::string(letter) + "_proj", OpKind::split, {{"x", fused, {}}},
                             {std::string(letter), states(letter)}, SplitAttributes{first, g.kv_heads});
    settle_width(id, heads * g.width, heads);
    return id;
  };
  const TensorId q = part("q", 0, g.heads);
  const TensorId k = part("k", queries, g.kv_heads);
  return {q, k, part("v", queries + g.width, g.kv_heads)};
}

/// By its elements: what a single row has is taken from its tensor, whose health is that of the whole.
Health PassBuilder::health_of_part(const Tensor& part) {
  Health all = empty_health();
  if (part.tokens == 1) {
    for (const Health& row : run_.rows_by_elements(part)) merge(all, row);
  } else {
    for (const Health& row : run_.rows(part)) merge(all, row);
  }
  return all;
}

/// Columns of a fused projection: a tensor of its own name where it was dumped, else a view of the whole.
TensorId PassBuilder::part_of(TensorId fused, std::string_view op, std::string_view role, std::int64_t first,
                              std::int64_t channels) {
  std::vector<Index> own = outputs_of(op, role);
  // What attention is called with is behind the rotation, where there is one.
  if (role != "v" && !learns_positions()) {
    std::erase_if(own, [&](Index index) {
      const Tensor* whole = run_.tensor(fused);
      if (tensor(index).at.op != role || before_rotation(tensor(index).name)) return false;
      return whole != nullptr && whole->known && !whole->stated && first + channels <= whole->channels &&
             !same_columns(*whole, first, index);
    });
  }
  SplitAttributes at;
  at.first_channel = first;
  const TensorId id = emit(std::string(op), OpKind::split, {{"x", fused, {}}}, {std::string(role), own}, at);
  Tensor& made = *tensor_of(id);
  const Tensor whole = *run_.tensor(fused);
  // Of statistics nobody knows which part they are of.
  if (whole.stated) return id;
  if (made.known || !whole.known || channels == 0 || first + channels > whole.channels) return id;
  DumpRun::Source source = run_.sources_.at(fused);
  source.first_channel = first;
  run_.sources_[id] = source;
  made = whole;
  made.id = id;
  made.op = run_.last_op().id;
  made.role = role;
  made.channels = channels;
  const std::int64_t width = geometry_[scope_.tower].width;
  made.heads = width > 0 && channels % width == 0 ? channels / width : 1;
  made.health = health_of_part(made);
  return id;
}

/// Whether positions are learned, and not rotated in. BERT's embeddings are not in the tower of its layers.
bool PassBuilder::learns_positions() const {
  if (seen("pos_embed")) return true;
  const auto of_main = [&](std::string_view op) { return seen_.contains({"", std::string(op)}); };
  const bool alone = !of_main("q_proj") && !of_main("qkv_proj") && !of_main("attention");
  return alone && of_main("pos_embed") && !seen("rope") && cos_ == 0;
}

/// Behind the rotary embedding, where anything says that there is one.
TensorId PassBuilder::rotated(std::string_view letter, TensorId x) {
  const std::string role = std::string(letter) + "_rot";
  std::vector<Index> outs = find("rope", Port::output, Form::value, letter == "q" ? 0 : 1);
  for (const Index index : find_role(role)) outs.push_back(index);
  for (const Index index : find(letter, Port::output)) {
    // What was read back is what comes behind the cache.
    if (tensor(index).at.role != std::string(letter) + "_read") outs.push_back(index);
  }
  // What attention was called with.
  if (outs.empty()) outs = find("attention", Port::input, Form::value, letter == "q" ? 0 : 1);
  const bool learned = learns_positions();
  if (outs.empty() && learned) return x;
  const Tensor* before = run_.tensor(x);
  const std::int64_t channels = before != nullptr ? before->channels : 0;
  const std::int64_t heads = before != nullptr ? before->heads : 1;
  if (!outs.empty() && before != nullptr && before->known && same_bytes(*before, outs.front())) {
    for (const Index index : outs) copy(x, index, role);
    return x;
  }
  Inputs inputs = rotation_of(x);
  RopeAttributes form;
  const TensorId out = emit(std::string(letter) + "_rope", OpKind::rope, std::move(inputs), {role, outs}, form);
  Tensor& made = *tensor_of(out);
  // Not of what is before it: what it was in may have moved.
  if (!made.known && channels > 0) {
    made.channels = channels;
    made.heads = heads;
  }
  return with_forms(letter, Port::output, out).x;
}

/// What is called a cache and has a row for each of the step's, and no more, is what the step stores.
void PassBuilder::settle_stored(std::int64_t width, const std::string& letter) {
  const std::vector<Index> caches = find_role(letter + "_cache");
  const Step& step = run_.steps_.back();
  if (caches.size() != 1 || width <= 0 || frame_.rows <= 0) return;
  const bool begins =
      std::all_of(step.spans.begin(), step.spans.end(), [](const Span& span) { return span.first_token == 0; });
  const DumpTensor& cache = tensor(caches.front());
  if (begins || cache.count() != frame_.rows * width) return;
  TensorName& at = run_.dump_.tensors[caches.front()].at;
  const auto roles = roles_.find(scope_);
  std::erase_if(roles->second, [&](const auto& one) { return one.second == caches.front(); });
  at.role = letter + "_new";
  at.port = Port::output;
  roles->second.insert({{at.role, at.form}, caches.front()});
}

void PassBuilder::store(TensorId k, TensorId v) {
  const auto width = [&](TensorId id) {
    const Tensor* made = run_.tensor(id);
    return made != nullptr ? made->channels : 0;
  };
  // Where one of the two was not dumped, it is as wide as the other.
  settle_stored(width(k) > 0 ? width(k) : width(v), "k");
  settle_stored(width(v) > 0 ? width(v) : width(k), "v");
  std::vector<Index> both = find_role("kv_cache");
  std::erase_if(both, [&](Index index) {
    if (!strange_pools_.contains(index)) return false;
    emit_parameter(index);
    return true;
  });
  const std::vector<Index> key = find_role("k_cache");
  const std::vector<Index> value = find_role("v_cache");
  const std::vector<Index> new_keys = find_role("k_new");
  const std::vector<Index> new_values = find_role("v_new");
  if (both.empty() && key.empty() && value.empty() && new_keys.empty() && new_values.empty()) return;
  Inputs inputs{{"k", k, {}}, {"v", v, {}}};
  // A scale that is called the cache's serves keys and values, one that is called the keys' does not.
  const std::vector<Index> of_both = find_role("kv_cache", Form::scale);
  for (const std::string letter : {"k", "v"}) {
    std::vector<Index> scale = find_role(letter, Form::scale);
    if (scale.empty()) scale = of_both;
    const auto own = parameter(letter, letter, Form::scale);
    give_parameter(inputs, letter + "_scale", scale.empty() ? own : std::optional(scale.front()));
  }
  for (const std::string_view role : {"slot_mapping", "block_table", "seq_lens"}) {
    const Scope here = scope_;
    auto found = parameter(role, role);
    if (!found) {
      scope_ = {here.tower, {}, {}};
      found = parameter(role, role);
      scope_ = here;
    }
    give_parameter(inputs, role, found);
  }
  std::erase_if(inputs, [](const Input& one) { return one.tensor == 0; });
  Op op;
  op.layer = scope_.layer;
  op.name = scope_.tower.empty() ? "kv_store" : scope_.tower + "_kv_store";
  op.kind = OpKind::kv_store;
  op.attributes = KvStoreAttributes{};
  op.inputs = std::move(inputs);
  run_.add(std::move(op));
  const auto add = [&](Index index, std::string_view role, int half) {
    Tensor described = describe(index, role, half);
    const Tensor& added = run_.add(std::move(described));
    const TensorId id = added.id;
    const Layout layout = layout_of(index, half);
    run_.sources_[id] = {index, layout, 0};
    settle_first_bad(id, layout);
    if (half == 0) run_.by_dumped_[index] = emitted_[index] = id;
    placed_.insert(index);
  };
  // What goes into the slots, row by row, as recordings have it.
  if (!new_keys.empty()) add(new_keys.front(), "k_codes", 0);
  if (!new_values.empty()) add(new_values.front(), "v_codes", 0);
  if (!both.empty()) {
    for (const int half : {0, 1}) {
      add(both.front(), half == 0 ? "k_cache" : "v_cache", half);
      Tensor& made = run_.contents_.rbegin()->second.tensors.back();
      // Of statistics nobody knows which half they are of.
      if (!made.stated) made.health = health_of_part(made);
    }
    slot_history();
    return;
  }
  if (!key.empty()) add(key.front(), "k_cache", 0);
  if (!value.empty()) add(value.front(), "v_cache", 0);
  if (!key.empty() || !value.empty()) slot_history();
}

/// The first cache of the step that has slots says for all layers who holds and wrote them.
void PassBuilder::slot_history() {
  const Tensor& cache = run_.contents_.rbegin()->second.tensors.back();
  Op& store = run_.last_op();
  if (cache.axis != Axis::slots) return;
  const auto integers = [&](std::string_view role) -> std::vector<std::int64_t> {
    const DumpTensor* one = run_.dumped(store.input(role));
    if (one == nullptr) return {};
    auto values = run_.elements_.integers(*one);
    return values ? std::move(*values) : std::vector<std::int64_t>{};
  };
  SlotMap map;
  map.slots = integers("slot_mapping");
  map.table = integers("block_table");
  const std::size_t sequences = std::max<std::size_t>(1, frame_.spans.size());
  const DumpTensor* table = run_.dumped(store.input("block_table"));
  const bool rows = table != nullptr && table->shape.size() == 2;
  map.table_width = rows ? table->shape[1] : static_cast<std::int64_t>(map.table.size() / sequences);
  map.pool_rows = cache.tokens;
  const Layout layout = run_.layout_of(cache.id);
  if (layout.inner > 1 && layout.rows > layout.inner) map.stated_block = layout.inner;
  map.format = cache.format;
  if (map.slots.empty() && map.table.empty()) {
    map.table_width = 0;
    give_slots(map, layout.inner);
    // Rows of a pool whose layout only its values show lie where these do, and these may allow several readings.
    if (map.slots.empty() && pools_.contains(run_.sources_.at(cache.id).dumped)) return;
  }
  const Step& step = run_.steps_.back();
  const std::int64_t block = block_size_of(map, step);
  std::get<KvStoreAttributes>(store.attributes).block_size = block;
  const bool told = !run_.kv_.empty() && run_.kv_.back().step == step.id;
  if (told) return;
  const std::vector<KvRow> history = nanscope::slot_history(map, step, block, pool_blocks_[step.rank]);
  run_.kv_.insert(run_.kv_.end(), history.begin(), history.end());
}

/// Whether rows are the keys of one sequence, the tail of its last block among them, and not a pool read whole.
bool PassBuilder::gathered_for(const Tensor& read, std::optional<std::int64_t> pool) const {
  if (frame_.spans.size() != 1 || pool == read.tokens) return false;
  for (const std::string_view role : {"scores", "probs"}) {
    for (const Form form : {Form::value, Form::raw, Form::masked}) {
      for (const Index index : find_role(role, form)) {
        if (!tensor(index).shape.empty()) return tensor(index).shape.back() == read.tokens;
      }
    }
  }
  constexpr std::int64_t kBlock = 64;
  const std::int64_t context = frame_.spans.front().context;
  return pool && read.tokens >= context && read.tokens < context + kBlock;
}

/// What attention reads as keys or values: what was read back, a tensor a sequence where they are apart, else the
/// cache's codes, else what was computed.
std::vector<TensorId> PassBuilder::keys(std::string_view letter, TensorId fresh) {
  const std::string role(letter);
  const Op* store = store_of_layer();
  const Tensor* cache = store != nullptr ? run_.output(*store, role + "_cache") : nullptr;
  const TensorId cache_id = cache != nullptr ? cache->id : 0;
  const auto pool = cache != nullptr ? std::optional(cache->tokens) : std::nullopt;
  const TensorId scale = store != nullptr ? store->input(role + "_scale") : 0;
  std::vector<TensorId> made;
  for (const auto& [sequence, read] : by_sequence(find_role(role + "_read"))) {
    Inputs inputs{{role + "_cache", cache_id, {}}, {role, fresh, {}}, {role + "_scale", scale, {}}};
    made.push_back(emit(suffixed(role + "_read", sequence), OpKind::kv_read, std::move(inputs),
                        {role + "_read", read, Axis::keys}));
    Tensor& gathered = *tensor_of(made.back());
    if (gathered.axis == Axis::slots && gathered_for(gathered, pool)) gathered.axis = Axis::keys;
  }
  if (!made.empty()) return made;
  // If only the rows that the step wrote into its cache were dumped, attention reads their codes.
  const Tensor* rows = store != nullptr ? run_.output(*store, role + "_codes") : nullptr;
  const bool codes = rows != nullptr && info(rows->format).bits <= 8;
  made.push_back(cache_id != 0 ? cache_id : codes ? rows->id : fresh);
  return made;
}

/// The computed keys or values, where attention reads codes made from them; 0 elsewhere.
TensorId PassBuilder::own_of(TensorId fresh, const std::vector<TensorId>& read) const {
  const Tensor* codes = read.size() == 1 && read.front() != fresh ? run_.tensor(read.front()) : nullptr;
  return codes != nullptr && codes->known && info(codes->format).bits <= 8 ? fresh : 0;
}

const Op* PassBuilder::store_of_layer() {
  const Op* store = nullptr;
  for (const Op& one : run_.contents_.rbegin()->second.ops) {
    if (one.kind == OpKind::kv_store && one.layer == scope_.layer) store = &one;
  }
  return store;
}

std::map<std::optional<std::int64_t>, std::vector<PassBuilder::Index>> PassBuilder::by_sequence(
    const std::vector<Index>& all) const {
  std::map<std::optional<std::int64_t>, std::vector<Index>> apart;
  for (const Index index : all) apart[tensor(index).at.sequence].push_back(index);
  return apart;
}

std::string PassBuilder::suffixed(std::string name, std::optional<std::int64_t> sequence) {
  return sequence ? fmt::format("{}_{}", name, *sequence) : name;
}

/// The mask of the layer, else of the pass.
std::optional<PassBuilder::Index> PassBuilder::mask_of_layer() {
  if (const auto own = find_role("mask"); !own.empty()) return own.front();
  auto mask = parameter("mask", "mask");
  if (mask) return mask;
  const Scope here = scope_;
  scope_ = {here.tower, {}, {}};
  mask = parameter("mask", "mask");
  scope_ = here;
  return mask;
}

/// That of one sequence, where each has its own.
std::optional<PassBuilder::Index> PassBuilder::mask_of_sequence(std::int64_t sequence,
                                                                std::optional<Index> shared) const {
  for (const auto& [scope, members] : members_) {
    if (scope.tower != scope_.tower || (scope.layer && scope.layer != scope_.layer)) continue;
    for (const auto& [key, index] : members) {
      if (tensor(index).at.role == "mask" && tensor(index).at.sequence == sequence) return index;
    }
  }
  return shared && tensor(*shared).at.sequence ? std::nullopt : shared;
}

TensorId PassBuilder::mix(TensorId q, const std::vector<TensorId>& k, const std::vector<TensorId>& v, TensorId own_k,
                          TensorId own_v) {
  const Geometry& g = geometry_[scope_.tower];
  const Op* store = store_of_layer();
  const TensorId k_scale = store != nullptr ? store->input("k_scale") : 0;
  const TensorId v_scale = store != nullptr ? store->input("v_scale") : 0;
  std::vector<Index> outs = outputs_of("attention", "attn_out");
  std::erase_if(outs, [&](Index index) { return tensor(index).at.port == Port::input; });
  // vLLM pads values of latent attention to the width of keys, and cuts the output behind the module.
  const Tensor* values = knows_latents() && !v.empty() ? run_.tensor(v.front()) : nullptr;
  if (values != nullptr) outs = of_width(std::move(outs), values->channels);
  const std::optional<Index> mask = mask_of_layer();
  const std::vector<Index> probs = outputs_of("softmax", "probs");
  const std::vector<Index> scores = find_role("scores");
  const std::vector<Index> raw = find_role("scores", Form::raw);
  const std::vector<Index> masked = find_role("scores", Form::masked);
  MixAttributes mix_form;
  if (g.heads > 0) mix_form.heads = g.heads;
  if (g.kv_heads > 0) mix_form.kv_heads = g.kv_heads;
  Inputs keys_and_values;
  for (const TensorId id : k) keys_and_values.push_back({"k", id, {}});
  keys_and_values.push_back({"k_scale", k_scale, {}});
  keys_and_values.push_back({"k_own", own_k, {}});
  if (raw.empty() && scores.empty() && masked.empty() && probs.empty() && !seen_any({"scores", "probs", "softmax"})) {
    keys_and_values.insert(keys_and_values.begin(), {"q", q, {}});
    for (const TensorId id : v) keys_and_values.push_back({"v", id, {}});
    keys_and_values.push_back({"v_scale", v_scale, {}});
    keys_and_values.push_back({"v_own", own_v, {}});
    give_parameter(keys_and_values, "mask", mask);
    give_parameter(keys_and_values, "sinks", parameter("sinks", "sinks"));
    return emit("attention", OpKind::attention, std::move(keys_and_values), {"attn_out", outs}, mix_form);
  }
  std::set<std::optional<std::int64_t>> sequences;
  for (const auto* all : {&probs, &scores, &raw, &masked}) {
    for (const Index index : *all) sequences.insert(tensor(index).at.sequence);
  }
  if (sequences.empty()) sequences.insert(std::nullopt);
  Inputs mixed;
  for (const auto& sequence : sequences) {
    const std::optional<Index> seen_through = sequence ? mask_of_sequence(*sequence, mask) : mask;
    const ScoreTensors own{of_sequence(raw, sequence), of_sequence(scores, sequence), of_sequence(masked, sequence),
                           of_sequence(probs, sequence)};
    mixed.push_back({"probs", probabilities(q, keys_and_values, own, seen_through, sequence), {}});
  }
  for (const TensorId id : v) mixed.push_back({"v", id, {}});
  mixed.push_back({"v_scale", v_scale, {}});
  mixed.push_back({"v_own", own_v, {}});
  return emit("attn_mix", OpKind::attention_mix, std::move(mixed), {"attn_out", outs}, mix_form);
}

/// Scores as they were dumped: before they are scaled, cast to codes and back, behind the mask.
TensorId PassBuilder::probabilities(TensorId q, const Inputs& keys, const ScoreTensors& own, std::optional<Index> mask,
                                    std::optional<std::int64_t> sequence) {
  const Geometry& g = geometry_[scope_.tower];
  ScoresAttributes form;
  if (g.heads > 0) form.heads = g.heads;
  if (g.kv_heads > 0) form.kv_heads = g.kv_heads;
  Inputs inputs{{"q", q, {}}};
  inputs.insert(inputs.end(), keys.begin(), keys.end());
  const bool casts = !find("scores", Port::output, Form::codes).empty();
  const std::vector<Index>& first = !own.raw.empty() ? own.raw : own.scores;
  TensorId s = emit(suffixed("scores", sequence), OpKind::attention_scores, std::move(inputs), {"scores", first}, form);
  if (casts) {
    const Operand cast = with_forms("scores", Port::output, s);
    s = cast.x;
    if (!own.raw.empty() && !own.scores.empty()) {
      // What is called by the plain name is what came back of the codes.
      Inputs back{{"codes", cast.codes, {}}, {"x", cast.codes == 0 ? s : 0, {}}, {"scale", cast.scale, {}}};
      s = emit("scores_dequantise", cast.codes != 0 ? OpKind::dequantise : OpKind::copy, std::move(back),
               {"scores", own.scores});
    } else if (cast.codes != 0 && find("scores", Port::output, Form::dequantised).empty()) {
      const Tensor codes = *run_.tensor(cast.codes);
      s = emit("scores_dequantise", OpKind::dequantise, {{"codes", cast.codes, {}}, {"scale", cast.scale, {}}},
               {"scores"});
      tensor_of(s)->channels = codes.channels;
      tensor_of(s)->heads = codes.heads;
    }
  } else if (!own.raw.empty() && !own.scores.empty()) {
    s = emit(suffixed("scores_scaled", sequence), OpKind::attention_scores, {{"scores", s, {}}}, {"scores", own.scores},
             form);
  }
  Inputs soft{{"scores", s, {}}};
  if (!own.masked.empty()) {
    Inputs before{{"scores", s, {}}};
    give_parameter(before, "mask", mask);
    soft.front().tensor = emit(suffixed("scores_masked", sequence), OpKind::attention_scores, std::move(before),
                               {"scores", own.masked}, form);
  }
  give_parameter(soft, "mask", mask);
  give_parameter(soft, "sinks", parameter("sinks", "sinks"));
  return emit(suffixed("softmax", sequence), OpKind::softmax, std::move(soft), {"probs", own.probs});
}

}  // namespace nanscope
