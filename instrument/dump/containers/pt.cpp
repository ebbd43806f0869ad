#include "instrument/dump/containers/pt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "instrument/dump/containers/pickle.h"
#include "instrument/dump/containers/strided.h"
#include "instrument/dump/containers/zip_archive.h"
#include "instrument/files/file.h"

namespace nanscope {
namespace {

constexpr std::string_view kPickle = "data.pkl";
constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxVisits = 1'000'000;  ///< a value may stand in many places: 2^64 of them in 64 levels
constexpr std::size_t kMaxMetadataText = 4096;
constexpr std::size_t kMaxMetadata = 10'000;
constexpr std::uint64_t kMaxRepeat = 4;
constexpr std::uint64_t kListedText = 80;  ///< a name in a set, beside the text itself

enum class Name : std::int64_t {
  ordered_dict,
  size,
  device,
  tensor_type,
  dtype,
  storage,
  untyped_storage,
  rebuild_tensor,
  rebuild_tensor_v2,
  rebuild_tensor_v3,
  rebuild_parameter,
  rebuild_from_type,
};

struct KnownName {
  std::string_view module;
  std::string_view name;
  Name what;
};

constexpr auto kKnownNames = std::to_array<KnownName>({
    {"collections", "OrderedDict", Name::ordered_dict},
    {"torch", "Size", Name::size},
    {"torch", "device", Name::device},
    {"torch", "Tensor", Name::tensor_type},
    {"torch.nn.parameter", "Parameter", Name::tensor_type},
    {"torch.nn.parameter", "Buffer", Name::tensor_type},
    {"torch.storage", "UntypedStorage", Name::untyped_storage},
    {"torch._utils", "_rebuild_tensor", Name::rebuild_tensor},
    {"torch._utils", "_rebuild_tensor_v2", Name::rebuild_tensor_v2},
    {"torch._utils", "_rebuild_tensor_v3", Name::rebuild_tensor_v3},
    {"torch._utils", "_rebuild_parameter", Name::rebuild_parameter},
    {"torch._utils", "_rebuild_parameter_with_state", Name::rebuild_parameter},
    {"torch._tensor", "_rebuild_from_type_v2", Name::rebuild_from_type},
});

struct StorageName {
  std::string_view name;
  std::string_view dtype;
};

constexpr auto kStorages = std::to_array<StorageName>({
    {"DoubleStorage", "f64"},
    {"FloatStorage", "f32"},
    {"HalfStorage", "f16"},
    {"BFloat16Storage", "bf16"},
    {"LongStorage", "i64"},
    {"IntStorage", "i32"},
    {"ShortStorage", "i16"},
    {"CharStorage", "i8"},
    {"ByteStorage", "u8"},
    {"BoolStorage", "bool"},
    {"ComplexFloatStorage", "c64"},
    {"ComplexDoubleStorage", "c128"},
});

const StorageName* find_storage(std::string_view name) {
  const auto found =
      std::find_if(kStorages.begin(), kStorages.end(), [&](const StorageName& s) { return s.name == name; });
  return found == kStorages.end() ? nullptr : &*found;
}

const Dtype* find_torch_dtype(std::string_view name) {
  const auto all = dtypes();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Dtype& d) { return !name.empty() && d.torch == name; });
  return found == all.end() ? nullptr : &*found;
}

std::optional<std::int64_t> known_global(std::string_view module, std::string_view name) {
  for (const KnownName& known : kKnownNames) {
    if (known.module == module && known.name == name) return static_cast<std::int64_t>(known.what);
  }
  if (module == "torch" && find_storage(name) != nullptr) return static_cast<std::int64_t>(Name::storage);
  if (module == "torch" && find_torch_dtype(name) != nullptr) return static_cast<std::int64_t>(Name::dtype);
  return std::nullopt;
}

/// A tensor as the pickle describes it, checked against its storage.
struct StoredTensor {
  const ZipMember* storage = nullptr;
  const Dtype* dtype = nullptr;
  StridedView view;  ///< in PyTorch's elements: a pair of e2m1 is one
};

