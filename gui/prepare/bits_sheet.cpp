#include "gui/prepare/bits_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/numbers/bits_words.h"
#include "gui/prepare/story.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/recompute/scaled.h"

namespace nanscope::gui {
namespace {

Cell tone_of(const Anatomy& anatomy) {
  if (anatomy.kind == NumberClass::nan) return kNan;
  if (anatomy.kind == NumberClass::inf) return kInf;
  return anatomy.value == 0 ? kZero : kHealthyFirst;
}

std::string number_text(double value) { return std::isnan(value) ? "NaN" : fmt::format("{:.6g}", value); }

/// NaN, then Inf, then the largest magnitude: the first of them in [begin, end).
std::int64_t worst_of(const TensorData& elements, std::int64_t begin, std::int64_t end) {
  const auto badness = [&](std::int64_t index) {
    const float value = std::abs(elements.value(index));
    return std::isnan(value) ? std::pair{1, 0.0F} : std::pair{0, value};
  };
  std::int64_t worst = begin;
  for (std::int64_t i = begin + 1; i < end; ++i) {
    if (badness(i) > badness(worst)) worst = i;
  }
  return worst;
}

/// An element of a tensor whose elements could be had.
struct Spot {
  Subject subject;
  Elements elements;
  std::int64_t row = 0;
  std::int64_t channel = 0;

  std::uint32_t code() const { return elements->code(row, channel); }
  float value() const { return elements->value(row, channel); }
};

/// Of the rows that are somebody's.
std::int64_t worst_of_all(const Subject& subject, const TensorData& elements) {
  if (subject.row_names.empty()) return worst_of(elements, 0, elements.count());
  const std::int64_t channels = elements.channels;
  TensorData candidates{elements.format, 0, 1, {}};
  std::vector<std::int64_t> indices;
  const std::size_t size = info(elements.format).storage_bytes();
  for (std::int64_t row = 0; row < elements.tokens; ++row) {
    if (subject.nobodys(row)) continue;
    indices.push_back(worst_of(elements, row * channels, (row + 1) * channels));
    const auto from =
        elements.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(indices.back()) * size);
    candidates.bytes.insert(candidates.bytes.end(), from, from + static_cast<std::ptrdiff_t>(size));
    ++candidates.tokens;
  }
  if (indices.empty()) return 0;
  return indices[static_cast<std::size_t>(worst_of(candidates, 0, candidates.tokens))];
}

class BitsSheetMaker {
 public:
  explicit BitsSheetMaker(RunView& run) : run_(run) {}

  Result<BitsSheet> make(const Place& place, std::int64_t call) {
    const Result<Subject> subject = find_subject(run_, place, call);
    if (!subject) {
      return nothing(subject.error().message, "Click a cell of the front or type a place, such as 2/0/1/v_proj[7,0]");
    }
    std::optional<Spot> spot = choose(*subject, place);
    if (!spot) {
      return nothing(fmt::format("The elements of {}.{} cannot be had", subject->op.name, subject->tensor.role),
                     sheet_.advice);
    }
    tell(*spot);
    if (chosen_) sheet_.choice = choice_words(*spot, place);
    if (Status status = run_.status(); !status) return tl::unexpected(status.error());
    return std::move(sheet_);
  }

 private:
  static BitsSheet nothing(std::string notice, std::string advice) {
    BitsSheet sheet;
    sheet.notice = std::move(notice);
    sheet.advice = std::move(advice);
    return sheet;
  }

  std::optional<Spot> choose(const Subject& subject, const Place& place) {
    const std::optional<std::int64_t> row = row_of(subject, place);
    const std::optional<std::int64_t> channel = channel_of(subject.tensor, place);
    Result<Elements> elements = fetch_elements(run_, subject.tensor);
    if (!elements || (*elements)->count() == 0) {
      sheet_.advice = elements ? "The tensor is empty" : elements.error().message;
      return std::nullopt;
    }
    Spot spot{subject, *elements, row.value_or(0), channel.value_or(0)};
    if (row && channel) return spot;
    const std::int64_t channels = subject.tensor.channels;
    const std::int64_t index =
        row ? worst_of(**elements, *row * channels, (*row + 1) * channels) : worst_of_all(subject, **elements);
    spot.row = index / channels;
    spot.channel = index % channels;
    chosen_ = true;
    return spot;
  }

