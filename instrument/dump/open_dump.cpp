#include "instrument/dump/open_dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "core/dump/name_words.h"
#include "instrument/dump/containers/archive.h"
#include "instrument/dump/scan.h"
#include "instrument/dump/what_it_is.h"

namespace nanscope {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kHead = 16;

std::string without_extension(std::string name, const ContainerKind& kind) {
  for (const std::string_view extension : kind.extensions) {
    if (extension.starts_with('.') && name.ends_with(extension)) return name.substr(0, name.size() - extension.size());
  }
  return name;
}

/// Whether a kind of file has its tensors in the order in which they were put into it. safetensors sorts them.
bool keeps_order(std::string_view kind) { return kind == "pt" || kind == "npz" || kind == "raw"; }

/// Codes and scales that a producer without such a dtype stored as bytes: in the flavour that their name says, else in
/// the usual one; what fits them is looked at when they are diagnosed.
std::optional<Format> format_of(const DumpTensor& tensor) {
  if (tensor.dtype->format && *tensor.dtype->format != Format::i32) return tensor.dtype->format;
  // A byte for a scale is a power of two: E8M0, OCP MX 1.0 section 5.4.1.
  if (tensor.at.form == Form::scale && tensor.dtype->name == "u8") return Format::e8m0;
  const std::string& role = tensor.at.role;
  const bool cache = tensor.at.form == Form::value && (role == "k_cache" || role == "v_cache" || role == "kv_cache");
  if ((!cache && tensor.at.form != Form::codes) || tensor.dtype->name != "u8") return std::nullopt;
  for (const Format format : {Format::e5m2fnuz, Format::e4m3fnuz, Format::e5m2, Format::e4m3}) {
    if (tensor.name.find(name(format)) != std::string::npos) return format;
  }
  return Format::e4m3;
}

}  // namespace

void OpenDump::add_tensor(const std::shared_ptr<Container>& container, std::size_t index, const DumpFile& file,
                          const TensorName& stem, Naming naming, StoredAt stored) {
  const ContainedTensor& contained = container->tensors()[index];
  DumpTensor tensor;
  tensor.at = naming.at ? std::move(*naming.at) : parse_tensor_name(naming.name);
  tensor.name = std::move(naming.name);
  if (!tensor.at.step) tensor.at.step = stem.step;
  if (!tensor.at.rank) tensor.at.rank = stem.rank;
  if (!tensor.at.request) tensor.at.request = stem.request;
  tensor.dtype = contained.dtype;
  tensor.shape = contained.shape;
  tensor.format = format_of(tensor);
  tensor.guessed =
      tensor.format && !tensor.dtype->format && tensor.name.find(name(*tensor.format)) == std::string::npos;
  tensor.file = file.shown;
  tensor.source = sources_.size();
  tensor.health = empty_health();
  tensor.decoded = contained.decoded;
  tensor.product = contained.product;
  for (const std::string& note : {contained.note, naming.note}) {
    if (!note.empty()) dump_.notes.push_back({tensor.name, note});
  }
  sources_.push_back({container, index, naming.order, naming.stated, stored});
  dump_.tensors.push_back(std::move(tensor));
}

void OpenDump::add_tensors(const std::shared_ptr<Container>& container, const DumpFile& file, Producer* producer,
                           StoredAt stored) {
  // A file a step is no folder, and no part of a tensor's name, but says when.
  TensorName stem = parse_tensor_name(file.stem() + "/x");
  if (!stem.step) stem.step = step_in(file.stem());
  constexpr std::int64_t kSecond = 1'000'000'000;
  stored.modified = file.state.modified_s * kSecond + file.state.modified_ns;
  stored.file = add_file(file, *container);
  std::vector<std::string> keys;
  if (stored.plain && stored.keeps_order) {
    for (const ContainedTensor& one : container->tensors()) keys.push_back(one.key);
  }
  const bool listed = are_listed_passes(keys);
  for (std::size_t i = 0; i < container->tensors().size(); ++i) {
    Naming naming;
    if (producer != nullptr) {
      naming = producer->name_of(file, *container, i);
    } else {
      ContainedTensor named = container->tensors()[i];
      named.key = key_of_listed_pass(named.key, listed);
      naming.name = plain_name(file, named);
    }
    stored.place = i;
    add_tensor(container, i, file, stem, std::move(naming), stored);
  }
  const std::string folder = file.folder();
  for (const SkippedTensor& skipped : container->skipped()) {
    dump_.notes.push_back({folder.empty() ? skipped.key : folder + '/' + skipped.key, skipped.reason});
  }
}

