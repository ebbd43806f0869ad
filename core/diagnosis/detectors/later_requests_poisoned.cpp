#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {
namespace {

struct Poisoning {
  const SickOp* read = nullptr;
  KeyRow key;
  bool shared = false;
  bool freed = false;  ///< since it was written: else the block is nobody's, the null block
};

/// How each request first read NaN that another one had left in the cache.
std::map<std::int64_t, Poisoning> poisonings(Facts& facts) {
  std::map<std::int64_t, Poisoning> found;
  for (const SickOp* birth : facts.births()) {
    if (birth->op.kind != "kv_read" || found.contains(birth->step.request)) continue;
    for (const KeyRow& key : birth->bad_keys) {
      if (key.own || key.writer == nullptr || !key.slot || key.writer->request == birth->step.request) continue;
      const bool shared = facts.slots().shared(birth->step.request, key.slot->block, birth->step.id) != nullptr;
      found.emplace(birth->step.request,
                    Poisoning{birth, key, shared, facts.slots().freed_since(*key.writer, birth->step.id)});
      break;
    }
  }
  return found;
}

std::string text_of(std::int64_t request, const Poisoning& poisoning) {
  const KvRow& writer = *poisoning.key.writer;
  const std::string_view way = poisoning.shared ? "shared prefix" : poisoning.freed ? "recycled block" : "null block";
  return fmt::format("request {} by {} (block {} slot {}, written by request {} as {} by {})", request, way,
                     poisoning.key.slot->block, poisoning.key.slot->slot, writer.request, name(writer.format),
                     writer.writer);
}

}  // namespace

/// Link 13: requests that made no NaN themselves read it from blocks that another one had written.
Link detect_later_requests_poisoned(Facts& facts) {
  Link link;
  const std::map<std::int64_t, Poisoning> found = poisonings(facts);
  if (found.empty()) {
    link.summary = "0 requests read NaN that another one had left in the cache";
    return link;
  }
  link.state = LinkState::found;
  const SickOp& first = *found.begin()->second.read;
  link.where = facts.where(first.bad_output(), first.newborn);
  std::int64_t shared = 0;
  std::int64_t recycled = 0;
  std::string list;
  for (const auto& [request, poisoning] : found) {
    shared += poisoning.shared ? 1 : 0;
    recycled += !poisoning.shared && poisoning.freed ? 1 : 0;
    list += (list.empty() ? "" : "; ") + text_of(request, poisoning);
  }
  const auto all = static_cast<std::int64_t>(found.size());
  link.evidence = {{"requests poisoned", all}, {"by shared prefix", shared}, {"by recycled block", recycled}};
  for (const auto& [request, poisoning] : found) {
    link.evidence.push_back({fmt::format("request {} reads request", request), poisoning.key.writer->request});
    link.evidence.push_back({fmt::format("request {} block", request), poisoning.key.slot->block});
  }
  link.summary = list;
  return link;
}

}  // namespace nanscope
