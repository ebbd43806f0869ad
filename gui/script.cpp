#include "gui/script.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "gui/app.h"
#include "gui/script_words.h"
#include "instrument/files/file.h"
#include "instrument/files/near_names.h"

namespace nanscope::gui {
namespace {

constexpr double kLongestWait = 600;
constexpr std::uint64_t kMostScriptBytes = std::uint64_t{16} << 20;

struct NamedKey {
  std::string_view name;
  int key;
};
constexpr NamedKey kNamedKeys[] = {
    {"SPACE", GLFW_KEY_SPACE},   {"ENTER", GLFW_KEY_ENTER},         {"ESCAPE", GLFW_KEY_ESCAPE},
    {"TAB", GLFW_KEY_TAB},       {"LEFT", GLFW_KEY_LEFT},           {"RIGHT", GLFW_KEY_RIGHT},
    {"UP", GLFW_KEY_UP},         {"DOWN", GLFW_KEY_DOWN},           {"HOME", GLFW_KEY_HOME},
    {"END", GLFW_KEY_END},       {"PAGEUP", GLFW_KEY_PAGE_UP},      {"PAGEDOWN", GLFW_KEY_PAGE_DOWN},
    {"DELETE", GLFW_KEY_DELETE}, {"BACKSPACE", GLFW_KEY_BACKSPACE}, {"COMMA", GLFW_KEY_COMMA},
    {"PERIOD", GLFW_KEY_PERIOD}, {"MINUS", GLFW_KEY_MINUS},         {"PLUS", GLFW_KEY_EQUAL},
};

bool take_modifier(std::string_view word, Modifiers& held) {
  if (word == "CTRL") return held.ctrl = true;
  if (word == "SHIFT") return held.shift = true;
  if (word == "ALT") return held.alt = true;
  return false;
}

Result<int> parse_key(std::string_view name) {
  for (const NamedKey& key : kNamedKeys) {
    if (key.name == name) return key.key;
  }
  if (name.size() == 1 && std::isalnum(static_cast<unsigned char>(name[0])) != 0) return static_cast<int>(name[0]);
  if (name.size() >= 2 && name[0] == 'F') {
    for (int number = 1; number <= 12; ++number) {
      if (name == fmt::format("F{}", number)) return GLFW_KEY_F1 + number - 1;
    }
  }
  return fail(fmt::format("there is no key '{}': expected A to Z, 0 to 9, F1 to F12 or a name such as ENTER", name));
}

/// "CTRL+SHIFT+P"
Result<KeyPress> parse_press(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  KeyPress press;
  std::string_view rest = text;
  for (std::size_t plus = rest.find('+'); plus != std::string_view::npos; plus = rest.find('+')) {
    if (!take_modifier(rest.substr(0, plus), press.held)) {
      return fail(fmt::format("'{}' is no modifier: expected CTRL, SHIFT or ALT", rest.substr(0, plus)));
    }
    rest.remove_prefix(plus + 1);
  }
  const Result<int> key = parse_key(rest);
  if (!key) return tl::unexpected(key.error());
  press.key = *key;
  return press;
}

Result<Target> parse_target(Words& words) {
  Target target;
  if (const Word* word = words.peek(); word != nullptr && word->quoted) {
    target.kind = Target::Kind::text;
    target.words = words.take()->text;
    target.nth = static_cast<int>(std::clamp(words.take_number().value_or(1), 1.0, 1000.0));
    return target;
  }
  const bool item = words.take_if("item");
  if (item || words.take_if("cell")) {
    target.kind = item ? Target::Kind::item : Target::Kind::cell;
    Result<std::string> name = words.take_text(item ? "the item's name" : "the cell's place");
    if (!name) return tl::unexpected(name.error());
    if (!item && words.take_if("in")) {
      Result<std::string> view = words.take_text("a view");
      if (!view) return tl::unexpected(view.error());
      target.view = *view;
    }
    target.words = std::move(*name);
    return target;
  }
  const std::optional<double> x = words.take_number();
  const std::optional<double> y = x ? words.take_number() : std::nullopt;
  if (!y) return fail("expected X Y, \"words on screen\", item NAME or cell PLACE");
  target.x = static_cast<float>(*x);
  target.y = static_cast<float>(*y);
  return target;
}

Status read_target(Words& words, ScriptStep& step) {
  Result<Target> target = parse_target(words);
  if (!target) return tl::unexpected(target.error());
  step.target = std::move(*target);
  return {};
}

/// Modifiers that are held while the mouse does something.
void read_held(Words& words, ScriptStep& step) {
  while (words.peek() != nullptr && !words.peek()->quoted && take_modifier(words.peek()->text, step.press.held)) {
    words.take();
  }
}

Status read_words(Words& words, ScriptStep& step, std::string_view expected) {
  Result<std::string> text = words.take_text(expected);
  if (!text) return tl::unexpected(text.error());
  step.words = std::move(*text);
  return {};
}

Status read_place(Words& words, ScriptStep& step) { return read_words(words, step, "a place"); }
Status read_name(Words& words, ScriptStep& step) { return read_words(words, step, "a view's name"); }
Status read_text(Words& words, ScriptStep& step) { return read_words(words, step, "a text"); }
Status read_path(Words& words, ScriptStep& step) { return read_words(words, step, "a file"); }
Status read_nothing(Words&, ScriptStep&) { return {}; }

Status read_press(Words& words, ScriptStep& step) {
  if (Status read = read_words(words, step, "a key"); !read) return read;
  const Result<KeyPress> press = parse_press(step.words);
  if (!press) return tl::unexpected(press.error());
  step.press = *press;
  return {};
}

Status read_click(Words& words, ScriptStep& step) {
  for (int i = 0; i < 2; ++i) {
    if (words.take_if("double")) step.clicks = 2;
    if (words.take_if("right")) step.button = 1;
  }
  read_held(words, step);
  return read_target(words, step);
}

Status read_drag(Words& words, ScriptStep& step) {
  read_held(words, step);
  if (Status read = read_target(words, step); !read) return read;
  if (words.take_if("by")) step.verb = Verb::drag_by;
  if (step.verb == Verb::drag_to && !words.take_if("to")) return fail("expected 'to' or 'by'");
  Result<Target> to = parse_target(words);
  if (!to) return tl::unexpected(to.error());
  if (step.verb == Verb::drag_by && to->kind != Target::Kind::point) return fail("expected two numbers behind 'by'");
  step.to = std::move(*to);
  return {};
}

Status read_wheel(Words& words, ScriptStep& step) {
  read_held(words, step);
  const std::optional<double> notches = words.take_number();
  if (!notches) return fail("expected how many notches, up or (negative) down");
  step.amount = *notches;
  return read_target(words, step);
}

Status read_size(Words& words, ScriptStep& step) {
  if (Status read = read_words(words, step, "a size"); !read) return read;
  const Result<Extent> size = parse_size(step.words);
  if (!size) return tl::unexpected(size.error());
  step.size = *size;
  return {};
}

Status read_wait(Words& words, ScriptStep& step) {
  if (words.take_if("settled")) return {};
  const std::optional<double> seconds = words.take_number();
  if (!seconds || *seconds < 0 || *seconds > kLongestWait) {
    return fail(fmt::format("expected 'settled' or seconds up to {}", kLongestWait));
  }
  step.verb = Verb::wait_seconds;
  step.amount = *seconds;
  return {};
}

Status read_expect(Words& words, ScriptStep& step) {
  const bool not_there = words.take_if("no");
  const std::pair<std::string_view, Verb> kinds[] = {{"place", Verb::expect_place},
                                                     {"view", Verb::expect_view},
                                                     {"text", not_there ? Verb::expect_no_text : Verb::expect_text},
                                                     {"file", Verb::expect_file},
                                                     {"clipboard", Verb::expect_clipboard}};
  for (const auto& [name, verb] : kinds) {
    if ((not_there && name != "text") || !words.take_if(name)) continue;
    step.verb = verb;
    return read_words(words, step, fmt::format("the {}", name));
  }
  return fail("expected one of: place, view, text, no text, file, clipboard");
}

struct Form {
  std::string_view name;
  Verb verb;
  Status (*read)(Words&, ScriptStep&);
};
constexpr Form kForms[] = {
    {"select", Verb::select, read_place},
    {"view", Verb::view, read_name},
    {"key", Verb::key, read_press},
    {"type", Verb::type, read_text},
    {"click", Verb::click, read_click},
    {"move", Verb::move, read_target},
    {"drag", Verb::drag_to, read_drag},
    {"wheel", Verb::wheel, read_wheel},
    {"drop", Verb::drop, read_path},
    {"resize", Verb::resize, read_size},
    {"clipboard", Verb::clipboard, read_text},
    {"wait", Verb::wait_settled, read_wait},
    {"picture", Verb::picture, read_path},
    {"where", Verb::where, read_target},
    {"expect", Verb::expect_place, read_expect},
    {"close", Verb::close, read_nothing},
};

Result<ScriptStep> parse_step(Words words) {
  const std::string name = words.take()->text;
  for (const Form& form : kForms) {
    if (form.name != name) continue;
    ScriptStep step;
    step.verb = form.verb;
    if (Status read = form.read(words, step); !read) return tl::unexpected(read.error());
    if (!words.done()) return fail(fmt::format("'{}' is one word too many", words.peek()->text));
    return step;
  }
  std::vector<std::string> names;
  for (const Form& form : kForms) names.emplace_back(form.name);
  return fail(fmt::format("unknown step '{}'{}", name, did_you_mean(name, names)));
}

}  // namespace

Result<Script> parse_script(std::string_view text, const std::filesystem::path& path) {
  Script script{path, {}};
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const auto wrong = [&](const Error& error) {
      return fail(fmt::format("{}:{}: {}", path.string(), line, error.message));
    };
    Result<std::vector<Word>> words = split_words(text.substr(0, end));
    if (!words) return wrong(words.error());
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words->empty()) continue;
    Result<ScriptStep> step = parse_step(Words(std::move(*words)));
    if (!step) return wrong(step.error());
    step->line = line;
    script.steps.push_back(std::move(*step));
  }
  return script;
}

Result<Script> read_script(const std::filesystem::path& path) {
  const auto text = read_file(path, kMostScriptBytes);
  if (!text) return fail(fmt::format("the script cannot be read: {}", text.error().message));
  return parse_script(as_text(*text), path);
}

}  // namespace nanscope::gui
