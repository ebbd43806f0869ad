#include "gui/prepare/bits_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "instrument/diagnosis/facts.h"
#include "core/numbers/bits_words.h"
#include "gui/prepare/story.h"

namespace nanscope::gui {
namespace {

Cell tone_of(const Anatomy& anatomy) {
  if (anatomy.kind == NumberClass::nan) return kNan;
  if (anatomy.kind == NumberClass::inf) return kInf;
  return anatomy.value == 0 ? kZero : kHealthyFirst;
}

std::string number(double value) { return std::isnan(value) ? "NaN" : fmt::format("{:.6g}", value); }

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

class SheetMaker {
 public:
  SheetMaker(RunData& run, TensorSource& tensors) : run_(run), tensors_(tensors) {}

  Result<BitsSheet> make(const Place& place) {
    const Result<Subject> subject = find_subject(run_, place);
    if (!subject) {
      return nothing(subject.error().message, "Click a cell of the front or type a place, such as 2/0/1/v_proj[7,0]");
    }
    std::optional<Spot> spot = choose(*subject, place);
    if (!spot) {
      return nothing(fmt::format("The elements of {}.{} cannot be had", subject->op.name, subject->tensor.role),
                     sheet_.advice);
    }
    tell(*spot);
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
    const std::optional<std::int64_t> row = row_of(subject.tensor, place);
    const std::optional<std::int64_t> channel = channel_of(subject.tensor, place);
    Result<Elements> elements = fetch_elements(tensors_, subject.tensor);
    if (!elements || (*elements)->count() == 0) {
      sheet_.advice = elements ? "The tensor is empty" : elements.error().message;
      return std::nullopt;
    }
    Spot spot{subject, *elements, row.value_or(0), channel.value_or(0)};
    if (row && channel) return spot;
    const std::int64_t channels = subject.tensor.channels;
    const std::int64_t index = row ? worst_of(**elements, *row * channels, (*row + 1) * channels)
                                   : worst_of(**elements, 0, (*elements)->count());
    spot.row = index / channels;
    spot.channel = index % channels;
    sheet_.choice = row ? fmt::format("the worst of token {}", *place.token) : "the worst of the tensor";
    return spot;
  }

  /// The element (row, channel) of another tensor; nothing when it cannot be had.
  std::optional<Spot> spot_of(const TensorRow& tensor, std::int64_t row, std::int64_t channel) {
    if (row < 0 || row >= tensor.tokens || channel < 0 || channel >= tensor.channels) return std::nullopt;
    const std::optional<OpRow> op = run_.op(tensor.op);
    const StepRow* step = op ? run_.step(op->step) : nullptr;
    if (step == nullptr) return std::nullopt;
    Result<Elements> elements = fetch_elements(tensors_, tensor);
    if (!elements) return std::nullopt;
    return Spot{{*step, *op, tensor, {tensor}}, std::move(*elements), row, channel};
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
    if (chosen.subject.op.kind == "kv_read") {
      if (const std::optional<Spot> stored = stored_for(chosen)) {
        tell_storing(*stored, chosen, false);
        return;
      }
    }
    if (const std::optional<Storing> storing = storing_of(run_, chosen.subject)) {
      tell_storing(chosen, read_back(chosen), true);
      return;
    }
    add(chosen, "Value", true);
    measure(chosen, std::nullopt);
  }

  /// Before storing, stored, read back: what of it can be had.
  void tell_storing(const Spot& stored, const std::optional<Spot>& read, bool stored_selected) {
    const std::optional<Storing> storing = storing_of(run_, stored.subject);
    std::optional<Spot> before;
    if (storing) {
      before = spot_of(storing->source, stored.subject.tensor.first_token + stored.row - storing->source.first_token,
                       stored.channel);
    }
    std::optional<Rounding> rounding;
    if (before) {
      if (storing->scale) rounding = rounding_of(*before, stored, *storing);
      add(*before, "Before storing", false).next = storing_words(*storing, rounding);
    }
    sheet_.main = sheet_.stages.size();
    BitsStage& stage = add(stored, "Stored", stored_selected);
    if (rounding && rounding->clipped) stage.tone = kClipped;
    if (read) {
      if (storing && storing->scale) stage.next = fmt::format("\u00D7 scale {}", number(double{*storing->scale}));
      if (stage.next.empty()) stage.next = "\u00D7 its scale";
      add(*read, "Read back", !stored_selected);
    }
    measure(stored, rounding);
    if (rounding && before && read) tell_loss(*before, *read);
  }