/// Bytes of one of PyTorch's elements.
std::size_t element_bytes(const Dtype& dtype) { return static_cast<std::size_t>((dtype.bits + 7) / 8); }

/// A view of complex elements as one of their parts.
StridedView pairs_of(StridedView view) {
  for (std::int64_t& stride : view.strides) stride *= 2;
  view.first *= 2;
  view.shape.push_back(2);
  view.strides.push_back(1);
  return view;
}

class Pt final : public Container {
 public:
  explicit Pt(ZipArchive archive) : archive_(std::move(archive)) {}

  const ZipArchive& archive() const { return archive_; }

  void add(std::string key, StoredTensor tensor) {
    const Dtype& dtype = *tensor.dtype;
    std::vector<std::int64_t> shape = tensor.view.shape;
    if (dtype.bits == 4) {
      if (shape.empty()) shape.push_back(1);
      shape.back() *= 2;
    }
    const std::uint64_t offset =
        tensor.view.first * element_bytes(dtype) + (tensor.storage->deflated ? 0 : tensor.storage->data);
    tensors_.push_back({std::move(key), tensor.dtype, std::move(shape), offset, {}});
    stored_.push_back(std::move(tensor));
  }
  void skip(std::string key, std::string reason) { skipped_.push_back({std::move(key), std::move(reason)}); }
  void describe(const std::string& key, std::string text) {
    if (metadata_.size() < kMaxMetadata) {
      metadata_[key] = std::move(text);
    } else if (metadata_.size() == kMaxMetadata) {
      skip(key, "from here on, values that are no tensors are left out");
      metadata_[key] = std::move(text);
    }
  }

  Result<TensorBytes> bytes(std::size_t tensor) const override {
    const StoredTensor& wanted = stored_.at(tensor);
    const auto storage = archive_.content(*wanted.storage);
    if (!storage) return tl::unexpected(storage.error());
    const std::size_t width = element_bytes(*wanted.dtype);
    if (!wanted.view.contiguous()) return gather(storage->bytes, wanted.view, width, archive_.name());
    const ContainedTensor& listed = tensors_[tensor];
    const std::uint64_t size = listed.dtype->bytes(listed.count());
    return TensorBytes{storage->bytes.subspan(size == 0 ? 0 : wanted.view.first * width, size), storage->owner};
  }
  Status check() const override { return archive_.check(); }

 private:
  ZipArchive archive_;
  std::vector<StoredTensor> stored_;
};

/// What is kept of a tensor: two lists that double as they grow, and its key in a set.
constexpr std::uint64_t kListedStorage = 3 * (sizeof(ContainedTensor) + sizeof(StoredTensor)) + kListedText;

/// Walks the pickle's values and gives tensors and metadata to the container.
class PtWalker {
 public:
  PtWalker(const Pickle& pickle, Pt& into, std::string prefix, std::string file, std::uint64_t base, ReadBudget& budget)
      : pickle_(pickle),
        into_(into),
        prefix_(std::move(prefix)),
        file_(std::move(file)),
        base_(base),
        budget_(budget) {}

  Status walk() { return visit(pickle_.root, "", 0); }

 private:
  using Items = std::span<const std::uint32_t>;

  tl::unexpected<Error> refused(const PickleNode& at, const std::string& what) const {
    return refuse(file_, base_ + at.offset, what);
  }
  tl::unexpected<Error> too_much(const PickleNode& at) const {
    return refused(at,
                   "the tensors and values up to here would take more than four times the file in memory, "
                   "expected fewer");
  }
  const PickleNode& node(std::uint32_t index) const { return pickle_[index]; }
  Items items(std::uint32_t index) const { return pickle_.items(node(index)); }
  Items items(const PickleNode& of) const { return pickle_.items(of); }
  std::string_view text(std::uint32_t index) const { return pickle_.text(node(index)); }
  bool is_global(std::uint32_t index, Name name) const {
    return node(index).kind == PickleKind::global && node(index).integer == static_cast<std::int64_t>(name);
  }
  static std::string joined(const std::string& key, std::string_view child) {
    return key.empty() ? std::string(child) : fmt::format("{}.{}", key, child);
  }

