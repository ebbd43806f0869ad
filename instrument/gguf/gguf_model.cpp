#include "instrument/gguf/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "core/numbers/format_table.h"
#include "core/text/safe_text.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostParts = 4096;
constexpr std::uint64_t kMostExperts = 4096;
/// Factors of rotary angles, which are read for the config: a head has fewer pairs of channels.
constexpr std::int64_t kMostFactors = 1 << 16;
constexpr std::array<std::string_view, 3> kRopeFactors = {"rope_freqs.weight", "rope_factors_short.weight",
                                                          "rope_factors_long.weight"};

std::string printable_name(std::string_view name) { return shortened(one_line(name), 120); }

/// Floats that programs read as they are.
bool is_kept(const GgufType& type) {
  return type.format == Format::f32 || type.format == Format::f16 || type.format == Format::bf16;
}

/// Rows of each head: 0, half, 1, half + 1 ... becomes 0, 1 ... half, half + 1 ...
std::vector<std::byte> with_halves(const std::vector<std::byte>& from, std::int64_t rows, std::int64_t heads) {
  std::vector<std::byte> to(from.size());
  const std::int64_t of_head = rows / heads;
  const std::size_t width = from.size() / static_cast<std::size_t>(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t within = row % of_head;
    const std::int64_t source = row - within + within % (of_head / 2) * 2 + within / (of_head / 2);
    std::memcpy(to.data() + static_cast<std::size_t>(row) * width,
                from.data() + static_cast<std::size_t>(source) * width, width);
  }
  return to;
}

/// A matrix of `rows` rows as one of so many columns.
std::vector<std::byte> transposed(const std::vector<std::byte>& from, std::int64_t rows, std::int64_t columns) {
  std::vector<std::byte> to(from.size());
  const std::size_t width = from.size() / static_cast<std::size_t>(rows * columns);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column)
      std::memcpy(to.data() + static_cast<std::size_t>(column * rows + row) * width,
                  from.data() + static_cast<std::size_t>(row * columns + column) * width, width);
  }
  return to;
}

/// "model-00001-of-00003.gguf" -> "model-00002-of-00003.gguf".
fs::path part_path(const fs::path& first, std::int64_t number, std::int64_t of) {
  constexpr std::size_t kEnd = std::string_view("-00001-of-00003.gguf").size();
  const std::string name = first.filename().string();
  const std::string stem = name.substr(0, name.size() - std::min(name.size(), kEnd));
  return first.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, of);
}

