#include "instrument/quantize/encode_weight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/blocks/block_codec.h"
#include "core/blocks/block_elements.h"
#include "core/numbers/decode_span.h"
#include "core/threads/parallel.h"
#include "instrument/quantize/loss.h"
#include "instrument/quantize/weight_loops.h"

namespace nanscope {
namespace {

constexpr std::int64_t kBandElements = 1 << 18;  ///< what a core's own cache holds, with what is made of it

/// Rows of a weight that are done at once, and how many such bands there are.
struct Bands {
  std::int64_t rows = 0;
  std::int64_t height = 0;
  std::int64_t count = 0;

  Bands(std::int64_t rows_of_weight, std::int64_t columns, std::int64_t block_rows) : rows(rows_of_weight) {
    const std::int64_t blocks = std::max<std::int64_t>(1, kBandElements / columns / block_rows);
    height = std::min(rows, blocks * block_rows);
    count = (rows + height - 1) / height;
  }
  std::int64_t first(std::int64_t band) const { return band * height; }
  std::int64_t size(std::int64_t band) const { return std::min(height, rows - first(band)); }
};

/// Rows of a stored matrix as f32.
void load_rows(const CheckpointFiles::Tensor& tensor, std::int64_t first, std::span<float> values) {
  const Format format = *tensor.entry->format;
  const std::size_t width = info(format).storage_bytes();
  const auto begin = static_cast<std::size_t>(first * tensor.entry->shape[1]) * width;
  if (format == Format::bf16)
    return weight_loops().widen_bf16(tensor.bytes().data() + begin, values.data(), values.size());
  decode(format, tensor.bytes().subspan(begin, values.size() * width), values);
}

/// One weight's band: what it is, what it becomes, and what that reads as. Its memory is used for the next band.
struct Band {
  std::vector<float> values, stored, limits;
  std::vector<std::byte> codes, scales;
};

class Encoder {
 public:
  Encoder(const QuantizePlan::Weight& weight, float amax, const QuantizeTarget& target)
      : weight_(weight),
        columns_(weight.tensor.entry->shape[1]),
        target_(target),
        format_(target.format),
        second_(amax > 0 ? second_block_scale(target.format, amax) : 1),
        whole_(amax > 0 ? amax / target.format.largest : 1) {}

  float second() const { return second_; }
  float whole() const { return whole_; }

  void encode(std::int64_t first, std::int64_t rows, Band& band) const {
    band.values.resize(static_cast<std::size_t>(rows * columns_));
    band.stored.resize(band.values.size());
    load_rows(weight_.tensor, first, band.values);
    if (target_.whole) {
      encode_whole(rows, band);
    } else {
      encode_grid(rows, band);
    }
  }

  /// Adds what a band lost to what is known of the weight.
  void measure(std::int64_t rows, const Band& band, QuantizedWeight& known) const {
    add_loss(band.values, band.stored, known);
    const std::int64_t high = target_.whole ? rows : format_.block.rows;
    const std::int64_t wide = target_.whole ? columns_ : format_.block.columns;
    const std::size_t per_row = band.limits.size() / static_cast<std::size_t>((rows + high - 1) / high);
    for (std::int64_t row = 0, at = 0; row < rows; row += high, ++at) {
      const auto begin = static_cast<std::size_t>(row * columns_);
      const auto count = static_cast<std::size_t>(std::min(high, rows - row) * columns_);
      add_blocks(std::span(band.values).subspan(begin, count), columns_, wide,
                 std::span(band.limits).subspan(static_cast<std::size_t>(at) * per_row, per_row), known);
    }
  }

 private:
  void encode_whole(std::int64_t rows, Band& band) const {
    band.codes.resize(band.values.size());
    BlockScale scale;
    scale.factor = whole_;
    const BlockPart part{band.values.data(), rows, columns_, columns_, 0};
    encode_elements(format_, part, scale, ElementRounding(format_, 0), true,
                    reinterpret_cast<std::uint8_t*>(band.codes.data()), columns_);
    decode(format_.element, band.codes, band.stored);
    for (float& value : band.stored) value *= whole_;
    band.limits.assign(1, format_.largest * whole_);
  }

