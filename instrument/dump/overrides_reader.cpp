#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "core/dump/name_table.h"
#include "instrument/dump/listing.h"
#include "instrument/dump/overrides.h"
#include "instrument/files/file.h"
#include "instrument/files/near_names.h"
#include "instrument/files/toml_reader.h"

/// How nanscope.toml is read.
namespace nanscope {
namespace {

constexpr std::uint64_t kMaxFile = 1 << 20;

std::vector<std::string> known_roles() {
  std::set<std::string> roles;
  for (const StatePattern& state : state_tensors()) roles.emplace(state.role);
  for (const auto modules : {layer_modules(), outer_modules()}) {
    for (const ModulePattern& module : modules)
      roles.insert({std::string(module.role_in), std::string(module.role_out)});
  }
  for (const std::string_view scaled : {"q", "k", "v", "scores", "probs", "weight", "input", "output"}) {
    for (const std::string_view form : {"scale", "codes", "amax_history"})
      roles.insert(fmt::format("{}_{}", scaled, form));
  }
  roles.insert("kv_scale");
  return {roles.begin(), roles.end()};
}

std::vector<std::string> known_ops() {
  std::set<std::string> ops;
  for (const auto modules : {layer_modules(), outer_modules()}) {
    for (const ModulePattern& module : modules) ops.emplace(module.op);
  }
  return {ops.begin(), ops.end()};
}

bool holds(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

class OverridesReader {
 public:
  explicit OverridesReader(std::string file) : file_(std::move(file)) {}

  Result<Overrides> read(std::string_view text) {
    const Result<toml::table> parsed = parse_toml(text, file_);
    if (!parsed) return tl::unexpected(parsed.error());
    TomlReader reader(*parsed, file_, "the file");
    tables(reader, "name", [this](TomlReader& entry) { return read_name(entry); });
    tables(reader, "format", [this](TomlReader& entry) { return read_format(entry); });
    tables(reader, "scale", [this](TomlReader& entry) { return read_scale(entry); });
    if (const toml::table* places = reader.table("places")) take(read_places(*places));
    if (const toml::table* llamacpp = reader.table("llamacpp")) take(read_llamacpp(*llamacpp));
    take(read_order(reader));
    if (Status finished = reader.finish(); !finished) return tl::unexpected(finished.error());
    if (!status_) return tl::unexpected(status_.error());
    return std::move(into_);
  }

 private:
  void take(Status status) {
    if (status_ && !status) status_ = std::move(status);
  }

  template <class Read>
  void tables(TomlReader& reader, std::string_view key, const Read& read) {
    const toml::array* list = reader.array(key);
    if (list == nullptr) return;
    for (const toml::node& item : *list) {
      if (!item.is_table()) {
        reader.reject(item, fmt::format("[[{}]] must be a table, found {}", key, toml_kind(item)));
        return;
      }
      TomlReader entry(*item.as_table(), file_, fmt::format("[[{}]]", key));
      Status done = read(entry);
      take(done ? entry.finish() : done);
    }
  }

  Result<Pattern> compiled(const std::string& text, const std::string& where) const {
    Result<Pattern> pattern = Pattern::compile(text);
    if (!pattern) return fail(fmt::format("{}: pattern '{}': {}", where, one_line(text), pattern.error().message));
    return pattern;
  }

  /// The pattern that every entry has.
  Status read_rule(TomlReader& entry, Overrides::Rule& rule) const {
    rule.where = entry.where();
    const std::optional<std::string> text = entry.text("pattern");
    if (!text) {
      entry.reject("needs a pattern, a regular expression for the names of tensors");
      return entry.finish();
    }
    Result<Pattern> pattern = compiled(*text, rule.where);
    if (!pattern) return tl::unexpected(pattern.error());
    rule.pattern = std::move(*pattern);
    return {};
  }

  /// A word that must be one of those that the tables of names know.
  static std::string read_word(TomlReader& entry, std::string_view key, const std::vector<std::string>& known) {
    std::string word = entry.text(key).value_or("");
    if (!word.empty() && !holds(known, word)) {
      entry.reject(fmt::format("unknown {} '{}'{}", key, word, did_you_mean(word, known)));
    }
    return word;
  }

  Status read_name(TomlReader& entry) {
    Overrides::NameRule rule;
    if (Status done = read_rule(entry, rule); !done) return done;
    rule.role = read_word(entry, "role", known_roles());
    rule.op = read_word(entry, "op", known_ops());
    if (const toml::node* layer = entry.node("layer")) {
      rule.layer = knob_text(*layer).value_or("");
      const bool number = !rule.layer.empty() && rule.layer.size() < 10 &&
                          rule.layer.find_first_not_of("0123456789") == std::string::npos;
      const bool group = rule.layer.size() == 2 && rule.layer[0] == '$' && rule.layer[1] >= '1' && rule.layer[1] <= '9';
      if (!number && !group) entry.reject(*layer, "layer must be a number from 0, or \"$1\" for the pattern's group");
    }
    if (const auto port = entry.text("port")) {
      if (*port == "input") rule.port = Port::input;
      if (*port == "output") rule.port = Port::output;
      if (*port == "state") rule.port = Port::state;
      if (!rule.port) entry.reject(fmt::format("port must be input, output or state, found '{}'", *port));
    }
    if (rule.role.empty() && rule.op.empty() && rule.layer.empty() && !rule.port) {
      entry.reject("says nothing: expected role, op, layer or port");
    }
    into_.names_.push_back(std::move(rule));
    return {};
  }

  Status read_format(TomlReader& entry) {
    Overrides::FormatRule rule;
    if (Status done = read_rule(entry, rule); !done) return done;
    const std::string word = entry.text("format").value_or("");
    const std::optional<Format> format = format_from_name(word);
    if (!format) {
      std::vector<std::string> known;
      for (const FormatInfo& one : formats()) known.emplace_back(one.name);
      entry.reject(fmt::format("unknown format '{}'{}", word, did_you_mean(word, known)));
    }
    rule.format = format.value_or(Format::f32);
    into_.formats_.push_back(std::move(rule));
    return {};
  }

  Status read_scale(TomlReader& entry) {
    Overrides::ScaleRule rule;
    if (Status done = read_rule(entry, rule); !done) return done;
    rule.tensor = entry.text("tensor").value_or("");
    const toml::node* value = entry.node("value");
    const std::optional<double> number = value != nullptr ? value->value<double>() : std::nullopt;
    if (value != nullptr && (!number || value->is_boolean())) {
      entry.reject(*value, fmt::format("value must be a number, found {}", toml_kind(*value)));
    }
    if ((value != nullptr) == !rule.tensor.empty()) {
      entry.reject("expected either tensor, the scale's name, or value, a number");
    }
    rule.value = static_cast<float>(number.value_or(0));
    into_.scales_.push_back(std::move(rule));
    return {};
  }

  Status read_places(const toml::table& table) {
    TomlReader reader(table, file_, "[places]");
    constexpr std::pair<std::string_view, Overrides::Place> kPlaces[] = {{"run", Overrides::Place::run},
                                                                         {"request", Overrides::Place::request},
                                                                         {"step", Overrides::Place::step},
                                                                         {"rank", Overrides::Place::rank}};
    for (const auto& [key, what] : kPlaces) {
      const std::optional<std::string> text = reader.text(key);
      if (!text) continue;
      Overrides::PlaceRule rule;
      rule.what = what;
      rule.where = toml_location(file_, table.get(key)->source());
      Result<Pattern> pattern = compiled(*text, rule.where);
      if (!pattern) return tl::unexpected(pattern.error());
      rule.pattern = std::move(*pattern);
      into_.places_.push_back(std::move(rule));
    }
    return reader.finish();
  }

  Status read_llamacpp(const toml::table& table) {
    TomlReader reader(table, file_, "[llamacpp]");
    into_.vocabulary_ = reader.integer("vocabulary", 1, 100'000'000);
    return reader.finish();
  }

  Status read_order(TomlReader& reader) {
    const toml::node* order = reader.node("order");
    if (order == nullptr) return {};
    if (const auto word = order->value_exact<std::string>(); word && (*word == "recorded" || *word == "natural")) {
      into_.order_ = *word == "natural" ? Overrides::Order::natural : Overrides::Order::recorded;
      return {};
    }
    const toml::array* list = order->as_array();
    if (list == nullptr || list->empty()) {
      return fail(fmt::format("{}: order must be \"recorded\", \"natural\" or a list of patterns",
                              toml_location(file_, order->source())));
    }
    into_.order_ = Overrides::Order::patterns;
    for (const toml::node& item : *list) {
      const std::string where = toml_location(file_, item.source());
      const auto text = item.value_exact<std::string>();
      if (!text) return fail(fmt::format("{}: order must hold strings, found {}", where, toml_kind(item)));
      Result<Pattern> pattern = compiled(*text, where);
      if (!pattern) return tl::unexpected(pattern.error());
      into_.order_patterns_.push_back(std::move(*pattern));
    }
    return {};
  }

  std::string file_;
  Overrides into_;
  Status status_;
};

Result<Overrides> Overrides::read(std::string_view text, const std::string& file) {
  return OverridesReader(file).read(text);
}

Result<std::optional<Overrides>> Overrides::find(const std::filesystem::path& dump, bool follow_links) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(dump, error).lexically_normal();
  // A folder may be given with a slash at its end.
  const std::filesystem::path given = whole.has_filename() ? whole : whole.parent_path();
  for (const std::filesystem::path& folder : {given, given.parent_path()}) {
    const std::filesystem::path file = folder / kOverridesFile;
    if (!std::filesystem::is_regular_file(file, error)) continue;
    if (!follow_links && !lies_below(file, folder))
      return fail(file.string() + ": is a link to a file out of its folder; --follow-links reads it");
    const auto text = read_file(file, kMaxFile);
    if (!text) return tl::unexpected(text.error());
    Result<Overrides> read = Overrides::read(as_text(*text), file.string());
    if (!read) return tl::unexpected(read.error());
    return std::optional(std::move(*read));
  }
  return std::optional<Overrides>();
}

}  // namespace nanscope