  /// What the element that was taken is among those that the place names.
  std::string choice_words(const Spot& spot, const Place& place) const {
    const auto selected =
        std::find_if(sheet_.stages.begin(), sheet_.stages.end(), [](const BitsStage& stage) { return stage.selected; });
    const Cell tone = selected != sheet_.stages.end() ? selected->tone : kHealthyFirst;
    const Format format = spot.subject.tensor.format;
    const bool at_end = spot.subject.tensor.health.clipped > 0 && std::abs(spot.value()) == info(format).max_finite;
    std::string what = "the largest value";
    if (tone == kNan) what = "the first NaN";
    if (tone == kInf) what = "the first Inf";
    if (tone == kClipped || (tone < kClipped && at_end)) what = "the first clipped value";
    return place.token ? fmt::format("{} of token {}", what, *place.token) : what + " of the tensor";
  }

  /// The element (row, channel) of another tensor; nothing when it cannot be had.
  std::optional<Spot> spot_of(const Tensor& tensor, const Span& span, std::int64_t row, std::int64_t channel) {
    if (row < 0 || row >= tensor.tokens || channel < 0 || channel >= tensor.channels) return std::nullopt;
    Result<Elements> elements = fetch_elements(run_, tensor);
    if (!elements) return std::nullopt;
    return Spot{subject_of(run_, tensor, &span), std::move(*elements), row, channel};
  }

  BitsStage& add(const Spot& spot, std::string title, bool selected) {
    BitsStage stage;
    stage.title = std::move(title);
    stage.target.place = element_place(spot.subject, spot.row, spot.channel);
    stage.target.element = spot.row * spot.subject.tensor.channels + spot.channel;
    stage.anatomy = dissect(spot.subject.tensor.format, spot.code());
    stage.tone = tone_of(stage.anatomy);
    stage.selected = selected;
    sheet_.stages.push_back(std::move(stage));
    return sheet_.stages.back();
  }

  void tell(const Spot& chosen) {
    if (chosen.subject.op.kind == OpKind::kv_read) {
      if (const std::optional<Spot> stored = stored_for(chosen)) {
        tell_storing(*stored, chosen, false);
        return;
      }
    }
    if (chosen.subject.op.kind == OpKind::block_quantise && tell_block(chosen)) return;
    if (tell_weight(chosen)) return;
    if (storing_of(run_, chosen.subject)) {
      tell_storing(chosen, read_back(chosen), true);
      return;
    }
    add(chosen, "Value", true);
    measure(chosen, std::nullopt);
  }

  /// Before storing, stored, read back: what of it can be had.
  void tell_storing(const Spot& stored, const std::optional<Spot>& read, bool stored_selected) {
    const std::optional<Storing> storing = storing_of(run_, stored.subject);
    const std::optional<float> scale = storing ? storing->scale(stored.row, stored.channel) : std::nullopt;
    std::optional<Spot> before;
    if (storing && storing->source && !storing->source_rows.empty()) {
      before = spot_of(*storing->source, stored.subject.span,
                       storing->source_rows[static_cast<std::size_t>(stored.row)], stored.channel);
    }
    std::optional<Rounding> rounding;
    if (before) {
      if (scale) rounding = rounding_of(*before, stored, *scale, storing->overflow);
      add(*before, "Before storing", false).next = storing_words(scale, rounding);
    }
    sheet_.main = sheet_.stages.size();
    BitsStage& stage = add(stored, "Stored", stored_selected);
    if (rounding && rounding->clipped) stage.tone = kClipped;
    if (read) {
      stage.next = scale ? fmt::format("\u00D7 scale {}", number_text(double{*scale})) : "\u00D7 its scale";
      add(*read, "Read back", !stored_selected);
    } else if (scale && !before) {
      stage.next = fmt::format("\u00D7 scale {} = {}", number_text(double{*scale}),
                               number_text(double{stored.value() * *scale}));
    }
    measure(stored, rounding);
    if (!rounding || !before) return;
    tell_loss(*before, read ? double{read->value()} : double{stored.value()} * double{*scale});
  }

  /// The elements of a block and what they share.
  struct BlockOfOne {
    Spot before;
    Spot stored;
    Spot scale;
    std::int64_t first;  ///< channel
    std::int64_t end;
    std::int64_t owner;  ///< channel that set the scale
    float whole;         ///< of scale and scale of the tensor
  };