  Status visit(std::uint32_t index, const std::string& key, int depth) {
    const PickleNode& value = node(index);
    if (depth > kMaxDepth)
      return refused(value, "values nested deeper than " + std::to_string(kMaxDepth) + ", or in themselves");
    if (++visits_ > kMaxVisits) return refused(value, "more than " + std::to_string(kMaxVisits) + " values");
    switch (value.kind) {
      case PickleKind::dict:
        return visit_pairs(value, 0, key, depth);
      case PickleKind::list:
      case PickleKind::tuple:
        return visit_list(value, key, depth);
      case PickleKind::call:
        return visit_call(value, key, depth);
      case PickleKind::persistent:
        return skip(value, key, "a storage that no tensor describes");
      default:
        return describe(value, key, description(value));
    }
  }

  Status visit_pairs(const PickleNode& value, std::size_t first, const std::string& key, int depth) {
    const Items pairs = items(value);
    std::set<std::string> names;
    for (std::size_t i = first; i + 1 < pairs.size(); i += 2) {
      const PickleNode& name = node(pairs[i]);
      std::string text;
      if (name.kind == PickleKind::text) {
        text = pickle_.text(name);
        if (!is_utf8(text)) return refused(name, "a dictionary's key that is no UTF-8");
      } else if (name.kind == PickleKind::integer) {
        text = std::to_string(name.integer);
      } else {
        return refused(name, "a dictionary's key that is neither text nor number");
      }
      if (!budget_.take(kListedText + text_bytes(text.size()))) return too_much(name);
      if (!names.insert(text).second) return refused(name, "a dictionary with the key " + in_quotes(text) + " twice");
      if (!budget_.fits(key.size() + text.size() + 2)) return too_much(name);
      auto done = visit(pairs[i + 1], joined(key, text), depth + 1);
      if (!done) return done;
    }
    return {};
  }

