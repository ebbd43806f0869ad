#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#define TOML_EXCEPTIONS 0
// Its parser asserts what a malformed file does not keep ("[" before a blank), and then reports it well.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include "core/result.h"

namespace nanscope {

/// Typed access to one TOML table. The first error is kept and everything later is ignored, so a
/// parser reads all its keys and asks once. A key that nobody asked for is an error of finish().
class TomlReader {
 public:
  /// `label` names the table in messages: "[expect]". Both references must outlive the reader.
  TomlReader(const toml::table& table, std::string file, std::string label);

  std::optional<std::string> text(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high);
  std::vector<std::string> texts(std::string_view key);
  const toml::table* table(std::string_view key);
  const toml::array* array(std::string_view key);
  const toml::node* node(std::string_view key);  ///< of any type; marks the key as known

  std::string where(const toml::node& node) const;
  std::string where() const;
  void reject(const toml::node& node, std::string what);
  void reject(std::string what);
  /// The first error, or an unknown key with the known ones nearest to it.
  Status finish();

 private:
  const toml::table& table_;
  std::string file_;
  std::string label_;
  std::vector<std::string> known_;
  std::optional<Error> error_;
};

/// The root table of a TOML file. Errors: file:line:column and reason, in one line.
Result<toml::table> parse_toml(std::string_view text, const std::string& file);

/// file:line:column of a node.
std::string toml_location(const std::string& file, const toml::source_region& region);
/// "a string", "an integer", ...
std::string_view toml_kind(const toml::node& node);
/// A scalar or an array of scalars as a knob's value; nothing for other nodes.
std::optional<std::string> knob_text(const toml::node& node);

}  // namespace nanscope
