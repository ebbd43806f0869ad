#include <algorithm>
#include <bit>
#include <functional>
#include <string>

#include "core/dump/pass_builder.h"

namespace nanscope {
namespace {

/// As a key, which NaN is not: files may state one. -0 is 0.
std::uint32_t plain(float value) { return std::bit_cast<std::uint32_t>(value + 0.0F); }

}  // namespace

/// Once all members of the pass are there.
void PassBuilder::index_members() {
  shortcuts_.clear();
  loose_outputs_.clear();
  norms_other_.clear();
  for (const auto& [scope, members] : members_) {
    Shortcuts& into = shortcuts_[scope];
    for (const auto& [key, index] : members) {
      const DumpTensor& one = tensor(index);
      into.forms.insert({{key.op, key.form}, index});
      if (is_parameter(one)) into.parameters.insert({{key.op, key.form, one.at.role}, index});
      if (key.port == Port::input) into.inputs.insert({one.at.module, {key.index, index}});
    }
  }
}

/// What an input of a module holds that another module of the scope made of something else, and has no place yet: names
/// in alphabetical order may put the one that reads before the one that makes.
std::optional<TensorId> PassBuilder::put_out_elsewhere(Index index) {
  auto& outputs = loose_outputs_[scope_];
  if (outputs.empty()) {
    for (const auto& [key, member] : members_.find(scope_)->second) {
      if (key.port == Port::output && key.form == Form::value)
        outputs.emplace(plain(tensor(member).health.absmax), member);
    }
  }
  const DumpTensor& own = tensor(index);
  if (!(own.health.min < own.health.max)) return std::nullopt;
  const auto made = [&](Index other) {
    const auto [first, last] = shortcuts_[scope_].inputs.equal_range(tensor(other).at.module);
    return first != last && std::none_of(first, last, [&](const auto& one) {
             const Index given = one.second.second;
             return tensor(given).shape == own.shape && same_bytes(given, index);
           });
  };
  for (auto [one, end] = outputs.equal_range(plain(own.health.absmax)); one != end; ++one) {
    const Index other = one->second;
    if (placed_.contains(other) || placing_.contains(other) || tensor(other).shape != own.shape) continue;
    if (!same_bytes(other, index) || !made(other)) continue;
    place_leftover(other);
    return emitted_.contains(other) ? std::optional(emitted_[other]) : std::nullopt;
  }
  return std::nullopt;
}

/// What was added to the pass since, and what became known.
void PassBuilder::index_numbers() {
  const std::vector<Tensor>& all = run_.contents_.rbegin()->second.tensors;
  const auto add = [&](std::size_t place) {
    const Tensor& one = all[place];
    // Zeros, and what is constant, tell nothing.
    if (!one.known || one.axis == Axis::none || one.count() < 8 || one.health.count == 0 ||
        one.health.min == one.health.max) {
      return;
    }
    const Numbers::Shape shape{one.tokens, one.channels, one.format};
    const Health& health = one.health;
    numbers_.by_shape[shape].push_back(place);
    numbers_.by_numbers[{shape, plain(health.absmax), plain(health.min), plain(health.max), health.nan}]
        .places.push_back(place);
  };
  const auto before = all.begin() + static_cast<std::ptrdiff_t>(numbers_.seen);
  for (const TensorId id : numbers_.touched) {
    const auto found =
        std::lower_bound(all.begin(), before, id, [](const Tensor& one, TensorId wanted) { return one.id < wanted; });
    if (found != before && found->id == id) add(static_cast<std::size_t>(found - all.begin()));
  }
  numbers_.touched.clear();
  for (; numbers_.seen < all.size(); ++numbers_.seen) add(numbers_.seen);
}

std::optional<std::size_t> PassBuilder::hash_of(const Described& one) {
  if (one.tensor.stated) return std::nullopt;
  const auto values = first_rows(one, rows_compared(one.tensor));
  if (!values) return std::nullopt;
  std::string key;
  for (const float value : *values) {
    const std::uint32_t bits = value != value ? ~0U : plain(value);
    key.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  }
  return std::hash<std::string>()(key);
}

/// Of those that agree with a tensor in format and numbers, the ones that may hold the same.
std::vector<std::size_t> PassBuilder::alike(Numbers::Alike& all, const Described& wanted) {
  constexpr std::size_t kFew = 8;
  if (all.places.size() <= kFew) return all.places;
  const std::vector<Tensor>& content = run_.contents_.rbegin()->second.tensors;
  for (; all.looked_at < all.places.size(); ++all.looked_at) {
    const std::size_t place = all.places[all.looked_at];
    if (const auto hash = hash_of({content[place], 0})) {
      all.hashed[*hash].insert(place);
    } else {
      all.unread.push_back(place);
    }
  }
  const auto own = hash_of(wanted);
  if (!own) return all.places;
  std::vector<std::size_t> places = all.unread;
  const auto found = all.hashed.find(*own);
  if (found == all.hashed.end()) return places;
  // They are the same, so that the latest will do; a few more, as one may be out of the question.
  auto one = found->second.rbegin();
  for (std::size_t i = 0; i < kFew && one != found->second.rend(); ++i, ++one) places.push_back(*one);
  return places;
}

/// Places in the pass's content, the latest first, of what same_bytes() may find to be the same: of the same format
/// what agrees in its largest and smallest values and its NaN, of others all of that shape.
std::vector<std::size_t> PassBuilder::with_numbers_of(const Described& wanted) {
  index_numbers();
  std::vector<std::size_t> places;
  const Tensor& tensor = wanted.tensor;
  if (tensor.count() < 8) return places;
  const Numbers::Shape shape{tensor.tokens, tensor.channels, tensor.format};
  const Health& health = tensor.health;
  const auto same =
      numbers_.by_numbers.find({shape, plain(health.absmax), plain(health.min), plain(health.max), health.nan});
  if (same != numbers_.by_numbers.end()) places = alike(same->second, wanted);
  auto other = numbers_.by_shape.lower_bound({tensor.tokens, tensor.channels, Format{}});
  for (; other != numbers_.by_shape.end(); ++other) {
    const auto& [tokens, channels, format] = other->first;
    if (tokens != tensor.tokens || channels != tensor.channels) break;
    if (format != tensor.format) places.insert(places.end(), other->second.begin(), other->second.end());
  }
  std::sort(places.rbegin(), places.rend());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

}  // namespace nanscope
