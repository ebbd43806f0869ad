#include "instrument/dump/plain_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/dump/name_words.h"
#include "core/dump/natural_order.h"

namespace nanscope {
namespace {

using Numbers = std::vector<std::int64_t>;

std::string folder_of(const std::string& file) { return std::filesystem::path(file).parent_path().generic_string(); }
std::string stem_of(const std::string& file) { return std::filesystem::path(file).stem().string(); }

/// "batch3_of_8" as "batch#_of_#" and 3, 8.
std::pair<std::string, Numbers> without_numbers(std::string_view stem) {
  std::pair<std::string, Numbers> apart;
  for (std::size_t i = 0; i < stem.size();) {
    std::size_t end = i;
    while (end < stem.size() && is_digit(stem[end])) ++end;
    const auto value = number(stem.substr(i, end - i));
    if (end > i && value) {
      apart.first += '#';
      apart.second.push_back(*value);
      i = end;
    } else {
      apart.first += stem[i++];
    }
  }
  return apart;
}

/// Files of one folder with tensors of the same names.
struct Alike {
  std::vector<std::string> files;  ///< in natural order
};

std::vector<Alike> alike_files(const std::vector<DumpTensor>& tensors, const WhereStored& stored) {
  std::map<std::string, std::map<std::string, std::set<std::string>>> holders;  // by folder and name
  for (const DumpTensor& one : tensors) {
    if (stored(one).plain) holders[folder_of(one.file)][one.name + '|' + one.at.pass()].insert(one.file);
  }
  std::vector<Alike> found;
  for (const auto& [folder, names] : holders) {
    std::set<std::string> files;
    for (const auto& [name, holding] : names) {
      if (holding.size() > 1) files.insert(holding.begin(), holding.end());
    }
    if (files.empty()) continue;
    Alike alike{{files.begin(), files.end()}};
    std::sort(alike.files.begin(), alike.files.end(),
              [](const std::string& a, const std::string& b) { return natural_less(a, b); });
    found.push_back(std::move(alike));
  }
  return found;
}

/// The steps of files whose names differ in numbers alone; nothing where they differ in words.
std::map<std::string, std::int64_t> steps_of(const Alike& alike) {
  std::vector<Numbers> numbers;
  std::set<std::string> words;
  for (const std::string& file : alike.files) {
    auto [text, own] = without_numbers(stem_of(file));
    words.insert(std::move(text));
    numbers.push_back(std::move(own));
  }
  std::map<std::string, std::int64_t> steps;
  if (words.size() > 1 || numbers.front().empty()) return steps;
  std::vector<std::size_t> differing;
  for (std::size_t place = 0; place < numbers.front().size(); ++place) {
    const bool same = std::all_of(numbers.begin(), numbers.end(),
                                  [&](const Numbers& own) { return own[place] == numbers.front()[place]; });
    if (!same) differing.push_back(place);
  }
  // Of several numbers, such as those of a date, it is not known which counts: the files follow each other.
  for (std::size_t i = 0; i < alike.files.size(); ++i)
    steps[alike.files[i]] = differing.size() == 1 ? numbers[i][differing.front()] : static_cast<std::int64_t>(i);
  return steps;
}

/// captum and others write a folder a module and a file a batch into it: "model.layers.2.mlp/0.pt".
std::vector<RunNote> take_module_folders(std::vector<DumpTensor>& tensors, const WhereStored& stored) {
  std::map<std::string, std::vector<DumpTensor*>> groups;  // by the folder above the module's
  std::set<std::string> of_layers;
  for (DumpTensor& one : tensors) {
    const std::string folder = folder_of(one.file);
    const std::string stem = stem_of(one.file);
    if (!stored(one).plain || folder.empty() || !number(stem) || !one.name.ends_with('/' + stem)) continue;
    const std::string above = folder_of(folder);
    const std::string module = folder.substr(above.empty() ? 0 : above.size() + 1);
    const TensorName at = parse_tensor_name(module);
    if (!at.known) continue;
    groups[above].push_back(&one);
    if (at.layer && module.find('.') != std::string::npos) of_layers.insert(above);
  }
  std::vector<RunNote> notes;
  for (const auto& [above, members] : groups) {
    if (!of_layers.contains(above)) continue;
    for (DumpTensor* one : members) {
      const std::string folder = folder_of(one->file);
      const std::string module = folder.substr(above.empty() ? 0 : above.size() + 1);
      one->name = fmt::format("{}{}{}/{}", above, above.empty() ? "" : "/", stem_of(one->file), module);
      one->at =
          parse_tensor_name(fmt::format("{}{}step_{}/{}", above, above.empty() ? "" : "/", stem_of(one->file), module));
    }
    notes.push_back({members.front()->name, "its folder was taken for its module, and its file's number for its step"});
  }
  return notes;
}

/// A file a module, "model.layers.0.resid_dropout.pt" with the keys "input" and "output": where the name of another
/// file of its folder is a layer's module, whose sides are keys alike, so is that of a file whose module is not known.
void take_module_files(std::vector<DumpTensor>& tensors, const WhereStored& stored) {
  std::map<std::string, std::vector<DumpTensor*>> sides;  // by folder
  std::set<std::string> of_layers;
  std::set<std::string> of_others;  // files with other keys
  for (DumpTensor& one : tensors) {
    if (!stored(one).plain) continue;
    const std::string folder = folder_of(one.file);
    const std::string below = folder.empty() ? "" : folder + '/';
    const std::string key = one.name.starts_with(below) ? one.name.substr(below.size()) : one.name;
    const std::string stem = stem_of(one.file);
    if (is_side(key)) {
      sides[folder].push_back(&one);
    } else if (one.at.layer && key.starts_with(stem + '.') && is_side(key.substr(stem.size() + 1))) {
      of_layers.insert(folder);
    } else {
      of_others.insert(one.file);
    }
  }
  for (const auto& [folder, members] : sides) {
    if (!of_layers.contains(folder)) continue;
    for (DumpTensor* one : members) {
      const std::string stem = stem_of(one->file);
      if (of_others.contains(one->file) || parse_tensor_name(stem + "/x").step || step_in(stem)) continue;
      const TensorName before = one->at;
      one->name.insert(folder.empty() ? 0 : folder.size() + 1, stem + '.');
      one->at = parse_tensor_name(one->name);
      if (!one->at.step) one->at.step = before.step;
      if (!one->at.rank) one->at.rank = before.rank;
      if (!one->at.request) one->at.request = before.request;
    }
  }
}

/// Before, in and after the layers, as far as a name says it.
std::tuple<int, std::int64_t, int> place_of(const TensorName& at) {
  if (at.layer) return {1, *at.layer, at.order};
  return {at.order < 0 ? 0 : 2, 0, at.order};
}

/// What ran, in the order of its names: the sides of modules that they gave. What runs behind logits has words for
/// names that any op may have, "softmax_1".
bool is_anchor(const DumpTensor& one) {
  const bool of_sampler = !one.at.layer && one.at.order > 0 && one.at.kind != OpKind::gemm &&
                          one.at.kind != OpKind::layer_norm && one.at.kind != OpKind::block;
  return one.at.known && one.at.port == Port::output && one.at.tower.empty() && !is_parameter(one) && !of_sampler;
}

class Orderer {
 public:
  Orderer(std::vector<DumpTensor>& tensors, const WhereStored& stored) : tensors_(tensors), stored_(stored) {}