  void encode_grid(std::int64_t rows, Band& band) const {
    const BlockBytes bytes = block_bytes(format_, rows, columns_);
    band.codes.resize(bytes.codes);
    band.scales.resize(bytes.scales);
    encode_blocks(format_, band.values, rows, columns_, second_, {band.codes, band.scales});
    decode_blocks(format_, {band.codes, band.scales}, rows, columns_, second_, band.stored);
    const std::size_t width = info(format_.scale).storage_bytes();
    band.limits.resize(bytes.scales / width);
    decode(format_.scale, band.scales, band.limits);
    for (float& limit : band.limits) {
      limit = format_.largest * (format_.second == SecondScale::divisor ? limit / second_ : limit * second_);
    }
  }

  const QuantizePlan::Weight& weight_;
  std::int64_t columns_;
  const QuantizeTarget& target_;
  BlockFormat format_;
  float second_;
  float whole_;
};

}  // namespace

Result<float> largest_magnitude(const CheckpointFiles::Tensor& tensor, const QuantizeOptions& options) {
  const Bands bands(tensor.entry->shape[0], tensor.entry->shape[1], 1);
  float largest = 0;
  std::mutex mutex;
  const Status done =
      for_each_part<Band>(bands.count, options.threads, options.stop, [&](std::int64_t at, Band& band) -> Status {
        band.values.resize(static_cast<std::size_t>(bands.size(at) * tensor.entry->shape[1]));
        load_rows(tensor, bands.first(at), band.values);
        const float amax = block_amax(band.values);
        const std::lock_guard lock(mutex);
        if (!(amax <= largest)) largest = amax;
        return {};
      });
  if (!done) return tl::unexpected(done.error());
  return largest;
}

Result<QuantizedWeight> encode_weight(const QuantizePlan::Weight& weight, float amax, const QuantizeOptions& options,
                                      const WriteAt& write) {
  const QuantizeTarget& target = *options.target;
  QuantizedWeight known;
  known.module = weight.module;
  known.rows = weight.tensor.entry->shape[0];
  known.columns = weight.tensor.entry->shape[1];
  const Encoder encoder(weight, amax, target);
  const std::int64_t block_rows = target.whole ? 1 : target.format.block.rows;
  const Bands bands(known.rows, known.columns, block_rows);
  const BlockBytes a_band = target.whole ? BlockBytes{static_cast<std::size_t>(bands.height * known.columns), 0}
                                         : block_bytes(target.format, bands.height, known.columns);
  std::mutex mutex;
  const Status done =
      for_each_part<Band>(bands.count, options.threads, options.stop, [&](std::int64_t at, Band& band) -> Status {
        const std::int64_t rows = bands.size(at);
        encoder.encode(bands.first(at), rows, band);
        QuantizedWeight part;
        encoder.measure(rows, band, part);
        // Squares of f32 are finite in f64: a sum that is not has met NaN or Inf.
        if (!std::isfinite(part.signal))
          return fail(weight.tensor.where() + " holds NaN or Inf, which no scale is made of");
        const auto place = static_cast<std::uint64_t>(at);
        if (Status wrote = write(0, place * a_band.codes, band.codes); !wrote) return wrote;
        if (!target.whole) {
          if (Status wrote = write(1, place * a_band.scales, band.scales); !wrote) return wrote;
        }
        const std::lock_guard lock(mutex);
        known.signal += part.signal;
        known.noise += part.noise;
        known.clipped += part.clipped;
        known.flushed += part.flushed;
        known.blocks += part.blocks;
        known.owned += part.owned;
        return {};
      });
  if (!done) return tl::unexpected(done.error());
  const auto bytes_of = [](const float& value) { return std::as_bytes(std::span(&value, 1)); };
  const float whole = encoder.whole();
  const float second = encoder.second();
  if (target.whole) {
    if (Status wrote = write(1, 0, bytes_of(whole)); !wrote) return tl::unexpected(wrote.error());
  }
  if (!target.second.empty()) {
    if (Status wrote = write(2, 0, bytes_of(second)); !wrote) return tl::unexpected(wrote.error());
  }
  return known;
}

}  // namespace nanscope