  /// That of an element of the codes or of the scales; nothing where the op lacks a tensor of it.
  std::optional<BlockOfOne> block_of(const Spot& chosen) {
    const Op& op = chosen.subject.op;
    const auto* how = op.get<BlockAttributes>();
    const Tensor* x = run_.input(op, "x");
    const Tensor* codes = run_.output(op, "codes");
    const Tensor* scales = run_.output(op, "scales");
    if (how == nullptr || x == nullptr || codes == nullptr || scales == nullptr) return std::nullopt;
    const std::int64_t width = std::max<std::int64_t>(how->block.value_or(32), 1);
    const bool of_scale = chosen.subject.tensor.id == scales->id;
    const std::int64_t block = of_scale ? chosen.channel : chosen.channel / width;
    const std::int64_t first = block * width;
    const std::optional<std::int64_t> row = run_.same_row(chosen.subject.tensor, chosen.row, *x);
    if (!row || first >= codes->channels) return std::nullopt;
    const std::optional<Spot> values = spot_of(*x, chosen.subject.span, *row, first);
    const std::optional<Spot> stored = spot_of(*codes, chosen.subject.span, chosen.row, first);
    std::optional<Spot> scale = spot_of(*scales, chosen.subject.span, chosen.row, block);
    if (!values || !stored || !scale) return std::nullopt;
    const std::int64_t end = std::min({first + width, x->channels, codes->channels});
    const std::int64_t owner =
        worst_of(*values->elements, *row * x->channels + first, *row * x->channels + end) % x->channels;
    BlockOfOne found{*values,
                     *stored,
                     *scale,
                     first,
                     end,
                     owner,
                     scale->value() * static_cast<float>(how->tensor_scale.value_or(1))};
    found.before.channel = found.stored.channel = of_scale ? owner : chosen.channel;
    return found;
  }

  /// The value, its code, the scale of its block and who set it. False when one of them cannot be had.
  bool tell_block(const Spot& chosen) {
    const std::optional<BlockOfOne> block = block_of(chosen);
    if (!block) return false;
    const bool of_scale = chosen.subject.tensor.id == block->scale.subject.tensor.id;
    const std::optional<Rounding> rounding =
        rounding_of(block->before, block->stored, block->whole, Overflow::saturate);
    add(block->before, "Before storing", false).next = storing_words(block->whole, rounding);
    BitsStage& stored = add(block->stored, "Stored", !of_scale);
    if (rounding && rounding->clipped) stored.tone = kClipped;
    const float read = block->stored.value() * block->whole;
    stored.next = fmt::format("\u00D7 scale {} = {}", number_text(double{block->whole}), number_text(double{read}));
    add(block->scale, "Scale of the block", of_scale);
    sheet_.main = of_scale ? 2 : 1;
    measure(of_scale ? block->scale : block->stored, of_scale ? std::nullopt : rounding);
    if (!of_scale && rounding) tell_loss(block->before, double{read});
    sheet_.block = block_words(*block);
    return true;
  }

  static std::string block_words(const BlockOfOne& block) {
    std::int64_t clipped = 0;
    std::int64_t flushed = 0;
    const float most = std::abs(block.whole) * info(block.stored.subject.tensor.format).max_finite;
    for (std::int64_t channel = block.first; channel < block.end; ++channel) {
      const float value = block.before.elements->value(block.before.row, channel);
      const float stored = block.stored.elements->value(block.stored.row, channel);
      if (std::abs(value) > most) ++clipped;
      if (stored == 0 && value != 0) ++flushed;
    }
    const float owner = block.before.elements->value(block.before.row, block.owner);
    std::string words = fmt::format("Channel {} set the scale of channels {} to {} with {}", block.owner, block.first,
                                    block.end - 1, number_text(double{owner}));
    if (clipped > 0) words += fmt::format("; {} clipped", clipped);
    if (flushed > 0) words += fmt::format("; {} of {} stored as 0", flushed, block.end - block.first);
    return words;
  }

  /// A weight's codes under the scales that a product multiplies them by.
  struct WeightScales {
    Tensor codes;
    Tensor scale;
    std::optional<Tensor> second;
    ScaleGrid grid;
  };

  /// Of a tensor that is either of them.
  std::optional<WeightScales> weight_scales(const Tensor& chosen) {
    for (const Op* reader : run_.readers(chosen)) {
      const Tensor* weight = run_.input(*reader, "weight");
      const Tensor* scale = run_.input(*reader, "weight_scale");
      if (weight == nullptr || scale == nullptr || !holds_codes(weight->format)) continue;
      if (chosen.id != weight->id && chosen.id != scale->id) continue;
      const Tensor* second = run_.input(*reader, "weight_scale_2");
      std::optional<ScaleGrid> grid = ScaleGrid::of(run_, *scale, *weight);
      if (!grid) return std::nullopt;
      return WeightScales{*weight, *scale, second != nullptr ? std::optional(*second) : std::nullopt, *grid};
    }
    return std::nullopt;
  }

  /// Elements of a weight that share a scale.
  struct WeightBlock {
    std::int64_t row, end_row, channel, end_channel;
    std::int64_t owner_row, owner_channel;  ///< of the largest code
    std::int64_t zeros = 0;
  };

