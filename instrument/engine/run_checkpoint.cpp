#include "instrument/engine/run_checkpoint.h"

#include <algorithm>
#include <utility>

#include "core/numbers/decode_span.h"
#include "instrument/engine/model_folder.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {

Status run_checkpoint(
    const std::filesystem::path& folder, const std::vector<std::int32_t>& ids, std::stop_token stop,
    const std::function<std::unique_ptr<Probe>(kernels::Device& device, const LoadedModel& model)>& listen) {
  constexpr std::int64_t kLeastBlock = 16;
  EngineConfig config;
  if (Status used = use_model_folder(config, folder); !used) return used;
  config.activation_format = Format::f32;
  config.kv.format = Format::f32;
  config.kv.blocks = std::max(config.kv.blocks, static_cast<std::int64_t>(ids.size()) / kLeastBlock + 4);
  const auto device = kernels::make_device("cpu", 0);
  if (!device) return tl::unexpected(device.error());
  auto none = Tokenizer::none();
  if (!none) return tl::unexpected(none.error());
  const auto tokenizer = std::make_shared<const Tokenizer>(std::move(*none));
  const auto source = make_weight_source(config.model);
  if (!source) return tl::unexpected(source.error());
  const auto model = load_model(config, **device, **source, *tokenizer, stop);
  if (!model) return tl::unexpected(model.error());
  const auto engine = Engine::create(config, **device, *model, tokenizer);
  if (!engine) return tl::unexpected(engine.error());
  const std::unique_ptr<Probe> probe = listen(**device, **model);
  const std::vector<RequestSpec> requests{{.name = "text", .parts = {TokensPart{ids}}, .max_tokens = 1}};
  const auto ran = (*engine)->run(requests, *probe, {.progress = {}, .stop = std::move(stop)});
  return ran ? Status() : tl::unexpected(ran.error());
}

Result<std::vector<float>> floats_of(kernels::Device& device, const kernels::TensorView& view) {
  const std::size_t width = info(view.format).storage_bytes();
  const auto columns = static_cast<std::size_t>(view.columns);
  const auto rows = static_cast<std::size_t>(view.rows);
  const auto stride = static_cast<std::size_t>(view.stride);
  if (rows == 0 || columns == 0) return std::vector<float>();
  std::vector<std::byte> bytes(((rows - 1) * stride + columns) * width);
  if (Status got = device.download(bytes, view.data); !got) return tl::unexpected(got.error());
  std::vector<float> values(rows * columns);
  for (std::size_t row = 0; row < rows; ++row) {
    decode(view.format, std::span(bytes).subspan(row * stride * width, columns * width),
           std::span(values).subspan(row * columns, columns));
  }
  return values;
}

}  // namespace nanscope