  Status visit_list(const PickleNode& value, const std::string& key, int depth) {
    const Items values = items(value);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!budget_.fits(key.size() + 22)) return too_much(value);
      auto done = visit(values[i], joined(key, std::to_string(i)), depth + 1);
      if (!done) return done;
    }
    return {};
  }

  Status visit_call(const PickleNode& call, const std::string& key, int depth) {
    const Items parts = items(call);
    const Items arguments = items(parts[1]);
    switch (static_cast<Name>(node(parts[0]).integer)) {
      case Name::ordered_dict:
        if (!arguments.empty()) return refused(call, "an OrderedDict with arguments, expected none");
        return visit_pairs(call, 2, key, depth);
      case Name::size: {
        const auto size = arguments.size() == 1 ? numbers(arguments[0]) : std::nullopt;
        if (!size) return refused(call, "a torch.Size of something else than numbers");
        return describe(call, key, shape_text(*size));
      }
      case Name::device: {
        std::string name;
        for (const std::uint32_t part : arguments.first(std::min<std::size_t>(arguments.size(), 2))) {
          if (!name.empty()) name += ':';
          name += node(part).kind == PickleKind::integer ? std::to_string(node(part).integer) : printable(text(part));
        }
        return describe(call, key, std::move(name));
      }
      default:
        return add_tensor(call, parts[0], parts[1], key, 0);
    }
  }

  std::string description(const PickleNode& value) const {
    const std::string_view text = pickle_.text(value);
    switch (value.kind) {
      case PickleKind::none:
        return "None";
      case PickleKind::boolean:
        return value.integer != 0 ? "True" : "False";
      case PickleKind::integer:
        return std::to_string(value.integer);
      case PickleKind::real:
        return fmt::format("{}", Pickle::real(value));
      case PickleKind::text:
        return is_utf8(text) && text.size() <= kMaxMetadataText ? std::string(text)
                                                                : fmt::format("a text of {} bytes", text.size());
      case PickleKind::wide_integer:
        return fmt::format("a number of {} bytes", text.size());
      case PickleKind::bytes:
        return fmt::format("{} bytes", text.size());
      default:
        return "torch." + printable(text);
    }
  }

  Status describe(const PickleNode& at, const std::string& key, std::string text) {
    if (!budget_.take(kListedText + 48 + text_bytes(key.size()) + text_bytes(text.size()))) return too_much(at);
    into_.describe(key, std::move(text));
    return {};
  }

  Status skip(const PickleNode& at, const std::string& key, std::string reason) {
    // Thrice, because the list doubles as it grows.
    if (!budget_.take(3 * sizeof(SkippedTensor) + text_bytes(key.size()) + 2 * reason.size())) return too_much(at);
    into_.skip(key, std::move(reason));
    return {};
  }

  /// A tuple of numbers, or a torch.Size of one.
  std::optional<std::vector<std::int64_t>> numbers(std::uint32_t index) const {
    const PickleNode* list = &node(index);
    if (list->kind == PickleKind::call && is_global(items(*list)[0], Name::size) &&
        items(items(*list)[1]).size() == 1) {
      list = &node(items(items(*list)[1])[0]);
    }
    if (list->kind != PickleKind::tuple && list->kind != PickleKind::list) return std::nullopt;
    const Items all = items(*list);
    if (all.size() > kMaxDimensions) return std::nullopt;
    std::vector<std::int64_t> values;
    values.reserve(all.size());
    for (const std::uint32_t item : all) {
      if (node(item).kind != PickleKind::integer) return std::nullopt;
      values.push_back(node(item).integer);
    }
    return values;
  }

  /// A tensor from the call of `function`; parameters and subclasses wrap another call.
  Status add_tensor(const PickleNode& call, std::uint32_t function, std::uint32_t tuple, const std::string& key,
                    int depth) {
    const Items arguments = items(tuple);
    const auto what = static_cast<Name>(node(function).integer);
    if (depth > 4) return refused(call, "a tensor wrapped more than four times");
    if (what == Name::rebuild_parameter && !arguments.empty() && node(arguments[0]).kind == PickleKind::call) {
      const Items data = items(arguments[0]);
      return add_tensor(call, data[0], data[1], key, depth + 1);
    }
    if (what == Name::rebuild_from_type && arguments.size() >= 3 && node(arguments[0]).kind == PickleKind::global &&
        is_global(arguments[1], Name::tensor_type) && node(arguments[2]).kind == PickleKind::tuple) {
      return add_tensor(call, arguments[0], arguments[2], key, depth + 1);
    }
    const bool v3 = what == Name::rebuild_tensor_v3;
    if ((v3 && arguments.size() >= 7) || (what == Name::rebuild_tensor_v2 && arguments.size() >= 6) ||
        (what == Name::rebuild_tensor && arguments.size() >= 4)) {
      return add_rebuilt(call, arguments, v3, key);
    }
    return refused(call, "a call of " + printable(text(function)) + " with " + std::to_string(arguments.size()) +
                             " arguments, expected a tensor");
  }

  Status add_rebuilt(const PickleNode& call, Items arguments, bool v3, const std::string& key) {
    StoredTensor tensor;
    std::uint64_t elements = 0;
    auto found = find_tensor_storage(call, arguments, v3, tensor, elements);
    if (!found) return found;
    const auto shape = numbers(arguments[2]);
    const auto strides = numbers(arguments[3]);
    const PickleNode& first = node(arguments[1]);
    const auto negative = [](std::int64_t value) { return value < 0; };
    if (!shape || !strides || first.kind != PickleKind::integer || first.integer < 0 ||
        shape->size() != strides->size() || shape->size() > kMaxDimensions ||
        std::any_of(shape->begin(), shape->end(), negative) ||
        std::any_of(strides->begin(), strides->end(), negative)) {
      return refused(call,
                     "a tensor whose offset, shape and strides are no numbers from 0, as many strides as extents");
    }
    tensor.view = {*shape, *strides, static_cast<std::uint64_t>(first.integer)};
    const auto end = tensor.view.end();
    if (!checked_count(*shape, *tensor.dtype) || !end || *end > elements) {
      return refused(
          call, fmt::format(
                    "a tensor of shape {} and strides {} from element {} reaches beyond the {} elements of its storage",
                    shape_text(*shape), shape_text(*strides), first.integer, elements));
    }
    return list(call, std::move(tensor), arguments, v3, key);
  }

  Status list(const PickleNode& call, StoredTensor tensor, Items arguments, bool v3, const std::string& key) {
    const std::uint64_t texts = 2 * text_bytes(key.size()) + 4 * sizeof(std::int64_t) * tensor.view.shape.size();
    if (!budget_.take(kListedStorage + texts)) return too_much(call);
    if (!keys_.insert(key).second)
      return refuse(file_, base_, "two tensors with the key " + in_quotes(key) + ", expected one");
    const std::uint64_t bytes = tensor.dtype->bytes(*checked_count(tensor.view.shape, *tensor.dtype));
    const std::size_t metadata = v3 ? 7 : 6;
    if (arguments.size() > metadata && has_flag(arguments[metadata])) {
      return skip(call, key, "a view that negates or conjugates its storage");
    }
    if (const Dtype* part = part_of_complex(*tensor.dtype)) {
      tensor.dtype = part;
      tensor.view = pairs_of(std::move(tensor.view));
    }
    if (bytes / kMaxRepeat > tensor.storage->size) {
      return skip(call, key,
                  fmt::format("a view that repeats its storage of {} bytes to {}: an expanded tensor",
                              tensor.storage->size, bytes));
    }
    into_.add(key, std::move(tensor));
    return {};
  }

  /// torch._utils.get_tensor_metadata: {"neg": True} or {"conj": True} where a view changes the values.
  bool has_flag(std::uint32_t value) const {
    const Items flags = items(value);
    return std::any_of(flags.begin(), flags.end(), [&](std::uint32_t item) {
      return node(item).kind == PickleKind::boolean && node(item).integer != 0;
    });
  }

  /// ('storage', type, key, device, elements), and the archive's member data/KEY.
  Status find_tensor_storage(const PickleNode& call, Items arguments, bool v3, StoredTensor& tensor,
                             std::uint64_t& elements) const {
    const PickleNode& storage = node(arguments[0]);
    const Items id = storage.kind == PickleKind::persistent ? items(items(storage)[0]) : Items();
    if (id.size() != 5 || text(id[0]) != "storage" || node(id[2]).kind != PickleKind::text ||
        node(id[4]).kind != PickleKind::integer || node(id[4]).integer < 0) {
      return refused(call, "a tensor whose storage is not described as torch.save does");
    }
    const auto count = static_cast<std::uint64_t>(node(id[4]).integer);
    const bool untyped = is_global(id[1], Name::untyped_storage);
    if (v3 && untyped && is_global(arguments[6], Name::dtype)) {
      tensor.dtype = find_torch_dtype(text(arguments[6]));
    } else if (!v3 && is_global(id[1], Name::storage)) {
      tensor.dtype = find_dtype(find_storage(text(id[1]))->dtype);
    } else {
      return refused(call, "a tensor whose dtype is not said as torch.save does");
    }
    const std::string name = fmt::format("{}data/{}", prefix_, text(id[2]));
    tensor.storage = into_.archive().find(name);
    if (tensor.storage == nullptr)
      return refused(call, "a tensor whose storage " + in_quotes(name) + " is not in the archive");
    const std::uint64_t width = element_bytes(*tensor.dtype);
    elements = tensor.storage->size / width;
    const bool fits = untyped ? count == tensor.storage->size : count == elements && tensor.storage->size % width == 0;
    if (fits) return {};
    return refused(
        call, fmt::format("the storage {} of {} bytes, expected {} {}", in_quotes(name), tensor.storage->size, count,
                          untyped ? "bytes" : std::string(tensor.dtype->torch) + " elements"));
  }

  const Pickle& pickle_;
  Pt& into_;
  std::string prefix_;
  std::string file_;
  std::uint64_t base_;
  ReadBudget& budget_;
  std::size_t visits_ = 0;
  std::set<std::string> keys_;
};