  static WeightBlock weight_block(const ScaleGrid& grid, const TensorData& codes, std::int64_t cell) {
    const ScaleGrid::Corner corner = grid.corner(cell);
    const std::int64_t high = grid.rows_a_cell() > 0 ? grid.rows_a_cell() : codes.tokens;
    const std::int64_t wide = grid.channels_a_cell() > 0 ? grid.channels_a_cell() : codes.channels;
    WeightBlock block{corner.row,     std::min(corner.row + high, codes.tokens),
                      corner.channel, std::min(corner.channel + wide, codes.channels),
                      corner.row,     corner.channel};
    const auto badness = [&](std::int64_t index) {
      const float value = std::abs(codes.value(index));
      return std::isnan(value) ? std::pair{1, 0.0F} : std::pair{0, value};
    };
    std::int64_t owner = corner.row * codes.channels + corner.channel;
    for (std::int64_t row = block.row; row < block.end_row; ++row) {
      const std::int64_t begin = row * codes.channels;
      const std::int64_t worst = worst_of(codes, begin + block.channel, begin + block.end_channel);
      if (badness(worst) > badness(owner)) owner = worst;
      for (std::int64_t channel = block.channel; channel < block.end_channel; ++channel) {
        block.zeros += codes.value(begin + channel) == 0 ? 1 : 0;
      }
    }
    block.owner_row = owner / codes.channels;
    block.owner_channel = owner % codes.channels;
    return block;
  }

  /// The code, the scale of its block and who in the block set it. False when one of them cannot be had.
  bool tell_weight(const Spot& chosen) {
    const std::optional<WeightScales> found = weight_scales(chosen.subject.tensor);
    if (!found || found->grid.by_head()) return false;
    const bool of_scale = chosen.subject.tensor.id == found->scale.id;
    const std::int64_t cell = of_scale ? chosen.row * found->scale.channels + chosen.channel
                                       : static_cast<std::int64_t>(found->grid.index_at(chosen.row, chosen.channel));
    std::optional<Spot> stored = spot_of(found->codes, chosen.subject.span, 0, 0);
    const std::optional<Spot> scale =
        spot_of(found->scale, chosen.subject.span, cell / found->scale.channels, cell % found->scale.channels);
    if (!stored || !scale) return false;
    const WeightBlock block = weight_block(found->grid, *stored->elements, cell);
    stored->row = of_scale ? block.owner_row : chosen.row;
    stored->channel = of_scale ? block.owner_channel : chosen.channel;
    const double factor = found->grid.at(stored->row, stored->channel);
    sheet_.main = of_scale ? 1 : 0;
    BitsStage& code = add(*stored, "Stored", !of_scale);
    code.next = fmt::format("\u00D7 scale {} = {}", number_text(factor), number_text(double{stored->value()} * factor));
    if (found->second) code.next += ", and the scale of the whole weight";
    add(*scale, "Scale of the block", of_scale);
    measure(of_scale ? *scale : *stored, std::nullopt);
    sheet_.block = weight_words(found->grid, *stored->elements, block);
    return true;
  }

  static std::string weight_words(const ScaleGrid& grid, const TensorData& codes, const WeightBlock& block) {
    const auto value = double{codes.value(block.owner_row, block.owner_channel)};
    const double most = info(codes.format).max_finite;
    const std::int64_t count = (block.end_row - block.row) * (block.end_channel - block.channel);
    std::string words = fmt::format("Row {}, channel {} has the largest code, {}, ", block.owner_row,
                                    block.owner_channel, number_text(value));
    words += grid.single() ? "of the weight, which has one scale"
                           : fmt::format("of rows {} to {}, channels {} to {}, which share the scale", block.row,
                                         block.end_row - 1, block.channel, block.end_channel - 1);
    if (std::abs(value) < most) words += fmt::format("; the largest of the format, {:g}, is not used", most);
    if (block.zeros > 0) words += fmt::format("; {} of {} are 0", block.zeros, count);
    return words;
  }

  /// How kernels store: one division in f32, one rounding. Nothing when the code is not what that
  /// gives: the scale was another then.
  static std::optional<Rounding> rounding_of(const Spot& before, const Spot& stored, float scale, Overflow overflow) {
    const float quotient = before.value() / scale;
    Rounding rounding = round_bits(stored.subject.tensor.format, std::bit_cast<std::uint32_t>(quotient), overflow);
    if (rounding.code != stored.code()) return std::nullopt;
    return rounding;
  }

