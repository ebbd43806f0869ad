#include <fmt/format.h>

#include <map>
#include <set>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/producers/producer.h"
#include "instrument/dump/producers/text.h"

/// Logits of llama.cpp (examples/debug/debug.cpp, --save-logits) and of the PyTorch script that goes with it:
/// llamacpp-MODEL.bin holds f32 and no shape, the logits of the last token; llamacpp-MODEL-embeddings.bin those of a
/// model of embeddings; llamacpp-MODEL-tokens.bin the prompt's ids as i32.
namespace nanscope {
namespace {

constexpr std::string_view kTokens = "-tokens";
constexpr std::string_view kEmbeddings = "-embeddings";

/// A file without a header.
class RawTensor final : public Container {
 public:
  RawTensor(FileBytes file, const Dtype& dtype, std::vector<std::int64_t> shape) : file_(std::move(file)) {
    tensors_.push_back({"", &dtype, std::move(shape), 0, {}});
  }
  Result<TensorBytes> bytes(std::size_t) const override {
    auto file = file_.hold();
    if (!file) return tl::unexpected(file.error());
    return TensorBytes{file->bytes, std::move(file->owner)};
  }
  Status check() const override { return file_.check(); }

 private:
  KeptFile file_;
};

class LlamaCpp final : public Producer {
 public:
  std::string_view name() const override { return "llama.cpp logits"; }

  void look(const DumpListing& listing, const ProducerOptions& options, ProducerFindings&) override {
    vocabulary_ = options.vocabulary;
    for (const DumpFile& file : listing.files) {
      const std::string stem = file.stem();
      if (!file.shown.ends_with(".bin") || !(stem.starts_with("llamacpp-") || stem.starts_with("pytorch-"))) continue;
      std::error_code error;
      const auto size = std::filesystem::file_size(file.path, error);
      if (error) continue;
      found_.insert(file.shown);
      if (stem.ends_with(kTokens)) {
        tokens_[joined_path(file.folder(), stem.substr(0, stem.size() - kTokens.size()))] = size / 4;
      }
    }
  }

  bool claims(const DumpFile& file) const override { return found_.contains(file.shown); }

  Result<std::unique_ptr<Container>> open(const DumpFile& file) override {
    // A checkpoint of PyTorch may have such a name: it has a head.
    Result<FileBytes> data = map_file(file.path);
    if (!data) return tl::unexpected(data.error());
    const std::size_t size = data->bytes.size();
    if (size >= 4 && as_word(data->bytes) == kZip) return nullptr;
    if (size == 0 || size % 4 != 0) {
      return refuse(data->name, 0, fmt::format("{} bytes, expected elements of four bytes each", size));
    }
    const auto count = static_cast<std::int64_t>(size / 4);
    if (file.stem().ends_with(kTokens)) {
      return std::make_unique<RawTensor>(std::move(*data), dtype_of(Format::i32), std::vector{count});
    }
    const std::int64_t rows = rows_of(file, count);
    if (rows == 0) {
      return refuse(data->name, 0,
                    fmt::format("{} numbers, expected a multiple of the vocabulary of {} that nanscope.toml gives",
                                count, *vocabulary_));
    }
    return std::make_unique<RawTensor>(std::move(*data), dtype_of(Format::f32), std::vector{rows, count / rows});
  }

  Naming name_of(const DumpFile& file, const Container&, std::size_t) override {
    const std::string stem = file.stem();
    Naming naming;
    const bool tokens = stem.ends_with(kTokens);
    naming.name = joined_path(joined_path(file.folder(), run_of(stem)), tokens                        ? "tokens"
                                                                        : stem.ends_with(kEmbeddings) ? "embeddings"
                                                                                                      : "logits");
    return naming;
  }

 private:
  static constexpr std::uint32_t kZip = 0x04034b50;
  static std::uint32_t as_word(std::span<const std::byte> bytes) { return little_endian<std::uint32_t>(bytes, 0); }

  static std::string run_of(std::string stem) {
    for (const std::string_view tail : {kTokens, kEmbeddings}) {
      if (stem.ends_with(tail)) stem.resize(stem.size() - tail.size());
    }
    return stem;
  }

  /// The last token's, unless the vocabulary is known to be smaller; embeddings have a row a token, or one in all.
  std::int64_t rows_of(const DumpFile& file, std::int64_t count) const {
    const std::string stem = file.stem();
    if (!stem.ends_with(kEmbeddings)) {
      if (!vocabulary_) return 1;
      return count % *vocabulary_ == 0 ? count / *vocabulary_ : 0;
    }
    const auto tokens = tokens_.find(joined_path(file.folder(), stem));
    const auto rows = tokens != tokens_.end() ? static_cast<std::int64_t>(tokens->second) : 1;
    return rows > 0 && count % rows == 0 ? rows : 1;
  }

  std::optional<std::int64_t> vocabulary_;
  std::set<std::string> found_;
  std::map<std::string, std::uintmax_t> tokens_;  ///< how many, by the path of the file that they belong to
};

}  // namespace

std::unique_ptr<Producer> llamacpp_producer() { return std::make_unique<LlamaCpp>(); }

}  // namespace nanscope
