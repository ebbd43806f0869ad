#include "core/dump/dump_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "core/dump/masked_scores.h"
#include "core/dump/pass_builder.h"
#include "core/tensor/health_of.h"

namespace nanscope {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 20;

/// The stored bytes of an element are a code of the format.
bool same_bytes(const DumpTensor& tensor, Format format) {
  return tensor.dtype->bits % 8 == 0 &&
         static_cast<std::size_t>(tensor.dtype->bits / 8) == info(format).storage_bytes() &&
         tensor.dtype->kind != DtypeKind::boolean && tensor.dtype->kind != DtypeKind::complex;
}

/// One element where its dtype is none of the run's: f64, wide integers, packed codes.
void convert(const DumpTensor& tensor, std::span<const std::byte> bytes, std::int64_t index, Format format,
             std::byte* into) {
  const auto at = static_cast<std::uint64_t>(index);
  if (format == Format::i32) {
    const std::int64_t value = stored_integer(*tensor.dtype, bytes, at);
    const auto narrow = static_cast<std::int32_t>(std::clamp<std::int64_t>(
        value, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()));
    std::memcpy(into, &narrow, sizeof(narrow));
  } else if (format == Format::f32) {
    const Result<std::vector<float>> value = decode_values(*tensor.dtype, bytes, at, 1);
    float number = value ? value->front() : 0.0F;
    if (tensor.dtype->bits == 64 && std::isinf(number)) {
      double stored = 0;
      std::memcpy(&stored, bytes.data() + at * sizeof(stored), sizeof(stored));
      // As its health has it: a finite f64 beyond f32 is finite still.
      if (std::isfinite(stored)) number = std::copysign(std::numeric_limits<float>::max(), number);
    }
    std::memcpy(into, &number, sizeof(number));
  } else {
    *into = static_cast<std::byte>(stored_code(*tensor.dtype, bytes, at));
  }
}

}  // namespace

Format run_format(const DumpTensor& tensor) {
  if (tensor.format) return *tensor.format;
  return tensor.dtype->kind == DtypeKind::real ? Format::f32 : Format::i32;
}

DumpRun::DumpRun(Dump dump, DumpElements& elements, std::stop_token stop, Geometry known)
    : dump_(std::move(dump)),
      elements_(elements),
      stop_(std::move(stop)),
      known_(std::move(known)),
      by_dumped_(dump_.tensors.size(), 0) {
  info_.scenario = "";
  info_.config = "{}";
  info_.device = "dump";
  info_.isa = dump_.producer;
  build();
}

const DumpTensor* DumpRun::dumped(TensorId tensor) const {
  const auto found = sources_.find(tensor);
  return found == sources_.end() ? nullptr : &dump_.tensors[found->second.dumped];
}

std::vector<RunNote> DumpRun::notes() {
  std::vector<RunNote> all = dump_.notes;
  all.insert(all.end(), not_understood_.begin(), not_understood_.end());
  return all;
}

RecordingCounts DumpRun::counts() {
  RecordingCounts counts = RunView::counts();
  counts.expected_tensors = static_cast<std::int64_t>(dump_.expected.value_or(0));
  return counts;
}

Layout DumpRun::layout_of(TensorId tensor) const {
  const auto found = sources_.find(tensor);
  return found == sources_.end() ? Layout{} : found->second.layout;
}

std::vector<Health> DumpRun::read_rows(const Tensor& tensor) {
  const auto found = sources_.find(tensor.id);
  if (found == sources_.end() || stop_.stop_requested() || tensor.tokens > kMostRows) return {};
  const auto& [index, layout, first_channel] = found->second;
  const DumpTensor& dumped = dump_.tensors[index];
  const std::int64_t stored_width = dumped.channels();
  const bool whole = first_channel == 0 && tensor.channels == layout.channels();
  if (!whole || stored_width == 0 || dumped.rows() > kMostRows) return rows_by_elements(tensor);
  const bool as_stored = layout.plain() && stored_width == layout.channels();
  const bool by_heads = layout.width == stored_width && layout.channel_stride == 1;
  if (!as_stored && !by_heads) return rows_by_elements(tensor);
  Result<std::vector<Health>> stored = elements_.row_health(dumped);
  if (!stored) return {};
  if (as_stored) return std::move(*stored);
  std::vector<Health> rows(static_cast<std::size_t>(tensor.tokens), empty_health());
  for (std::int64_t row = 0; row < tensor.tokens; ++row) {
    for (std::int64_t head = 0; head < layout.heads; ++head) {
      merge(rows[static_cast<std::size_t>(row)],
            (*stored)[static_cast<std::size_t>(layout.at(row, head, 0) / stored_width)]);
    }
  }
  return rows;
}

std::vector<Health> DumpRun::rows_by_elements(const Tensor& tensor) {
  const float largest =
      tensor.format == Format::i32 ? std::numeric_limits<float>::infinity() : nanscope::info(tensor.format).max_finite;
  std::vector<Health> rows;
  rows.reserve(static_cast<std::size_t>(tensor.tokens));
  each_block(tensor, [&](std::int64_t first, std::span<const float> values) {
    const auto width = static_cast<std::size_t>(std::max<std::int64_t>(1, tensor.channels));
    for (std::size_t at = 0; at + width <= values.size(); at += width) {
      const std::int64_t row = first + static_cast<std::int64_t>(at / width);
      rows.push_back(health_of(values.subspan(at, width), row * tensor.channels, largest));
    }
    return true;
  });
  return rows;
}

