#include "instrument/engine/prompt.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>

#include "instrument/image/image.h"
#include "instrument/image/patches.h"

namespace nanscope {
namespace {

constexpr std::uint64_t kPadKey = ~std::uint64_t{0};

/// Builds a prompt part by part.
class Builder {
 public:
  Builder(const EngineConfig& config, const Tokenizer& tokenizer) : config_(config), tokenizer_(tokenizer) {}

  Status operator()(const TokensPart& part) {
    for (const std::int32_t id : part.ids) add(id, 0, static_cast<std::uint64_t>(id));
    return {};
  }

  Status operator()(const TextPart& part) {
    if (tokenizer_.vocab_size() == 0) {
      return fail("the model's folder has no tokenizer.json: give the prompt as token ids");
    }
    const Result<std::vector<std::int32_t>> ids = tokenizer_.encode(part.text);
    if (!ids) return tl::unexpected(ids.error());
    for (const std::int32_t id : *ids) add(id, 0, static_cast<std::uint64_t>(id));
    return {};
  }

  Status operator()(const ImagePart& part) {
    if (config_.model.patch_size == 0) return fail(fmt::format("image '{}': the model takes no images", part.name));
    const Result<Image> image = decode_png(part.png, part.name);
    if (!image) return tl::unexpected(image.error());
    Result<Patches> patches = make_patches(*image, config_.model.patch_size, SampleRange::unit);
    if (!patches) return fail(fmt::format("image '{}': {}", part.name, patches.error().message));
    const std::uint64_t hash = XXH3_64bits(part.png.data(), part.png.size());
    prompt_.images.push_back(
        {static_cast<std::int64_t>(prompt_.tokens.size()), patches->rows, std::move(patches->values)});
    for (std::int64_t row = 0; row < patches->rows; ++row) {
      add(-1, static_cast<std::int32_t>(patch_rows_++), XXH3_64bits_withSeed(&row, sizeof row, hash));
    }
    return {};
  }

  Prompt finish() {
    if (prompt_.images.empty()) prompt_.patch_rows.clear();
    if (config_.pad == Padding::left) pad();
    return std::move(prompt_);
  }
  bool empty() const { return prompt_.tokens.empty(); }

 private:
  void add(std::int32_t token, std::int32_t patch_row, std::uint64_t key) {
    prompt_.tokens.push_back(token);
    prompt_.patch_rows.push_back(patch_row);
    prompt_.keys.push_back(key);
  }

  void pad() {
    const auto tokens = static_cast<std::int64_t>(prompt_.tokens.size());
    const std::int64_t block = config_.kv.block_size;
    const std::int64_t count = (block - tokens % block) % block;
    prompt_.padding = count;
    const auto n = static_cast<std::size_t>(count);
    prompt_.tokens.insert(prompt_.tokens.begin(), n, 0);
    prompt_.keys.insert(prompt_.keys.begin(), n, kPadKey);
    if (!prompt_.images.empty()) prompt_.patch_rows.insert(prompt_.patch_rows.begin(), n, 0);
    for (PromptImage& image : prompt_.images) image.first_token += count;
  }

  const EngineConfig& config_;
  const Tokenizer& tokenizer_;
  Prompt prompt_;
  std::int64_t patch_rows_ = 0;
};

}  // namespace

Result<Prompt> make_prompt(const RequestSpec& request, const EngineConfig& config, const Tokenizer& tokenizer) {
  Builder builder(config, tokenizer);
  for (const PromptPart& part : request.parts) {
    if (Status status = std::visit(builder, part); !status) {
      return fail(fmt::format("request '{}': {}", request.name, status.error().message));
    }
  }
  if (builder.empty()) return fail(fmt::format("request '{}': its prompt has no token", request.name));
  if (request.max_tokens < 1) return fail(fmt::format("request '{}': max_tokens must be 1 or more", request.name));
  return builder.finish();
}

Prompt warm_up_prompt(std::int64_t tokens) {
  Prompt prompt;
  prompt.tokens.assign(static_cast<std::size_t>(tokens), 0);
  prompt.keys.assign(static_cast<std::size_t>(tokens), 0);
  return prompt;
}

std::vector<std::int32_t> end_tokens(const ModelConfig& model, const Tokenizer& tokenizer) {
  if (!model.end_tokens.empty()) return {model.end_tokens.begin(), model.end_tokens.end()};
  constexpr std::array kNames{"<|endoftext|>", "<|end|>", "<|im_end|>", "<|eot_id|>", "</s>"};
  for (const char* name : kNames) {
    if (const auto id = tokenizer.added_token(name)) return {*id};
  }
  return {};
}

}  // namespace nanscope
