#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "instrument/dump/containers/strict_json.h"
#include "instrument/dump/producers/producer.h"
#include "instrument/dump/producers/text.h"
#include "instrument/files/file.h"

/// A model's directory as Hugging Face's from_pretrained() reads it (huggingface.co/docs/transformers/big_models):
/// config.json with a model_type, and weights in safetensors beside it. Weights are scanned; nothing was run with them.
namespace nanscope {
namespace {

constexpr std::uint64_t kMaxConfig = 16 << 20;

/// What a folder's config.json says.
struct Config {
  std::string model;
  std::string quantization;  ///< quant_method; empty for none
};

class Checkpoint final : public Producer {
 public:
  std::string_view name() const override { return "model checkpoint"; }

  void look(const DumpListing& listing, const ProducerOptions&, ProducerFindings& findings) override {
    std::set<std::string> weights;
    for (const DumpFile& file : listing.files) {
      if (file.shown.ends_with(".safetensors")) weights.insert(file.folder());
    }
    for (const DumpFile& file : listing.files) {
      if (file.filename() == "config.json" && weights.contains(file.folder())) read_config(file, findings);
    }
  }

  bool claims(const DumpFile& file) const override {
    if (!configs_.contains(file.folder())) return false;
    return file.shown.ends_with(".safetensors") || file.shown.ends_with(".safetensors.index.json");
  }

  Naming name_of(const DumpFile& file, const Container& container, std::size_t tensor) override {
    const ContainedTensor& contained = container.tensors()[tensor];
    Naming naming;
    naming.name = plain_name(file, contained);
    const bool eight_bits = contained.dtype->format == Format::e4m3 || contained.dtype->format == Format::e5m2;
    if (eight_bits && contained.key.ends_with("weight")) unscaled_.emplace(naming.name);
    names_.insert(naming.name);
    return naming;
  }

  void finish(ProducerFindings& findings) override {
    std::erase_if(unscaled_, [this](const std::string& name) {
      constexpr std::string_view kScales[] = {"_scale", "_scale_inv", "_scale_2"};
      return std::any_of(std::begin(kScales), std::end(kScales),
                         [&](std::string_view tail) { return names_.contains(name + std::string(tail)); });
    });
    if (!unscaled_.empty()) {
      findings.notes.push_back(
          {*unscaled_.begin(), fmt::format("an 8-bit weight without a scale beside it, one of {}", unscaled_.size())});
    }
    if (!names_.empty() && findings.sparse.empty()) {  // else they are left out
      for (const auto& [folder, config] : configs_) {
        findings.notes.push_back(
            {folder, fmt::format("weights of a {} model{}: scanned for damage", config.model,
                                 config.quantization.empty() ? "" : ", quantized by " + config.quantization)});
      }
    }
  }

 private:
  void read_config(const DumpFile& file, ProducerFindings& findings) {
    const auto text = read_file(file.path, kMaxConfig);
    const auto config = text ? parse_strict_json(as_text(*text), file.path.string(), 0)
                             : Result<JsonView>(tl::unexpected(text.error()));
    if (!config) {
      findings.unread.push_back({file.shown, config.error().message});
      return;
    }
    if (!config->find("model_type")) return;
    Config& found = configs_[file.folder()];
    const auto word = [](const JsonView& from, std::string_view key) {
      const auto value = from.find(key);
      return value ? value->text() : std::string();
    };
    found.model = word(*config, "model_type");
    const auto quantization = config->find("quantization_config");
    if (quantization && quantization->is_object()) {
      found.quantization = word(*quantization, "quant_method");
      if (found.quantization.empty()) found.quantization = "an unnamed method";
    }
  }

  std::map<std::string, Config> configs_;  ///< by folder
  std::set<std::string> names_;
  std::set<std::string> unscaled_;  ///< 8-bit weights, until their scale is found
};

}  // namespace

std::unique_ptr<Producer> checkpoint_producer() { return std::make_unique<Checkpoint>(); }

}  // namespace nanscope
