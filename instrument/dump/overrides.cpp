#include "instrument/dump/overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <utility>

#include "core/dump/name_table.h"
#include "core/dump/natural_order.h"

namespace nanscope {
namespace {

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// The first of the words that spaces separate, without the '^' of a whole path.
std::string first_word(std::string_view list) {
  std::string_view word = list.substr(0, list.find(' '));
  if (word.starts_with('^')) word.remove_prefix(1);
  return std::string(word);
}

/// A key that the tables of names know by this op and role; empty when they have none.
std::string key_of(const std::string& op, const std::string& role, std::optional<Port> port) {
  const auto of_modules = [&](auto fits) -> std::string {
    for (const auto modules : {layer_modules(), outer_modules()}) {
      for (const ModulePattern& module : modules) {
        if (const auto side = fits(module)) {
          return first_word(module.tails) + (port.value_or(*side) == Port::input ? ".input" : ".output");
        }
      }
    }
    return {};
  };
  if (!op.empty()) {
    return of_modules([&](const ModulePattern& module) -> std::optional<Port> {
      if (module.op != op) return std::nullopt;
      return role == module.role_in && role != module.role_out ? Port::input : Port::output;
    });
  }
  for (const StatePattern& state : state_tensors()) {
    if (state.role == role && (!port || *port == state.port)) return first_word(state.names);
  }
  return of_modules([&](const ModulePattern& module) -> std::optional<Port> {
    if (module.role_out == role && port != Port::input) return Port::output;
    if (module.role_in == role && port != Port::output) return Port::input;
    return std::nullopt;
  });
}

/// One number that no file holds.
class StatedNumber final : public Container {
 public:
  explicit StatedNumber(float value) : value_(std::make_shared<float>(value)) {
    tensors_.push_back({"", &dtype_of(Format::f32), {}, 0, "stated in nanscope.toml"});
  }
  Result<TensorBytes> bytes(std::size_t) const override {
    return TensorBytes{std::as_bytes(std::span<const float>(value_.get(), 1)), value_};
  }

 private:
  std::shared_ptr<float> value_;
};

/// `scale` as the scale of `tensor`.
void make_scale(DumpTensor& scale, const DumpTensor& tensor) {
  const TensorName before = scale.at;
  scale.at = scale_of(tensor.at);
  scale.at.run = before.run;
  scale.at.request = before.request;
  scale.at.step = before.step;
  scale.at.rank = before.rank;
}

}  // namespace

Status Overrides::place(DumpTensor& tensor) {
  if (places_.empty()) return {};
  const std::filesystem::path path = tensor.name;
  std::string rest;
  std::vector<std::pair<Place, std::string>> taken;
  const auto look = [&](const std::string& word) -> Result<bool> {
    bool any = false;
    for (PlaceRule& rule : places_) {
      const auto found = rule.pattern.find(word);
      if (!found) return tl::unexpected(found.error());
      if (!*found) continue;
      ++rule.used;
      taken.emplace_back(rule.what, (*found)->size() > 1 ? (**found)[1] : (**found)[0]);
      any = true;
    }
    return any;
  };
  for (const auto& folder : path.parent_path()) {
    const Result<bool> any = look(folder.string());
    if (!any) return tl::unexpected(any.error());
    if (!*any) rest += folder.string() + '/';
  }
  if (const auto any = look(std::filesystem::path(tensor.file).stem().string()); !any) {
    return tl::unexpected(any.error());
  }
  const TensorName others = parse_tensor_name(rest + "x");
  tensor.at.run = others.run;
  for (const auto& [what, text] : taken) {
    if (what == Place::run) tensor.at.run = text;
    if (what == Place::run) continue;
    const auto value = number(text);
    if (!value)
      return fail(fmt::format("{}: a place of nanscope.toml matches '{}', expected a number", tensor.name, text));
    (what == Place::step ? tensor.at.step : what == Place::rank ? tensor.at.rank : tensor.at.request) = value;
  }
  return {};
}

Status Overrides::name(DumpTensor& tensor) {
  for (NameRule& rule : names_) {
    const auto found = rule.pattern.find(tensor.name);
    if (!found) return fail(fmt::format("{}: {}", rule.where, found.error().message));
    if (!*found) continue;
    ++rule.used;
    TensorName& at = tensor.at;
    if (!rule.layer.empty()) {
      const std::string text = filled_in(rule.layer, **found);
      at.layer = number(text);
      if (!at.layer)
        return fail(fmt::format("{}: layer is '{}' of {}, expected a number", rule.where, text, tensor.name));
    }
    const std::string key = rule.role.empty() && rule.op.empty() ? "" : key_of(rule.op, rule.role, rule.port);
    if (!key.empty()) {
      const TensorName known = parse_tensor_name(at.layer ? fmt::format("layers.{}.{}", *at.layer, key) : key);
      at.op = known.op;
      at.role = rule.role.empty() ? known.role : rule.role;
      at.kind = known.kind;
      at.port = known.port;
      at.order = known.order;
      at.form = known.form;
      at.known = true;
    } else if (!rule.role.empty() && !state_role(at, rule.role)) {
      at.role = rule.role;
    }
    if (rule.port) at.port = *rule.port;
    return {};  // the first that matches decides
  }
  return {};
}

Status Overrides::format(DumpTensor& tensor) {
  for (FormatRule& rule : formats_) {
    const auto found = rule.pattern.find(tensor.name);
    if (!found) return fail(fmt::format("{}: {}", rule.where, found.error().message));
    if (!*found) continue;
    ++rule.used;
    const Dtype& wanted = dtype_of(rule.format);
    if (wanted.bits != tensor.dtype->bits) {
      return fail(fmt::format("{}: {} is stored as {}, of {} bits, expected {} for {}", rule.where, tensor.name,
                              tensor.dtype->name, tensor.dtype->bits, wanted.bits, wanted.name));
    }
    tensor.format = rule.format;
    // Bytes that hold codes stay bytes, as producers without such a dtype store them.
    if (tensor.dtype->kind != DtypeKind::integer || tensor.dtype->bits != 8) tensor.dtype = &wanted;
    return {};
  }
  return {};
}

Status Overrides::scale(std::vector<DumpTensor>& tensors,
                        const std::function<std::size_t(std::shared_ptr<Container>)>& add) {
  if (scales_.empty()) return {};
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < tensors.size(); ++i) by_name.emplace(tensors[i].name, i);
  std::vector<bool> taken(tensors.size(), false);
  const std::size_t given = tensors.size();
  for (std::size_t i = 0; i < given; ++i) {
    for (ScaleRule& rule : scales_) {
      const auto found = rule.pattern.find(tensors[i].name);
      if (!found) return fail(fmt::format("{}: {}", rule.where, found.error().message));
      if (!*found) continue;
      ++rule.used;
      DumpTensor scale;
      if (rule.tensor.empty()) {
        const auto number = std::make_shared<StatedNumber>(rule.value);
        scale = tensors[i];
        scale.name += ".scale";
        scale.file = kOverridesFile;
        scale.dtype = number->tensors().front().dtype;
        scale.format = Format::f32;
        scale.shape = {};
        scale.source = add(number);
        make_scale(scale, tensors[i]);
        tensors.push_back(std::move(scale));
        break;
      }
      const std::string wanted = filled_in(rule.tensor, **found);
      const auto which = by_name.find(wanted);
      if (which == by_name.end()) {
        return fail(fmt::format("{}: the scale of {} is '{}', which the dump does not hold", rule.where,
                                tensors[i].name, wanted));
      }
      // One scale of several tensors stands once for each.
      const bool again = taken[which->second];
      taken[which->second] = true;
      scale = tensors[which->second];
      make_scale(scale, tensors[i]);
      if (again) {
        tensors.push_back(std::move(scale));
      } else {
        tensors[which->second] = std::move(scale);
      }
      break;
    }
  }
  return {};
}