  std::vector<RunNote> run() {
    std::map<std::string, std::vector<std::size_t>> passes;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (stored_(tensors_[i]).plain) passes[tensors_[i].at.pass()].push_back(i);
    }
    for (const auto& [pass, places] : passes) order(places);
    return std::move(notes_);
  }

 private:
  bool unknown(std::size_t i) const { return !tensors_[i].at.known && !is_parameter(tensors_[i]); }

  void order(const std::vector<std::size_t>& places) {
    if (std::none_of(places.begin(), places.end(), [this](std::size_t i) { return unknown(i); })) return;
    const bool no_name = std::none_of(places.begin(), places.end(),
                                      [this](std::size_t i) { return tensors_[i].at.known && is_anchor(tensors_[i]); });
    std::map<std::string, std::vector<std::size_t>> files;
    for (const std::size_t i : places) files[tensors_[i].file].push_back(i);
    std::vector<std::size_t> sorted = places;
    if (no_name && files.size() == places.size()) {
      by_time(sorted);
    } else {
      for (auto& [file, members] : files) by_file(members, sorted, no_name && files.size() == 1);
    }
    if (sorted == places) return;
    std::vector<DumpTensor> moved;
    moved.reserve(sorted.size());
    for (const std::size_t i : sorted) moved.push_back(std::move(tensors_[i]));
    for (std::size_t i = 0; i < places.size(); ++i) tensors_[places[i]] = std::move(moved[i]);
  }

