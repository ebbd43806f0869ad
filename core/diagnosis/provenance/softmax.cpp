#include <fmt/format.h>

#include <algorithm>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// p = exp(s - max) / sum over a row of keys: one NaN score makes the row NaN, and so does a row without keys.
Explanation explain_softmax(const Subject& subject) {
  const std::optional<InputTensor> scores = input_tensor(subject, {"scores", "x"});
  if (!scores) return {};
  const std::int64_t heads = std::max<std::int64_t>(1, count_attribute(subject.op, "heads", subject.tensor.heads));
  const std::int64_t keys = std::max<std::int64_t>(subject.tensor.channels / heads, 1);
  const std::int64_t head = subject.element.channel / keys;
  const std::int64_t row = scores->row_of(subject);
  const std::int64_t first = head * keys;
  Explanation found;
  found.numbers = {{"head", head}, {"keys", keys}};
  const auto first_key = number_attribute(subject.op, "first_key");
  const auto first_position = number_attribute(subject.op, "first_position");
  if (first_key && first_position) {
    const double last = *first_position + static_cast<double>(subject.element.row);
    found.numbers.push_back({"first visible key", *first_key});
    found.numbers.push_back({"last visible key", last});
    if (subject.bad && *first_key > last) {
      found.origin = true;
      found.text = fmt::format("head {}: the row has no key to attend to (keys {} to {}): -Inf - -Inf, then 0/0", head,
                               *first_key, last);
      return found;
    }
  }
  // A selecting mask replaces the scores of hidden keys: those cannot have decided anything.
  const bool select = text_attribute(subject.op, "mask").value_or("") == "select" && first_key && first_position;
  const std::int64_t begin = select ? std::min(keys, count_attribute(subject.op, "first_key", 0)) : 0;
  const std::int64_t end =
      select ? std::min(keys, count_attribute(subject.op, "first_position", 0) + subject.element.row + 1) : keys;
  const std::int64_t visible = std::max<std::int64_t>(end - begin, 0);
  if (const auto bad = bad_channel(subject.facts, *scores, row, first + begin, visible)) {
    const auto many = count_bad(*scores, row, first + begin, visible);
    if (many) found.numbers.push_back({"bad scores", *many});
    found.element = Element{scores->tensor.id, row, *bad};
    const std::string count = many ? fmt::format("{}", *many) : std::string("some");
    const std::string mask = text_attribute(subject.op, "mask").value_or("");
    found.text = fmt::format("head {}: {} of {} scores of the row are bad, the sum makes the whole row bad{}", head,
                             count, visible, mask == "additive" ? "; an additive mask does not hide a NaN" : "");
    return found;
  }
  found.origin = subject.bad;
  found.element = Element{scores->tensor.id, row,
                          subject.bad ? largest_channel(*scores, row, first, keys) : subject.element.channel};
  found.text = fmt::format("head {}: all {} scores of the row are finite", head, keys);
  return found;
}

}  // namespace nanscope