bool is_later_part(const std::string& name) {
  const std::size_t of = name.rfind("-of-");
  return of != std::string::npos && of >= 6 && name[of - 6] == '-' && name.compare(of - 5, 5, "00001") != 0 &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(of) - 5, name.begin() + static_cast<std::ptrdiff_t>(of),
                     [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

bool GgufWeight::as_stored() const {
  return is_kept(*tensor->type) &&
         (change == GgufChange::none || change == GgufChange::stacked || change == GgufChange::flat);
}

std::vector<std::byte> GgufWeight::values() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  const std::span<const std::byte> raw = stored();
  std::vector<std::byte> out;
  if (tensor->type->format == format && change != GgufChange::plus_one) {
    out.assign(raw.begin(), raw.end());
  } else {
    std::vector<float> values(static_cast<std::size_t>(count));
    decode_blocks(*tensor->type, raw, values);
    if (change == GgufChange::plus_one) {
      for (float& value : values) value -= 1;
    }
    const auto bytes = std::as_bytes(std::span(values));
    out.assign(bytes.begin(), bytes.end());
  }
  if (heads > 0) return with_halves(out, shape.front(), heads);
  if (change == GgufChange::turned && shape.size() == 2) return transposed(out, shape[1], shape[0]);
  return out;
}

Result<std::unique_ptr<GgufModel>> GgufModel::open(const fs::path& path) {
  std::unique_ptr<GgufModel> model(new GgufModel());
  if (Status added = model->add(path); !added) return tl::unexpected(added.error());
  if (Status added = model->add_parts(path); !added) return tl::unexpected(added.error());
  if (Status added = model->add_weights(); !added) return tl::unexpected(added.error());
  return model;
}

Status GgufModel::add(const fs::path& path) {
  auto file = GgufFile::open(path);
  if (!file) return tl::unexpected(file.error());
  parts_.push_back(std::make_unique<Part>(Part{path, std::move(*file)}));
  return {};
}

Status GgufModel::add_parts(const fs::path& first) {
  const auto stated = [](const GgufFile& file, std::string_view key, std::int64_t otherwise) {
    const GgufValue* value = file.find(key);
    return value == nullptr ? otherwise : value->integer().value_or(-1);
  };
  const std::int64_t count = stated(parts_.front()->file, "split.count", 1);
  const std::int64_t number = stated(parts_.front()->file, "split.no", 0);
  if (count < 1 || count > kMostParts)
    return fail(fmt::format("{}: split.count: expected 1 to {}", first.string(), kMostParts));
  if (number != 0)
    return fail(fmt::format("{}: is part {} of {}: give the first, {}", first.string(), number + 1, count,
                            part_path(first, 1, count).filename().string()));
  for (std::int64_t i = 1; i < count; ++i) {
    const fs::path path = part_path(first, i + 1, count);
    if (Status added = add(path); !added) return added;
    const GgufFile& part = parts_.back()->file;
    if (stated(part, "split.no", -1) != i || stated(part, "split.count", -1) != count)
      return fail(fmt::format("{}: split.no and split.count: expected part {} of {}", path.string(), i, count));
  }
  return {};
}

std::int64_t GgufModel::heads_of(GgufChange change) const {
  const GgufFile& file = parts_.front()->file;
  const auto stated = [&](std::string_view key) -> std::int64_t {
    const GgufValue* architecture = file.find("general.architecture");
    const GgufValue* value = file.find(fmt::format("{}.{}", architecture->text().value_or(""), key));
    return value == nullptr ? 0 : value->integer().value_or(0);
  };
  const std::int64_t keys = change == GgufChange::kv_heads ? stated("attention.head_count_kv") : 0;
  return keys > 0 ? keys : stated("attention.head_count");
}

Status GgufModel::add_weights() {
  const std::string_view type = model_type();
  std::set<std::string, std::less<>> names;
  for (const auto& part : parts_) {
    for (const GgufTensor& tensor : part->file.header().tensors) {
      if (!names.insert(tensor.name).second)
        return fail(fmt::format("{}: the tensor '{}' lies in another part too", part->path.string(),
                                printable_name(tensor.name)));
      const bool in_config = std::find(kRopeFactors.begin(), kRopeFactors.end(), tensor.name) != kRopeFactors.end();
      if (!type.empty() && in_config) continue;
      if (tensor.type == nullptr) {
        undecoded_.push_back(&tensor);
      } else if (Status added = add_weight(*part, tensor, type); !added) {
        return added;
      }
    }
  }
  return {};
}

Status GgufModel::add_weight(const Part& part, const GgufTensor& tensor, std::string_view model_type) {
  GgufName known = original_name(tensor.name, model_type);
  GgufWeight weight{std::move(known.name),     &part.file,  &tensor, tensor.shape, 0,
                    tensor.end - tensor.begin, known.change};
  if (known.change == GgufChange::heads || known.change == GgufChange::kv_heads) {
    weight.heads = heads_of(known.change);
    if (weight.heads < 1 || weight.shape.empty() || weight.shape.front() % (2 * weight.heads) != 0)
      return fail(fmt::format("{}: tensor '{}' of {} rows, expected a multiple of twice the {} heads",
                              part.path.string(), printable_name(tensor.name),
                              weight.shape.empty() ? 1 : weight.shape.front(), weight.heads));
  }
  if (known.change == GgufChange::turned) std::reverse(weight.shape.begin(), weight.shape.end());
  if (known.change == GgufChange::flat && weight.shape.size() == 1) weight.shape.insert(weight.shape.begin(), 1);
  if (is_kept(*tensor.type) && known.change != GgufChange::plus_one) weight.format = *tensor.type->format;
  if (known.change != GgufChange::stacked || weight.shape.size() != 3) {
    weights_.push_back(std::move(weight));
    return {};
  }
  const auto experts = static_cast<std::uint64_t>(weight.shape.front());
  if (experts > kMostExperts)
    return fail(fmt::format("{}: tensor '{}' of {} experts, expected at most {}", part.path.string(),
                            printable_name(tensor.name), experts, kMostExperts));
  const std::uint64_t size = weight.end / experts;
  weight.shape.erase(weight.shape.begin());
  const std::string name = weight.name;
  for (std::uint64_t i = 0; i < experts; ++i) {
    weight.begin = i * size;
    weight.end = weight.begin + size;
    weight.name = name;
    weight.name.replace(name.find("{}"), 2, std::to_string(i));
    weights_.push_back(weight);
  }
  return {};
}

std::vector<float> GgufModel::small_tensor(std::string_view name) const {
  for (const auto& part : parts_) {
    for (const GgufTensor& tensor : part->file.header().tensors) {
      if (tensor.name != name || tensor.type == nullptr || tensor.count() > kMostFactors) continue;
      std::vector<float> values(static_cast<std::size_t>(tensor.count()));
      decode_blocks(*tensor.type, part->file.bytes(tensor), values);
      return values;
    }
  }
  return {};
}

Result<std::string> GgufModel::config() const {
  GgufHeader whole = header();
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    const auto& more = parts_[i]->file.header().tensors;
    whole.tensors.insert(whole.tensors.end(), more.begin(), more.end());
  }
  return config_of_gguf(whole, parts_.front()->path.string(),
                        [this](std::string_view name) { return small_tensor(name); });
}

Status GgufModel::check() const {
  for (const auto& part : parts_) {
    if (Status same = part->file.check(); !same) return same;
  }
  return {};
}

Result<std::optional<fs::path>> gguf_of(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    const auto head = read_beginning(path, 4);
    if (path.extension() == ".gguf" || (head && is_gguf(*head))) return path;
    return std::nullopt;
  }
  if (!fs::is_directory(path, error) || fs::exists(path / "model.safetensors", error) ||
      fs::exists(path / "model.safetensors.index.json", error))
    return std::nullopt;
  std::vector<fs::path> found;
  fs::directory_iterator entry(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".gguf" && !is_later_part(entry->path().filename().string()))
      found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  if (found.size() > 1)
    return fail(fmt::format("{}: holds {} GGUF files, '{}' and '{}' first: name one", path.string(), found.size(),
                            printable_name(found[0].filename().string()),
                            printable_name(found[1].filename().string())));
  if (found.empty()) return std::nullopt;
  return found.front();
}

}  // namespace nanscope