/// Each member as the file that it would be.
Status OpenDump::open_members(const DumpFile& file) {
  Result<OpenArchive> archive = open_archive(file.path);
  if (!archive) return tl::unexpected(archive.error());
  const std::string stem = file.shown.substr(0, file.shown.rfind('.'));
  for (ArchiveMember& member : archive->members) {
    const std::string shown = one_file_ ? member.name : stem + '/' + member.name;
    const std::string_view kind = std::string_view(member.name).substr(member.name.rfind('.') + 1);
    add_tensors(std::shared_ptr<Container>(std::move(member.container)),
                {.path = file.path, .shown = shown, .state = file.state}, nullptr,
                {.plain = true, .keeps_order = keeps_order(kind)});
  }
  for (const SkippedTensor& member : archive->unread) unread_.push_back({file.shown, member.reason});
  if (std::find(writers_.begin(), writers_.end(), "archive") == writers_.end()) writers_.emplace_back("archive");
  return {};
}

Result<bool> OpenDump::open_file(const DumpFile& file, Producer* producer) {
  DumpFile shown = file;
  std::unique_ptr<Container> container;
  if (producer != nullptr) {
    Result<std::unique_ptr<Container>> own = producer->open(file);
    if (!own) return tl::unexpected(own.error());
    container = std::move(*own);
  }
  std::string_view kind_name;
  if (!container) {
    const auto head = read_beginning(file.path, kHead);
    if (!head) return tl::unexpected(head.error());
    if (producer == nullptr && is_archive_of_files(file.path, *head)) {
      if (Status opened = open_members(file); !opened) return tl::unexpected(opened.error());
      return true;
    }
    const ContainerKind* kind = container_kind_of(file.path, *head);
    if (kind == nullptr) return false;
    Result<std::unique_ptr<Container>> opened = kind->open(file.path);
    if (!opened) return tl::unexpected(opened.error());
    container = std::move(*opened);
    if (Status inside = check_parts(*container); !inside) return tl::unexpected(inside.error());
    kind_name = kind->name;
    if (kind->name == "safetensors-index") shown.shown = without_extension(shown.shown, *kind);
  }
  const std::string_view writer = producer != nullptr ? producer->name() : kind_name;
  if (std::find(writers_.begin(), writers_.end(), writer) == writers_.end()) writers_.emplace_back(writer);
  add_tensors(std::shared_ptr<Container>(std::move(container)), shown, producer,
              {.plain = producer == nullptr, .keeps_order = keeps_order(kind_name)});
  return true;
}

/// A directory of other files may name one that is a link out of the dump.
Status OpenDump::check_parts(const Container& container) const {
  for (const fs::path& part : container.parts()) {
    if (follow_links_ || lies_below(part, root_)) continue;
    return fail(part.string() + ": a link to a file out of the dump, which is not read without --follow-links");
  }
  return {};
}

Status OpenDump::find_files(Result<DumpListing> listing, bool follow_links) {
  if (!listing) return tl::unexpected(listing.error());
  root_ = listing->root;
  follow_links_ = follow_links;
  for (RunNote& note : listing->left_out) dump_.notes.push_back(note);
  producers_ = make_producers();
  const ProducerOptions options{overrides_ ? overrides_->vocabulary() : std::nullopt};
  for (const auto& producer : producers_) producer->look(*listing, options, findings_);
  // Directories of other files first: what they list is read through them.
  std::stable_partition(listing->files.begin(), listing->files.end(), [](const DumpFile& file) {
    return file.path.extension() == ".json" || file.path.extension() == ".jsonl";
  });
  partial_ = listing->partial;
  one_file_ = listing->files.size() == 1 && !partial_;
  std::set<fs::path> parts;
  std::vector<std::string> others;
  for (const DumpFile& file : listing->files) {
    if (parts.contains(file.path)) continue;
    const auto claims = [&](const std::unique_ptr<Producer>& one) { return one->claims(file); };
    const auto claimed = std::find_if(producers_.begin(), producers_.end(), claims);
    const std::size_t before = sources_.size();
    const Result<bool> opened = open_file(file, claimed != producers_.end() ? claimed->get() : nullptr);
    if (!opened) {
      const auto text = what_text_it_is(file.path);
      unread_.push_back({file.shown, text ? file.path.string() + ": is " + *text : opened.error().message});
    }
    if (opened && !*opened) leave_out(file, others);
    if (sources_.size() == before) continue;
    const auto own = sources_.back().container->parts();
    parts.insert(own.begin(), own.end());
  }
  // Before what was wrong with them is believed.
  for (const DumpFile& file : listing->files) {
    if (Status same = check_unchanged(file.path, file.state); !same) return same;
  }
  if (!others.empty()) {
    dump_.notes.push_back({others.front(), others.size() == 1 ? "is of no kind that nanscope reads"
                                                              : fmt::format("and {} more files are of no kind that "
                                                                            "nanscope reads",
                                                                            others.size() - 1)});
  }
  return {};
}