/// The format before PyTorch 1.6 is a row of pickles, the first one of a magic number.
bool is_pickle(std::span<const std::byte> head) {
  return head.size() >= 2 && head[0] == std::byte{0x80} && head[1] >= std::byte{2} && head[1] <= std::byte{5};
}

constexpr std::array<std::uint8_t, 14> kLegacyMagic = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c,
                                                       0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

bool recognises_pt(std::span<const std::byte> head) {
  const bool legacy = head.size() >= kLegacyMagic.size() &&
                      std::equal(kLegacyMagic.begin(), kLegacyMagic.end(), head.begin(),
                                 [](std::uint8_t a, std::byte b) { return a == std::to_integer<std::uint8_t>(b); });
  return legacy || is_zip(head);
}

Result<std::unique_ptr<Container>> open_pt_file(const std::filesystem::path& path) {
  auto file = map_file(path);
  if (!file) return tl::unexpected(file.error());
  return open_pt(std::move(*file));
}

Status check_byte_order(const ZipArchive& archive, const std::string& prefix) {
  const ZipMember* member = archive.find(prefix + "byteorder");
  if (member == nullptr) return {};
  const auto order = archive.beginning(*member, 16);
  if (!order) return tl::unexpected(order.error());
  if (as_text(order->bytes) == "little") return {};
  return refuse(archive.name(), member->data,
                "the byte order " + in_quotes(as_text(order->bytes)) + ", expected 'little'");
}

}  // namespace

