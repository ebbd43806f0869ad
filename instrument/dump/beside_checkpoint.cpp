#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "core/counted.h"
#include "core/dump/pass_builder.h"
#include "instrument/dump/containers/decoded.h"
#include "instrument/dump/containers/joined.h"
#include "instrument/dump/open_dump.h"
#include "instrument/gguf/gguf_model.h"

/// A checkpoint beside a dump: its weights are those that the ops of the dump are fed with.
namespace nanscope {
namespace {

/// Of whichever pass a weight lies in.
std::string key_of(const DumpTensor& tensor) {
  TensorName at = tensor.at;
  at.run.clear();
  at.rank.reset();
  return parameter_key(at, at.known ? at.op : at.module, at.role, at.form);
}

bool is_weight(const DumpTensor& tensor) { return tensor.at.role == "weight" || tensor.at.role == "bias"; }

/// A scale or a zero point that the checkpoint fixes for a product's input.
bool is_scale_of_input(const DumpTensor& tensor) {
  return tensor.at.port == Port::input && (tensor.at.form == Form::scale || tensor.at.form == Form::zero_point);
}

struct Fused {
  std::string_view op;
  std::vector<std::string_view> parts;
};

const std::array<Fused, 2>& fused_projections() {
  static const std::array<Fused, 2> known = {Fused{"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
                                             Fused{"gate_up_proj", {"gate_proj", "up_proj"}}};
  return known;
}

/// The format of most elements that modules put out; none: of no floats.
std::optional<Format> format_of_outputs(const Dump& dump) {
  std::map<Format, std::int64_t> elements;
  for (const DumpTensor& tensor : dump.tensors) {
    const bool output = tensor.at.port == Port::output && tensor.at.form == Form::value && tensor.format;
    if (output && info(*tensor.format).bits >= 16 && info(*tensor.format).exponent_bits > 0)
      elements[*tensor.format] += tensor.count();
  }
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? std::nullopt : std::optional(most->first);
}

}  // namespace

bool OpenDump::of_checkpoint(const DumpTensor& tensor) const {
  return first_of_checkpoint_ && tensor.source >= *first_of_checkpoint_;
}

Status OpenDump::add_checkpoint(const std::filesystem::path& folder, std::vector<NamedTensor> merged) {
  // What a layer does in between is done with more roundings than one, and may be split in ways that nothing shows.
  if (!findings_.sparse.empty())
    return fail(root_.string() + ": a flight recorder wrote it (" + findings_.sparse +
                "), which keeps too few tensors to compare them with a checkpoint: give one of the steps behind the "
                "fault, which are whole, or leave the checkpoint out");
  const auto gguf = gguf_of(folder);
  if (!gguf) return tl::unexpected(gguf.error());
  Result<DumpListing> listing = list_dump(*gguf ? **gguf : folder, true);
  if (!listing) return tl::unexpected(listing.error());
  first_of_checkpoint_ = sources_.size();
  if (!merged.empty()) {
    auto container = memory_container(std::move(merged));
    if (!container) return tl::unexpected(container.error());
    add_tensors(std::shared_ptr<Container>(std::move(*container)), {.path = {}, .shown = "adapter/merged", .state = {}},
                nullptr);
  }
  auto decoded = DecodedContainer::open(folder, format_of_outputs(dump_));
  if (!decoded) return tl::unexpected(decoded.error());
  const std::shared_ptr<DecodedContainer> quantized = std::move(*decoded);
  if (quantized != nullptr) add_tensors(quantized, {.path = {}, .shown = "checkpoint/decoded", .state = {}}, nullptr);
  const std::size_t before = sources_.size();
  const bool sharded = std::any_of(listing->files.begin(), listing->files.end(),
                                   [](const DumpFile& file) { return file.shown == "model.safetensors.index.json"; });
  for (DumpFile& file : listing->files) {
    const bool read = *gguf || file.shown == (sharded ? "model.safetensors.index.json" : "model.safetensors");
    if (!read) continue;
    file.shown = "checkpoint/" + file.shown;
    follow_links_ = true;  // the hub keeps its files elsewhere
    const Result<bool> opened = open_file(file, nullptr);
    if (!opened) return tl::unexpected(opened.error());
  }
  if (quantized != nullptr) {
    std::erase_if(dump_.tensors, [&](const DumpTensor& tensor) {
      if (tensor.source < before) return false;
      const Source& source = sources_[tensor.source];
      return quantized->made_of().contains(source.container->tensors()[source.tensor].key);
    });
  }
  add_tied_head();
  join_projections();
  if (sources_.size() == before)
    return fail(folder.string() + ": neither model.safetensors nor model.safetensors.index.json is there");
  return {};
}

void OpenDump::leave_out_weights() {
  const auto found = std::find_if(dump_.tensors.begin(), dump_.tensors.end(), is_weight);
  if (found == dump_.tensors.end()) return;
  const std::string first = found->name;
  const std::size_t count = std::erase_if(dump_.tensors, is_weight);
  dump_.notes.push_back(
      {first, fmt::format("is left out, {} in all: a flight recorder wrote the dump ({}), which keeps "
                          "too few tensors to recompute ops with them",
                          counted(count, "weight"), findings_.sparse)});
}

/// Files leave a head out that is the embedding's table. A head of several modules has a table within (RoBERTa).
void OpenDump::add_tied_head() {
  const DumpTensor* table = nullptr;
  for (const DumpTensor& tensor : dump_.tensors) {
    if (!of_checkpoint(tensor) || tensor.at.role != "weight") continue;
    if (tensor.at.op == "lm_head" || tensor.at.module.starts_with("lm_head.")) return;
    if (tensor.at.op == "embed") table = &tensor;
  }
  if (table == nullptr) return;
  DumpTensor head = *table;
  head.at = parse_tensor_name("checkpoint/lm_head.weight");
  dump_.tensors.push_back(std::move(head));
}

/// Scales and zero points of the inputs of projections that were joined: one for all where all have the same, else
/// none, since servers differ in which they take. `joined`: the names of the weights.
void OpenDump::join_input_scales(const std::set<std::string>& joined, std::set<std::size_t>& gone) {
  std::map<std::string, DumpTensor> of_inputs;
  for (const DumpTensor& tensor : dump_.tensors) {
    if (of_checkpoint(tensor) && is_scale_of_input(tensor))
      of_inputs.emplace(tensor.name.substr(tensor.name.find('/') + 1), tensor);
  }
  for (const std::string& weight : joined) {
    for (const Fused& fused : fused_projections()) {
      const std::size_t place = weight.find(fused.op);
      if (place == std::string::npos || !weight.ends_with(".weight")) continue;
      for (const char* what : {".input_scale", ".activation_scale", ".input_zero_point"}) {
        std::vector<DumpTensor> parts;
        for (const std::string_view part : fused.parts) {
          const auto found = of_inputs.find(fmt::format("{}{}{}", weight.substr(0, place), part, what));
          if (found != of_inputs.end()) parts.push_back(found->second);
        }
        for (const DumpTensor& part : parts) gone.insert(part.source);
        auto one = parts.size() == fused.parts.size() ? one_of_all(parts) : std::nullopt;
        if (!one) continue;
        one->at = parse_tensor_name(fmt::format("checkpoint/{}{}{}", weight.substr(0, place), fused.op, what));
        gone.erase(one->source);
        const auto own = std::find_if(dump_.tensors.begin(), dump_.tensors.end(),
                                      [&](const DumpTensor& tensor) { return tensor.source == one->source; });
        *own = std::move(*one);
      }
    }
  }
}

/// The first, if all have the same bytes.
std::optional<DumpTensor> OpenDump::one_of_all(const std::vector<DumpTensor>& parts) const {
  std::vector<std::byte> first;
  for (const DumpTensor& part : parts) {
    const Source& source = sources_[part.source];
    const Result<TensorBytes> bytes = source.container->bytes(source.tensor);
    if (!bytes) return std::nullopt;
    if (&part == &parts.front()) first.assign(bytes->bytes.begin(), bytes->bytes.end());
    if (!std::equal(first.begin(), first.end(), bytes->bytes.begin(), bytes->bytes.end())) return std::nullopt;
  }
  return parts.front();
}

/// Servers fuse projections that the files hold apart: where the dump has the fused one, its weight is made of theirs,
/// which are then nobody's.
void OpenDump::join_projections() {
  std::map<std::string, const DumpTensor*> own;
  for (const DumpTensor& tensor : dump_.tensors) {
    if (of_checkpoint(tensor) && is_weight(tensor)) own.emplace(key_of(tensor), &tensor);
  }
  auto joined = std::make_shared<JoinedContainer>();
  std::set<std::string> made;
  std::set<std::size_t> gone;
  const auto join = [&](const DumpTensor& wanted, const Fused& fused, const std::string& role, Form form) {
    TensorName at = wanted.at;
    at.run.clear();
    at.rank.reset();
    if (own.contains(parameter_key(at, fused.op, role, form))) return;
    std::vector<JoinedContainer::Part> parts;
    std::vector<std::size_t> sources;
    std::string name;
    for (const std::string_view part : fused.parts) {
      const auto found = own.find(parameter_key(at, part, role, form));
      if (found == own.end()) return;
      const Source& source = sources_[found->second->source];
      parts.emplace_back(source.container, source.tensor);
      sources.push_back(found->second->source);
      if (name.empty()) name = found->second->name.substr(found->second->name.find('/') + 1);
    }
    const std::size_t place = name.find(fused.parts.front());
    if (place == std::string::npos) return;
    name.replace(place, fused.parts.front().size(), fused.op);
    if (!made.insert(name).second || !joined->add(name, std::move(parts))) return;
    gone.insert(sources.begin(), sources.end());
  };
  for (const DumpTensor& tensor : dump_.tensors) {
    for (const Fused& fused : fused_projections()) {
      if (of_checkpoint(tensor) || tensor.at.op != fused.op || tensor.at.port != Port::output) continue;
      for (const char* role : {"weight", "bias"}) join(tensor, fused, role, Form::value);
      join(tensor, fused, "weight", Form::dequantised);
    }
  }
  if (made.empty()) return;
  join_input_scales(made, gone);
  std::erase_if(dump_.tensors, [&](const DumpTensor& tensor) { return gone.contains(tensor.source); });
  add_tensors(joined, {.path = {}, .shown = "checkpoint/joined", .state = {}}, nullptr);
}

void OpenDump::replace_weights() {
  std::map<std::string, DumpTensor> own;
  for (const DumpTensor& tensor : dump_.tensors) {
    if (of_checkpoint(tensor)) own.emplace(key_of(tensor), tensor);
  }
  std::set<std::size_t> gone;
  for (const DumpTensor& tensor : dump_.tensors) {
    if (of_checkpoint(tensor) || !(is_weight(tensor) || is_scale_of_input(tensor))) continue;
    const auto found = own.find(key_of(tensor));
    if (found == own.end()) continue;
    replaced_.push_back({tensor, found->second});
    gone.insert(tensor.source);
  }
  std::erase_if(dump_.tensors, [&](const DumpTensor& tensor) { return gone.contains(tensor.source); });
}

}  // namespace nanscope