  /// Names that differ in one number are in its order already.
  void by_time(std::vector<std::size_t>& sorted) {
    std::set<std::string> words;
    std::set<std::int64_t> times;
    for (const std::size_t i : sorted) {
      words.insert(without_numbers(stem_of(tensors_[i].file)).first);
      times.insert(stored_(tensors_[i]).modified);
    }
    if (words.size() == 1 || times.size() != sorted.size() || sorted.size() < 2) return;
    std::stable_sort(sorted.begin(), sorted.end(), [this](std::size_t a, std::size_t b) {
      return stored_(tensors_[a]).modified < stored_(tensors_[b]).modified;
    });
    notes_.push_back({tensors_[sorted.front()].name,
                      fmt::format("no name says an order: {} files are taken in the order in which they were written",
                                  sorted.size())});
  }

  /// Behind what precedes them in their file, where what has a place by its name is in order there.
  void by_file(std::vector<std::size_t>& members, std::vector<std::size_t>& sorted, bool whole) const {
    if (!stored_(tensors_[members.front()]).keeps_order) return;
    std::sort(members.begin(), members.end(),
              [this](std::size_t a, std::size_t b) { return stored_(tensors_[a]).place < stored_(tensors_[b]).place; });
    if (whole) {
      sorted = members;
      return;
    }
    std::vector<std::size_t> anchors;
    std::copy_if(members.begin(), members.end(), std::back_inserter(anchors),
                 [this](std::size_t i) { return is_anchor(tensors_[i]); });
    // Logits are made last, wherever they stand: sessions of ONNX give the model's own outputs first.
    const auto is_last = [this](std::size_t i) { return !tensors_[i].at.layer && tensors_[i].at.order > 0; };
    const auto ran = std::find_if_not(anchors.begin(), anchors.end(), is_last);
    const bool given_first = anchors.begin() != ran && anchors.front() == members.front();
    if (given_first) anchors.erase(anchors.begin(), ran);
    const bool in_order = std::is_sorted(anchors.begin(), anchors.end(), [this](std::size_t a, std::size_t b) {
      return place_of(tensors_[a].at) < place_of(tensors_[b].at);
    });
    if (!in_order || (anchors.empty() && !given_first)) return;
    const std::set<std::size_t> anchored(anchors.begin(), anchors.end());
    std::set<std::size_t> moved;
    std::copy_if(members.begin(), members.end(), std::inserter(moved, moved.end()),
                 [this](std::size_t i) { return unknown(i); });
    std::map<std::size_t, std::vector<std::size_t>> behind;  // an anchor
    std::vector<std::size_t> first;
    std::vector<std::size_t>* into = &first;
    for (const std::size_t i : members) {
      if (anchored.contains(i)) into = &behind[i];
      if (moved.contains(i)) into->push_back(i);
    }
    std::vector<std::size_t> made;
    bool begun = false;
    for (const std::size_t i : sorted) {
      if (moved.contains(i)) continue;
      if (!begun && (anchors.empty() ? is_last(i) : i == anchors.front())) {
        made.insert(made.end(), first.begin(), first.end());
        begun = true;
      }
      made.push_back(i);
      if (const auto own = behind.find(i); own != behind.end()) {
        made.insert(made.end(), own->second.begin(), own->second.end());
      }
    }
    sorted = std::move(made);
  }