Result<std::unique_ptr<Container>> open_pt(FileBytes file) {
  if (is_pickle(file.bytes)) {
    return refuse(file.name, 0,
                  "a bare pickle, as torch.save wrote before PyTorch 1.6, expected its zip format: load it and "
                  "torch.save it again");
  }
  auto archive = ZipArchive::read(std::move(file));
  if (!archive) return tl::unexpected(archive.error());
  auto pt = std::make_unique<Pt>(std::move(*archive));
  const auto& members = pt->archive().members();
  const auto found = std::find_if(members.begin(), members.end(), [](const ZipMember& member) {
    return member.name == kPickle || member.name.ends_with(std::string("/") + std::string(kPickle));
  });
  if (found == members.end()) {
    return refuse(pt->archive().name(), 0, "a zip without data.pkl, expected what torch.save writes");
  }
  const std::string prefix = found->name.substr(0, found->name.size() - kPickle.size());
  const auto order = check_byte_order(pt->archive(), prefix);
  if (!order) return tl::unexpected(order.error());
  if (found->size > kMaxPickleBytes) {
    return refuse(pt->archive().name(), found->data,
                  fmt::format("a pickle of {} bytes, expected at most {}", found->size, kMaxPickleBytes));
  }
  ReadBudget budget(pt->archive().bytes());
  if (found->deflated && !budget.take(found->size)) {
    return refuse(pt->archive().name(), found->data,
                  fmt::format("a pickle that unpacks to {} bytes, expected less than four times the file of {}",
                              found->size, pt->archive().bytes()));
  }
  const auto content = pt->archive().content(*found);
  if (!content) return tl::unexpected(content.error());
  // Offsets are in the file where the pickle lies in it as it is, else in the pickle.
  const std::string where = pt->archive().name() + ": " + printable(found->name);
  const std::uint64_t base = found->deflated ? 0 : found->data;
  const auto pickle = read_pickle(content->bytes, where, base, known_global, budget);
  if (!pickle) return tl::unexpected(pickle.error());
  const auto walked = PtWalker(*pickle, *pt, prefix, where, base, budget).walk();
  if (!walked) return tl::unexpected(walked.error());
  return pt;
}

ContainerKind pt_container() { return {"pt", {".pt", ".pth"}, recognises_pt, open_pt_file}; }

}  // namespace nanscope