/// A file of no kind that holds tensors.
void OpenDump::leave_out(const DumpFile& file, std::vector<std::string>& others) {
  const std::size_t few = 16;  // of many alike, one says it
  const auto what = no_tensors_.size() < few ? what_it_is(file.path) : std::nullopt;
  if (what) no_tensors_.push_back({file.path.string(), *what});
  if (is_text_file(file)) return;
  if (what && *what != kSomeText) {
    dump_.notes.push_back({file.shown, "is " + *what});
  } else {
    others.push_back(file.shown);
  }
}

void OpenDump::finish_producers() {
  for (const auto& producer : producers_) producer->finish(findings_);
  unread_.insert(unread_.end(), findings_.unread.begin(), findings_.unread.end());
  dump_.notes.insert(dump_.notes.end(), findings_.notes.begin(), findings_.notes.end());
  if (findings_.expected > 0) dump_.expected = findings_.expected;
  const auto hooked = std::count_if(dump_.tensors.begin(), dump_.tensors.end(), [](const DumpTensor& tensor) {
    return tensor.name.ends_with(".output") || tensor.name.find(".output.") != std::string::npos;
  });
  const bool plain = writers_.size() == 1 && std::any_of(container_kinds().begin(), container_kinds().end(),
                                                         [&](const auto& kind) { return kind.name == writers_[0]; });
  dump_.producer = plain && hooked > 0 ? "PyTorch forward hooks" : fmt::format("{}", fmt::join(writers_, " + "));
}

void OpenDump::take_files() {
  std::vector<RunNote> notes =
      tell_files_apart(dump_.tensors, [this](const DumpTensor& tensor) { return stored_at(tensor); });
  dump_.notes.insert(dump_.notes.end(), notes.begin(), notes.end());
}

void OpenDump::tell_same_names_apart() {
  std::map<std::string, int> copies;
  for (DumpTensor& tensor : dump_.tensors) {
    const int copy = ++copies[tensor.name];
    if (copy > 1 && sources_[tensor.source].order) tensor.name += fmt::format("#{}", copy);
  }
}

Status OpenDump::override_names() {
  if (!overrides_) return {};
  const auto add = [this](std::shared_ptr<Container> container) {
    sources_.push_back({std::move(container), 0, std::nullopt, std::nullopt});
    return sources_.size() - 1;
  };
  if (Status applied = overrides_->apply(dump_.tensors, add); !applied) return applied;
  for (std::string& line : overrides_->unused()) dump_.notes.push_back({"", std::move(line)});
  return {};
}

Status OpenDump::sort() {
  sort_by_execution(dump_.tensors);
  if (overrides_ && overrides_->ignores_recorded_order()) return overrides_->sort(dump_.tensors);
  std::vector<RunNote> by_files =
      order_by_files(dump_.tensors, [this](const DumpTensor& tensor) { return stored_at(tensor); });
  dump_.notes.insert(dump_.notes.end(), by_files.begin(), by_files.end());
  // What was recorded holds within a pass; passes follow each other by their folders and numbers.
  std::map<std::string, std::vector<std::size_t>> passes;
  for (std::size_t i = 0; i < dump_.tensors.size(); ++i) {
    if (sources_[dump_.tensors[i].source].order) passes[dump_.tensors[i].at.pass()].push_back(i);
  }
  for (const auto& [pass, places] : passes) {
    std::vector<DumpTensor> members;
    for (const std::size_t place : places) members.push_back(std::move(dump_.tensors[place]));
    std::stable_sort(members.begin(), members.end(), [this](const DumpTensor& a, const DumpTensor& b) {
      return *sources_[a.source].order < *sources_[b.source].order;
    });
    for (std::size_t i = 0; i < places.size(); ++i) dump_.tensors[places[i]] = std::move(members[i]);
  }
  return {};
}