void DumpRun::change_format(TensorId id, Format format) {
  const auto found = sources_.find(id);
  const auto step = contents_.find(step_of_tensor(id));
  if (found == sources_.end() || step == contents_.end()) return;
  dump_.tensors[found->second.dumped].format = format;
  for (Tensor& tensor : step->second.tensors) {
    if (tensor.id != id) continue;
    tensor.format = format;
    tensor.health = empty_health();
    for (const Health& row : rows_by_elements(tensor)) merge(tensor.health, row);
  }
}

Fact<TensorData> DumpRun::read_elements(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  const auto found = sources_.find(tensor.id);
  if (found == sources_.end()) return absent(tensor.name + ": was not dumped");
  if (stop_.stop_requested()) return absent("stopped");
  const auto& [index, layout, first_channel] = found->second;
  const DumpTensor& dumped = dump_.tensors[index];
  const Result<ElementBytes> held = elements_.bytes(dumped);
  if (!held) return unreadable(held.error().message);
  const std::size_t size = nanscope::info(tensor.format).storage_bytes();
  TensorData out{tensor.format, count, tensor.channels, {}};
  out.bytes.resize(static_cast<std::size_t>(out.count()) * size);
  if (out.bytes.empty()) return out;
  const bool direct = same_bytes(dumped, tensor.format);
  const std::span<const std::byte> bytes = held->bytes;
  std::byte* to = out.bytes.data();
  if (direct && layout.plain() && first_channel == 0 && tensor.channels == layout.channels()) {
    std::memcpy(to, bytes.data() + static_cast<std::size_t>(first * tensor.channels) * size, out.bytes.size());
    return out;
  }
  for (std::int64_t row = first; row < first + count; ++row) {
    for (std::int64_t channel = 0; channel < tensor.channels;) {
      const std::int64_t all = channel + first_channel;
      const std::int64_t head = all / layout.width;
      const std::int64_t inside = all % layout.width;
      const std::int64_t beside = layout.channel_stride == 1 ? layout.width - inside : 1;
      const std::int64_t length = std::min(beside, tensor.channels - channel);
      const std::int64_t from = layout.at(row, head, inside);
      if (direct) {
        std::memcpy(to, bytes.data() + static_cast<std::size_t>(from) * size, static_cast<std::size_t>(length) * size);
      } else {
        for (std::int64_t i = 0; i < length; ++i) {
          convert(dumped, bytes, from + i, tensor.format, to + static_cast<std::size_t>(i) * size);
        }
      }
      to += static_cast<std::size_t>(length) * size;
      channel += length;
    }
  }
  return out;
}

std::optional<ElementBytes> DumpRun::stored(const Tensor& tensor) {
  const auto found = sources_.find(tensor.id);
  if (found == sources_.end() || stop_.stop_requested()) return std::nullopt;
  const auto& [index, layout, first_channel] = found->second;
  const DumpTensor& dumped = dump_.tensors[index];
  const bool whole = layout.plain() && first_channel == 0 && tensor.channels == layout.channels();
  if (!whole || !same_bytes(dumped, tensor.format)) return std::nullopt;
  Result<ElementBytes> held = elements_.bytes(dumped);
  return held ? std::optional(std::move(*held)) : std::nullopt;
}

void DumpRun::build() {
  has_ranks_ = std::any_of(dump_.tensors.begin(), dump_.tensors.end(),
                           [](const DumpTensor& one) { return one.at.rank.value_or(0) > 0; });
  PassBuilder builder(*this);
  std::vector<std::vector<std::size_t>> passes;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < dump_.tensors.size(); ++i) {
    const auto [pass, is_new] = known.emplace(dump_.tensors[i].at.pass(), passes.size());
    if (is_new) passes.emplace_back();
    passes[pass->second].push_back(i);
  }
  const auto outside = [&](const std::vector<std::size_t>& pass) {
    return std::all_of(pass.begin(), pass.end(), [&](std::size_t i) { return is_parameter(dump_.tensors[i]); });
  };
  begin(kBeforeSteps);
  for (const auto& pass : passes) {
    if (outside(pass)) builder.add_parameters(pass);
  }
  for (const auto& pass : passes) {
    if (!outside(pass)) builder.add_pass(pass);
  }
  add_request_rows();
  find_masked_scores();
}

/// Scores under a name that tells nothing: their -Inf would be taken for the first fault of a healthy attention.
void DumpRun::find_masked_scores() {
  for (auto& [id, content] : contents_) {
    if (id == kBeforeSteps) continue;
    for (Tensor& tensor : content.tensors) {
      const Op* made_by = maker(tensor);
      if (made_by == nullptr || tensor.hides || may_hide(tensor.role)) continue;
      // A second output of a module of an unknown name may be a mask of 0 and -Inf.
      const bool second = made_by->kind == OpKind::block && !made_by->by_name && tensor.health.absmax == 0;
      if (made_by->kind == OpKind::dumped || second) tensor.hides = looks_masked(*this, tensor);
    }
  }
}

void DumpRun::add_request_rows() {
  std::map<std::int64_t, RequestRow> rows;
  for (const Step& step : steps_) {
    for (const Span& span : step.spans) {
      RequestRow& row = rows[span.request];
      row.id = span.request;
      if (row.name.empty()) row.name = step.pass.empty() ? "dump" : step.pass;
      row.prompt = "[]";
    }
  }
  for (auto& [id, row] : rows) {
    std::replace(row.name.begin(), row.name.end(), '|', ' ');
    requests_.push_back(std::move(row));
  }
}

}  // namespace nanscope