Status Overrides::apply(std::vector<DumpTensor>& tensors,
                        const std::function<std::size_t(std::shared_ptr<Container>)>& add) {
  for (DumpTensor& tensor : tensors) {
    for (const auto step : {&Overrides::place, &Overrides::name, &Overrides::format}) {
      if (Status done = (this->*step)(tensor); !done) return done;
    }
  }
  return scale(tensors, add);
}

Status Overrides::sort(std::vector<DumpTensor>& tensors) const {
  if (order_ == Order::recorded) return {};
  std::map<std::string, std::size_t> passes;
  struct Key {
    std::size_t pass;
    std::size_t pattern;
    std::size_t before;
  };
  std::vector<Key> keys;
  for (const DumpTensor& tensor : tensors) {
    Key key{passes.emplace(tensor.at.pass(), passes.size()).first->second, order_patterns_.size(), keys.size()};
    for (std::size_t i = 0; i < order_patterns_.size() && key.pattern == order_patterns_.size(); ++i) {
      const auto found = order_patterns_[i].find(tensor.name);
      if (!found) return tl::unexpected(found.error());
      if (*found) key.pattern = i;
    }
    keys.push_back(key);
  }
  std::vector<Key> sorted = keys;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Key& a, const Key& b) {
    if (a.pass != b.pass) return a.pass < b.pass;
    if (a.pattern != b.pattern) return a.pattern < b.pattern;
    return order_ == Order::natural && natural_less(tensors[a.before].name, tensors[b.before].name);
  });
  std::vector<DumpTensor> moved;
  moved.reserve(tensors.size());
  for (const Key& key : sorted) moved.push_back(std::move(tensors[key.before]));
  tensors = std::move(moved);
  return {};
}

std::vector<std::string> Overrides::unused() const {
  std::vector<std::string> lines;
  const auto add = [&](const auto& rules) {
    for (const Rule& rule : rules) {
      if (rule.used == 0)
        lines.push_back(fmt::format("{}: the pattern {} meets no tensor", rule.where, rule.pattern.text()));
    }
  };
  add(names_);
  add(formats_);
  add(scales_);
  add(places_);
  return lines;
}

}  // namespace nanscope
