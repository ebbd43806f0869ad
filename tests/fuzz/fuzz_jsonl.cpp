#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "instrument/dump/containers/json_lines.h"
#include "tests/fuzz/allocation_limit.h"

namespace {

using namespace nanscope;

/// A view of a document says what another reader of JSON makes of the same text.
void compare(const JsonView& view, const nlohmann::json& tree) {
  if (view.is_text() != tree.is_string() || view.is_object() != tree.is_object() ||
      view.is_array() != tree.is_array()) {
    std::abort();
  }
  if (view.is_text() && view.text() != tree.get_ref<const std::string&>()) std::abort();
  if (view.kind() == JsonKind::number && (!tree.is_number() || view.number() != tree.get<double>())) std::abort();
  if (tree.is_structured() && view.size() != tree.size()) std::abort();
  std::size_t i = 0;
  for (const JsonMember& member : view.items()) {
    compare(member.value, view.is_object() ? tree.at(member.key.text()) : tree.at(i++));
  }
}

}  // namespace

/// Seeds: tests/golden/dumps/raw/manifest.jsonl. Whatever is accepted is a row of objects, in the order of their
/// lines; of a text that is one object, nlohmann::json must say the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t last = 0;
  {
    const fuzz::AllocationLimit limit(read_budget(size));
    static_cast<void>(for_each_json_line(std::as_bytes(std::span(data, size)), "fuzz", [&](const JsonLine& line) {
      if (line.number <= last || line.offset >= size || !line.object.is_object()) std::abort();
      last = line.number;
      return Status();
    }));
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find('\0') != std::string_view::npos) return 0;  // which the other reader takes for the end of the text
  const auto view = check_json(text);
  const auto tree = nlohmann::json::parse(text, nullptr, false);
  // The other reader knows no depth, no key twice, and no text longer than it may be.
  if (view && tree.is_discarded()) std::abort();
  if (view) compare(*view, tree);
  if (!view && !tree.is_discarded() && view.error().what == "not JSON here") std::abort();
  return 0;
}