  /// How kernels store: one division in f32, one rounding. Nothing when the code is not what that
  /// gives: the scale was another then.
  static std::optional<Rounding> rounding_of(const Spot& before, const Spot& stored, const Storing& storing) {
    const float quotient = before.value() / *storing.scale;
    Rounding rounding =
        round_bits(stored.subject.tensor.format, std::bit_cast<std::uint32_t>(quotient), storing.overflow);
    if (rounding.code != stored.code()) return std::nullopt;
    return rounding;
  }

  static std::string storing_words(const Storing& storing, const std::optional<Rounding>& rounding) {
    if (!storing.scale) return "\u00F7 the scale of its token";
    std::string words = fmt::format("\u00F7 scale {}", number(double{*storing.scale}));
    if (!rounding) return words;
    words += fmt::format(" = {}", number(rounding->value));
    if (rounding->clipped) {
      words += fmt::format(", beyond the largest finite {:g}", info(rounding->format).max_finite);
    }
    return words;
  }

  /// Elements of kv_read stand at key positions.
  std::optional<Spot> read_back(const Spot& stored) {
    if (stored.subject.op.kind != "kv_store") return std::nullopt;
    const auto op = run_.find_op(stored.subject.step.id, stored.subject.op.layer, "kv_read");
    if (!op) return std::nullopt;
    const auto read = run_.output(op->id, stored.subject.tensor.role.substr(0, 1) + "_read");
    if (!read) return std::nullopt;
    return spot_of(*read, stored.subject.tensor.first_token + stored.row - read->first_token, stored.channel);
  }

  /// The codes that were in the slot, whoever wrote them.
  std::optional<Spot> stored_for(const Spot& read) {
    Facts facts(run_, tensors_);
    const KeyRow key = facts.key_row(read.subject.step, read.subject.op.layer, read.row);
    if (!key.slot) return std::nullopt;
    if (key.writer == nullptr) {
      sheet_.origin = "Nobody wrote this slot: what is read lay in the memory before";
      return std::nullopt;
    }
    const auto stored =
        facts.stored_row(*key.writer, *key.slot, read.subject.op.layer, read.subject.tensor.role.substr(0, 1));
    if (!stored) {
      sheet_.origin = fmt::format("No kv_store of this layer made it: {} left it in the slot as {}, in request {}",
                                  words(key.writer->writer), name(key.writer->format), key.writer->request);
      return std::nullopt;
    }
    return spot_of(stored->codes, stored->row, read.channel);
  }

  /// Ruler and histogram of the stage that matters.
  void measure(const Spot& spot, const std::optional<Rounding>& rounding) {
    const Format format = spot.subject.tensor.format;
    if (rounding) {
      sheet_.verdict = bits::outcome(*rounding);
      sheet_.bucket = bits::bucket_text(*rounding, number(rounding->value));
      sheet_.ruler = make_ruler(*rounding);
    } else {
      Rounding itself = round_value(format, exact_value(format, spot.code()), Overflow::overflow);
      itself.code = spot.code();
      if (std::isfinite(itself.value)) itself.lower = itself.upper = spot.code();
      sheet_.ruler = make_ruler(itself);
    }
    sheet_.histogram = make_histogram(*spot.elements, spot.code(), spot.subject.tensor.health.clipped > 0);
  }

  void tell_loss(const Spot& before, const Spot& read) {
    const double from = static_cast<double>(before.value());
    const double to = static_cast<double>(read.value());
    if (!std::isfinite(from) || !std::isfinite(to) || from == to) return;
    const double loss = std::abs(to - from);
    sheet_.lost = fmt::format("{} became {}: {} lost", number(from), number(to), number(loss));
    if (from != 0) sheet_.lost += fmt::format(" ({})", bits::percent(loss / std::abs(from)));
  }

  RunData& run_;
  TensorSource& tensors_;
  BitsSheet sheet_;
};

}  // namespace

Result<BitsSheet> make_bits_sheet(RunData& run, TensorSource& tensors, const Place& place) {
  return SheetMaker(run, tensors).make(place);
}

}  // namespace nanscope::gui
