/// Fits the reference model's output head in closed form: ridge regression of the next token on the
/// final hidden state over windows of the shipped text, rounded to bf16. Run by hand when the text, the
/// vocabulary or the construction changes: fit_reference_head CORPUS OUT.
#include <fmt/format.h>

#include <bit>
#include <cstdio>
#include <string>
#include <vector>

#include "core/files/output_file.h"
#include "core/numbers/codec.h"
#include "instrument/engine/engine.h"
#include "instrument/engine/reference_weights.h"
#include "instrument/files/file.h"
#include "instrument/tokenizer/shipped.h"
#include "instrument/weights/ridge.h"

namespace nanscope {
namespace {

constexpr std::size_t kWindowSentences = 4;
constexpr double kLambda = 30.0;
constexpr float kLogitScale = 16.0F;  // makes the scores look like logits; argmax does not see it
constexpr std::uint64_t kMaxCorpusBytes = 1U << 20U;

/// Keeps the final hidden states of every prefill.
class HiddenStates final : public Probe {
 public:
  explicit HiddenStates(kernels::Device& device) : device_(device) {}

  Status on_step_begin(const StepRow& step) override {
    prefill_ = step.kind == StepKind::prefill;
    return {};
  }
  Status on_op(const ProbeOp& op) override {
    if (!prefill_ || op.name != "final_norm") return {};
    const kernels::TensorView& view = op.outputs.front().view;
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    Status status = device_.download(std::as_writable_bytes(std::span(values)), view.data);
    states.push_back(std::move(values));
    return status;
  }

  std::vector<std::vector<float>> states;

 private:
  kernels::Device& device_;
  bool prefill_ = false;
};

/// Overlapping windows of sentences, so that a token is seen at many positions and after many pasts.
std::vector<RequestSpec> windows(std::string_view text) {
  std::vector<std::string> sentences;
  std::string sentence;
  for (char c : text) {
    sentence.push_back(c == '\n' ? ' ' : c);
    if (c == '.') {
      sentences.push_back(sentence.substr(sentence.find_first_not_of(' ')));
      sentence.clear();
    }
  }
  std::vector<RequestSpec> requests;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    std::string window = sentences[i];
    for (std::size_t j = 1; j < kWindowSentences; ++j) window += " " + sentences[(i + j) % sentences.size()];
    requests.push_back({.name = "window", .parts = {TextPart{std::move(window)}}, .max_tokens = 1});
  }
  return requests;
}

struct Samples {
  std::vector<float> features;
  std::vector<std::int32_t> next;
};

Samples samples(const RunResult& result, const HiddenStates& hidden, std::size_t width) {
  Samples all;
  for (std::size_t r = 0; r < result.requests.size(); ++r) {
    const std::vector<std::int32_t>& tokens = result.requests[r].prompt_tokens;
    for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
      const auto begin = hidden.states[r].begin() + static_cast<std::ptrdiff_t>(t * width);
      all.features.insert(all.features.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
      all.next.push_back(tokens[t + 1]);
    }
  }
  return all;
}

std::vector<std::byte> transposed_bf16(const std::vector<float>& weights, std::size_t width, std::size_t vocabulary) {
  std::vector<std::byte> bytes;
  for (std::size_t v = 0; v < vocabulary; ++v) {
    for (std::size_t d = 0; d < width; ++d) {
      const std::uint32_t code = encode(Format::bf16, kLogitScale * weights[d * vocabulary + v], Overflow::saturate);
      bytes.push_back(static_cast<std::byte>(code & 0xffU));
      bytes.push_back(static_cast<std::byte>(code >> 8U));
    }
  }
  return bytes;
}

Result<std::string> fit(const std::string& corpus_path, const std::string& out_path) {
  auto corpus = read_file(corpus_path, kMaxCorpusBytes);
  if (!corpus) return tl::unexpected(corpus.error());
  const std::vector<RequestSpec> requests = windows(as_text(*corpus));

  EngineConfig config;
  config.model.inner_norm = true;
  config.kv.format = Format::f32;
  config.kv.prefix_cache = false;
  auto device = kernels::make_device("cpu");
  if (!device) return tl::unexpected(device.error());
  auto tokenizer = load_shipped_tokenizer();
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  auto shared_tokenizer = std::make_shared<const Tokenizer>(std::move(*tokenizer));
  auto source = make_reference_weights(config.model, std::vector<float>{});
  if (!source) return tl::unexpected(source.error());
  auto model = load_model(config, **device, **source, *shared_tokenizer);
  if (!model) return tl::unexpected(model.error());
  auto engine = Engine::create(config, **device, *model, shared_tokenizer);
  if (!engine) return tl::unexpected(engine.error());
  HiddenStates hidden(**device);
  auto result = (*engine)->run(requests, hidden);
  if (!result) return tl::unexpected(result.error());

  const auto width = static_cast<std::size_t>(config.model.width);
  const auto vocabulary = static_cast<std::size_t>(shared_tokenizer->vocab_size());
  const Samples all = samples(*result, hidden, width);
  auto weights =
      ridge_classes(all.features, config.model.width, all.next, static_cast<std::int64_t>(vocabulary), kLambda);
  if (!weights) return tl::unexpected(weights.error());
  const Status written = write_output(out_path, transposed_bf16(*weights, width, vocabulary), {.replace = true});
  if (!written) return tl::unexpected(written.error());
  return fmt::format("{} windows, {} samples, head {} x {} written to {}", requests.size(), all.next.size(), vocabulary,
                     width, out_path);
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: fit_reference_head CORPUS OUT\n");
    return 2;
  }
  const auto report = nanscope::fit(argv[1], argv[2]);
  if (!report) {
    fmt::print(stderr, "fit_reference_head: {}\n", report.error().message);
    return 2;
  }
  fmt::print("{}\n", *report);
  return 0;
}
