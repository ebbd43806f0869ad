/// A checkpoint in GGUF: its tensors under the names that they had before they were converted, decoded to f32 where
/// they are blocks.
#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include "instrument/dump/container.h"
#include "instrument/dump/containers/file_bytes.h"
#include "instrument/gguf/gguf_model.h"

namespace nanscope {
namespace {

/// Tensors that were decoded last: whoever recomputes a product asks for its weight once a row.
class Decoded {
 public:
  /// Those that ask for the same one wait for it.
  TensorBytes get(std::size_t tensor, const GgufWeight& weight) {
    const std::lock_guard lock(mutex_);
    const auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& one) { return one.tensor == tensor; });
    if (kept != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, kept);
    } else {
      kept_.push_front({tensor, std::make_shared<const std::vector<std::byte>>(weight.values())});
      size_ += kept_.front().values->size();
    }
    for (; size_ > kMost && kept_.size() > 1; kept_.pop_back()) size_ -= kept_.back().values->size();
    return TensorBytes{*kept_.front().values, kept_.front().values};
  }

 private:
  struct Kept {
    std::size_t tensor;
    std::shared_ptr<const std::vector<std::byte>> values;
  };
  static constexpr std::size_t kMost = std::size_t{256} << 20;  ///< bytes, unless one alone has more

  std::mutex mutex_;
  std::list<Kept> kept_;  ///< the last first
  std::size_t size_ = 0;
};

class Gguf final : public Container {
 public:
  explicit Gguf(std::unique_ptr<GgufModel> model) : model_(std::move(model)) {
    for (const GgufWeight& weight : model_->weights()) {
      const Dtype* dtype = &dtype_of(weight.format);
      const bool decoded = weight.tensor->type->format != weight.format;
      tensors_.push_back({weight.name, dtype, weight.shape, weight.tensor->begin + weight.begin, {}, decoded});
    }
    for (const GgufTensor* tensor : model_->undecoded())
      skipped_.push_back({tensor->name, tensor->type_name() + " is not decoded"});
    if (const GgufValue* architecture = model_->parts().front()->file.find("general.architecture"))
      metadata_["general.architecture"] = architecture->text().value_or("");
    for (const auto& part : model_->parts()) {
      if (part != model_->parts().front()) parts_.push_back(part->path);
    }
  }

  Result<TensorBytes> bytes(std::size_t tensor) const override {
    const GgufWeight& weight = model_->weights()[tensor];
    if (weight.as_stored()) return TensorBytes{weight.stored(), model_};
    return decoded_.get(tensor, weight);
  }
  Status check() const override { return model_->check(); }

 private:
  std::shared_ptr<const GgufModel> model_;
  mutable Decoded decoded_;
};

Result<std::unique_ptr<Container>> open_gguf(const std::filesystem::path& path) {
  auto model = GgufModel::open(path);
  if (!model) return tl::unexpected(model.error());
  return std::make_unique<Gguf>(std::move(*model));
}

}  // namespace

ContainerKind gguf_container() { return {"gguf", {".gguf"}, is_gguf, open_gguf}; }

}  // namespace nanscope
