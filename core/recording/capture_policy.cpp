#include "core/recording/capture_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace nanscope {
namespace {

tl::unexpected<Error> refuse(std::string_view text, std::string_view why) {
  return fail(fmt::format("capture policy '{}': {}; expected all, none, ring:N or named:role,op.role", text, why));
}

std::string part(std::string_view text) { return text == "*" ? std::string{} : std::string(text); }

}  // namespace

Result<CapturePolicy> CapturePolicy::parse(std::string_view text) {
  CapturePolicy policy;
  const std::size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  std::string_view rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  if (word == "all" || word == "none") {
    if (colon != std::string_view::npos) return refuse(text, "nothing may follow");
    policy.kind_ = word == "all" ? Kind::all : Kind::none;
    return policy;
  }
  if (word == "ring") {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), policy.ring_steps_);
    if (error != std::errc{} || end != rest.data() + rest.size() || policy.ring_steps_ < 1) {
      return refuse(text, "the ring needs a number of steps, at least 1");
    }
    policy.kind_ = Kind::ring;
    return policy;
  }
  if (word != "named") return refuse(text, "unknown");
  policy.kind_ = Kind::named;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    const std::size_t dot = name.find('.');
    const std::string_view op = dot == std::string_view::npos ? std::string_view{"*"} : name.substr(0, dot);
    const std::string_view role = dot == std::string_view::npos ? name : name.substr(dot + 1);
    if (op.empty() || role.empty()) return refuse(text, "a name is empty");
    policy.names_.push_back({part(op), part(role)});
    if (comma == std::string_view::npos) return policy;
    rest.remove_prefix(comma + 1);
  }
}

Capture CapturePolicy::wants(std::string_view op, std::string_view role) const {
  switch (kind_) {
    case Kind::all:
      return Capture::write;
    case Kind::none:
      return Capture::skip;
    case Kind::ring:
      return Capture::hold;
    case Kind::named:
      break;
  }
  const bool named = std::any_of(names_.begin(), names_.end(), [&](const Name& name) {
    return (name.op.empty() || name.op == op) && (name.role.empty() || name.role == role);
  });
  return named ? Capture::write : Capture::skip;
}

std::string CapturePolicy::text() const {
  switch (kind_) {
    case Kind::all:
      return "all";
    case Kind::none:
      return "none";
    case Kind::ring:
      return fmt::format("ring:{}", ring_steps_);
    case Kind::named:
      break;
  }
  std::string text = "named:";
  for (const Name& name : names_) {
    if (&name != &names_.front()) text += ',';
    if (!name.op.empty()) text += name.op + '.';
    text += name.role.empty() ? "*" : name.role;
  }
  return text;
}

std::vector<CaptureRing::Tensor> CaptureRing::push(std::int64_t step, bool bad, Tensor tensor) {
  std::vector<Tensor> out;
  if (triggered()) {
    if (step <= fault_step_ + steps_) out.push_back(std::move(tensor));
    return out;
  }
  while (!held_.empty() && held_.front().step < step - steps_) {
    held_bytes_ -= held_.front().tensor.bytes.size();
    held_.pop_front();
  }
  if (bad) {
    fault_step_ = step;
    for (Held& held : held_) out.push_back(std::move(held.tensor));
    held_.clear();
    held_bytes_ = 0;
    out.push_back(std::move(tensor));
    return out;
  }
  held_bytes_ += tensor.bytes.size();
  held_.push_back({step, std::move(tensor)});
  for (; held_bytes_ > budget_; ++dropped_) {
    held_bytes_ -= held_.front().tensor.bytes.size();
    held_.pop_front();
  }
  return out;
}

}  // namespace nanscope