  static std::string storing_words(std::optional<float> scale, const std::optional<Rounding>& rounding) {
    if (!scale) return "\u00F7 the scale of its token";
    std::string words = fmt::format("\u00F7 scale {}", number_text(double{*scale}));
    if (!rounding) return words;
    words += fmt::format(" = {}", number_text(rounding->value));
    if (rounding->clipped) {
      words += fmt::format(", beyond the largest finite {:g}", info(rounding->format).max_finite);
    }
    return words;
  }

  /// The element where attention, or whoever takes the codes, reads it as a number again.
  std::optional<Spot> read_back(const Spot& stored) {
    const Subject& subject = stored.subject;
    if (subject.op.kind == OpKind::kv_store) {
      for (const Op& op : run_.content(subject.step.id).ops) {
        if (op.kind != OpKind::kv_read || op.layer != subject.op.layer) continue;
        const Tensor* read = run_.output(op, subject.tensor.role.substr(0, 1) + "_read");
        if (read != nullptr && read->known) return spot_at(stored, *read);
      }
      return std::nullopt;
    }
    for (const Op* reader : run_.readers(subject.tensor)) {
      const Tensor* read = reader->kind == OpKind::dequantise ? run_.result(*reader) : nullptr;
      if (read != nullptr && read->known) return spot_at(stored, *read);
    }
    return std::nullopt;
  }

  /// The same token of another tensor of the step.
  std::optional<Spot> spot_at(const Spot& from, const Tensor& to) {
    const Tensor& tensor = from.subject.tensor;
    std::optional<std::int64_t> row = run_.same_row(tensor, from.row, to);
    if (!row && tensor.axis == Axis::slots && to.axis == Axis::slots && tensor.tokens == to.tokens) row = from.row;
    return row ? spot_of(to, from.subject.span, *row, from.channel) : std::nullopt;
  }

  /// The codes that were in the slot, whoever wrote them.
  std::optional<Spot> stored_for(const Spot& read) {
    Facts facts(run_);
    const std::string target = read.subject.tensor.role.substr(0, 1);
    const KeyRow key =
        facts.cache.key_row(read.subject.tensor, read.subject.step, read.subject.span, read.row, read.subject.op.layer);
    if (!key.slot) return std::nullopt;
    if (key.writer == nullptr) {
      sheet_.origin = "Nobody wrote this slot: what is read lay in the memory before";
      return std::nullopt;
    }
    const auto stored = facts.cache.stored_row(*key.writer, *key.slot, read.subject.op.layer, target);
    if (!stored) {
      sheet_.origin = fmt::format("No kv_store of this layer made it: {} left it in the slot as {}, in request {}",
                                  words(key.writer->writer), name(key.writer->format), key.writer->request);
      return std::nullopt;
    }
    const Step* step = run_.step(stored->codes->step);
    const Span* span = step != nullptr ? step->span_at(stored->row) : nullptr;
    return spot_of(*stored->codes, span != nullptr ? *span : read.subject.span, stored->row, read.channel);
  }

  /// Ruler and histogram of the stage that matters.
  void measure(const Spot& spot, const std::optional<Rounding>& rounding) {
    const Format format = spot.subject.tensor.format;
    if (rounding) {
      sheet_.verdict = bits::outcome(*rounding);
      sheet_.bucket = bits::bucket_text(*rounding, number_text(rounding->value));
      sheet_.ruler = make_ruler(*rounding);
    } else {
      Rounding itself = round_value(format, exact_value(format, spot.code()), Overflow::overflow);
      itself.code = spot.code();
      if (std::isfinite(itself.value)) itself.lower = itself.upper = spot.code();
      sheet_.ruler = make_ruler(itself);
    }
    sheet_.histogram = make_histogram(*spot.elements, spot.code(),
                                      spot.subject.tensor.health.clipped > 0 || (rounding && rounding->clipped));
  }

  /// `to`: what is read for the value, or would be.
  void tell_loss(const Spot& before, double to) {
    const double from = static_cast<double>(before.value());
    if (!std::isfinite(from) || !std::isfinite(to) || from == to) return;
    const double loss = std::abs(to - from);
    sheet_.lost = fmt::format("{} became {}: {} lost", number_text(from), number_text(to), number_text(loss));
    if (from != 0) sheet_.lost += fmt::format(" ({})", bits::percent(loss / std::abs(from)));
  }

  RunView& run_;
  BitsSheet sheet_;
  bool chosen_ = false;  ///< the place names no element
};

}  // namespace

Result<BitsSheet> make_bits_sheet(RunView& run, const Place& place, std::int64_t call) {
  return BitsSheetMaker(run).make(place, call);
}

}  // namespace nanscope::gui