Status OpenDump::refuse_when_empty() const {
  if (!dump_.tensors.empty() || partial_) return {};
  if (unread_.size() == 1) return fail(unread_.front().text);
  if (!unread_.empty()) return fail(fmt::format("{} (and {} more like it)", unread_.front().text, unread_.size() - 1));
  // What says most of what it is, before a text of any kind.
  const auto says_more = [](const RunNote& a, const RunNote& b) { return a.text.size() < b.text.size(); };
  const auto known = std::max_element(no_tensors_.begin(), no_tensors_.end(), says_more);
  constexpr std::string_view kExpected = "expected safetensors, .npy, .npz, .pt or raw files with a manifest";
  if (known != no_tensors_.end() && known->text == kSomeText)
    return fail(fmt::format("{}: holds no tensors that nanscope reads: it is a text, {}", known->tensor, kExpected));
  if (known != no_tensors_.end()) return fail(fmt::format("{}: is {}", known->tensor, known->text));
  return fail(fmt::format("{}: holds no tensors that nanscope reads: {}", dump_.target, kExpected));
}

Result<std::unique_ptr<OpenDump>> OpenDump::open(const fs::path& path, const OpenDumpOptions& options) {
  std::unique_ptr<OpenDump> dump(new OpenDump());
  dump->dump_.target = path.string();
  Result<std::optional<Overrides>> overrides = Overrides::find(path, options.follow_links);
  if (!overrides) return tl::unexpected(overrides.error());
  dump->overrides_ = std::move(*overrides);
  auto listing = options.listing ? Result<DumpListing>(*options.listing) : list_dump(path, options.follow_links);
  if (Status found = dump->find_files(std::move(listing), options.follow_links); !found)
    return tl::unexpected(found.error());
  if (!dump->findings_.sparse.empty()) dump->leave_out_weights();
  if (!options.checkpoint.empty()) {
    if (Status some = dump->refuse_when_empty(); !some) return tl::unexpected(some.error());
    if (Status added = dump->add_checkpoint(options.checkpoint, options.merged); !added)
      return tl::unexpected(added.error());
    dump->replace_weights();
  }
  return finished(std::move(dump), options);
}

Result<std::unique_ptr<OpenDump>> OpenDump::of(std::string target, std::vector<NamedTensor> tensors,
                                               const OpenDumpOptions& options) {
  if (tensors.empty()) return fail(target + ": no tensors were given");
  Result<std::unique_ptr<Container>> memory = memory_container(std::move(tensors));
  if (!memory) return fail(target + ": " + memory.error().message);
  std::unique_ptr<OpenDump> dump(new OpenDump());
  dump->dump_.target = std::move(target);
  dump->writers_.emplace_back("memory");
  dump->add_tensors(std::shared_ptr<Container>(std::move(*memory)), {.path = {}, .shown = "tensors", .state = {}},
                    nullptr, {.plain = true, .keeps_order = true});
  return finished(std::move(dump), options);
}

Result<std::unique_ptr<OpenDump>> OpenDump::finished(std::unique_ptr<OpenDump> dump, const OpenDumpOptions& options) {
  dump->finish_producers();
  if (Status some = dump->refuse_when_empty(); !some) return tl::unexpected(some.error());
  dump->take_files();
  if (Status named = dump->override_names(); !named) return tl::unexpected(named.error());
  if (Status sorted = dump->sort(); !sorted) return tl::unexpected(sorted.error());
  dump->tell_same_names_apart();
  if (Status scanned = dump->scan(options); !scanned) return tl::unexpected(scanned.error());
  if (Status some = dump->refuse_when_empty(); !some) return tl::unexpected(some.error());
  const auto known = std::count_if(dump->dump_.tensors.begin(), dump->dump_.tensors.end(),
                                   [](const DumpTensor& t) { return t.at.known; });
  dump->dump_.unknown = dump->dump_.tensors.size() - static_cast<std::size_t>(known);
  for (const RunNote& note : dump->unread_)
    dump->dump_.notes.push_back({note.tensor, std::string(RunNote::kNotRead) + note.text});
  return dump;
}

Status OpenDump::check() const {
  const Container* last = nullptr;
  for (const Source& source : sources_) {
    if (source.container.get() == last) continue;
    last = source.container.get();
    if (Status same = last->check(); !same) return same;
  }
  return {};
}

Result<ElementBytes> OpenDump::bytes(const DumpTensor& tensor) {
  if (tensor.stated) return fail(tensor.name + ": its producer wrote statistics and no elements");
  const Source& source = sources_[tensor.source];
  Result<ElementBytes> read = source.container->bytes(source.tensor);
  if (read) recent_.keep(*read);
  return read;
}

Result<std::vector<Health>> OpenDump::row_health(const DumpTensor& tensor) {
  const Result<ElementBytes> held = bytes(tensor);
  if (!held) return tl::unexpected(held.error());
  return scan_rows(*device_, tensor, held->bytes);
}

}  // namespace nanscope