  std::vector<DumpTensor>& tensors_;
  const WhereStored& stored_;
  std::vector<RunNote> notes_;
};

/// The number before the first dot, and the rest.
std::pair<std::optional<std::int64_t>, std::string_view> item_of(std::string_view key) {
  const std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) return {std::nullopt, key};
  return {number(key.substr(0, dot)), key.substr(dot + 1)};
}

}  // namespace

bool is_side(std::string_view key) {
  constexpr std::array<std::string_view, 8> kSides = {"input",   "inputs", "in",     "output",
                                                      "outputs", "out",    "weight", "bias"};
  const std::string_view word = key.substr(0, key.find_first_of("._0123456789"));
  return std::find(kSides.begin(), kSides.end(), word) != kSides.end();
}

std::vector<RunNote> tell_files_apart(std::vector<DumpTensor>& tensors, const WhereStored& stored) {
  std::vector<RunNote> notes = take_module_folders(tensors, stored);
  take_module_files(tensors, stored);
  std::map<std::string, std::optional<std::int64_t>> steps;  // of files; nothing of one that is a run of its own
  for (const Alike& alike : alike_files(tensors, stored)) {
    const std::map<std::string, std::int64_t> numbered = steps_of(alike);
    for (const std::string& file : alike.files) {
      const auto step = numbered.find(file);
      steps[file] = step != numbered.end() ? std::optional(step->second) : std::nullopt;
    }
    notes.push_back(
        {alike.files.front(),
         fmt::format("and {} more files hold tensors of the same names: each is taken for {}", alike.files.size() - 1,
                     numbered.empty() ? "a run of its own" : "a step, in the order of their numbers")});
  }
  for (DumpTensor& one : tensors) {
    const auto step = steps.find(one.file);
    if (step == steps.end() || !stored(one).plain) continue;
    const std::string stem = stem_of(one.file);
    if (step->second) {
      one.at.step = *step->second;
    } else {
      one.at.run += (one.at.run.empty() ? "" : "/") + stem;
    }
    const std::string folder = folder_of(one.file);
    const std::size_t begin = !folder.empty() && one.name.starts_with(folder + '/') ? folder.size() + 1 : 0;
    one.name.insert(begin, stem + '/');
  }
  return notes;
}

std::vector<RunNote> order_by_files(std::vector<DumpTensor>& tensors, const WhereStored& stored) {
  return Orderer(tensors, stored).run();
}

bool are_listed_passes(const std::vector<std::string>& keys) {
  std::map<std::int64_t, std::set<std::string_view>> items;
  bool layers = false;  // modules in a list, nn.Sequential's, have none below them
  for (const std::string& key : keys) {
    const auto [item, rest] = item_of(key);
    if (!item) return false;
    items[*item].insert(rest);
    layers = layers || parse_tensor_name(rest).layer.has_value();
  }
  if (!layers || items.size() < 2) return false;
  const std::set<std::string_view>& first = items.begin()->second;
  return std::all_of(items.begin(), items.end(), [&](const auto& item) {
    return std::any_of(item.second.begin(), item.second.end(),
                       [&](std::string_view key) { return first.contains(key); });
  });
}

std::string key_of_listed_pass(const std::string& key, bool listed) {
  const auto [item, rest] = item_of(key);
  return listed && item ? fmt::format("step_{}/{}", *item, rest) : key;
}

}  // namespace nanscope
