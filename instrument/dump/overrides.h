#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/dump/dump.h"
#include "core/result.h"
#include "instrument/dump/container.h"
#include "instrument/dump/pattern.h"

namespace nanscope {

inline constexpr std::string_view kOverridesFile = "nanscope.toml";

/// What the user says about a dump where its names and types do not: nanscope.toml in the dump's folder, or beside it.
/// docs/producers.md describes it. Patterns are PCRE2 and match anywhere in a tensor's name.
class Overrides {
 public:
  /// Nothing when there is no such file. Errors are of the user's making and end the dump: file, line, reason; a link
  /// that leads out of its folder, unless `follow_links`.
  static Result<std::optional<Overrides>> find(const std::filesystem::path& dump, bool follow_links);
  /// `file` is for errors.
  static Result<Overrides> read(std::string_view text, const std::string& file);

  /// Size of the vocabulary of logits that are stored without a shape.
  std::optional<std::int64_t> vocabulary() const { return vocabulary_; }
  /// Whether the order that a producer recorded is to be passed over.
  bool ignores_recorded_order() const { return order_ != Order::recorded; }

  /// Places, names, formats and scales of all tensors. `add` takes a container of one number that [[scale]] states and
  /// gives its source.
  Status apply(std::vector<DumpTensor>& tensors, const std::function<std::size_t(std::shared_ptr<Container>)>& add);
  /// Puts the tensors of each pass in the order that the file asks for, if it does.
  Status sort(std::vector<DumpTensor>& tensors) const;
  /// Lines of the file that met no tensor.
  std::vector<std::string> unused() const;

 private:
  enum class Order : std::uint8_t { recorded, natural, patterns };
  enum class Place : std::uint8_t { run, request, step, rank };
  struct Rule {
    Pattern pattern;
    std::string where;  ///< file, line, column
    std::size_t used = 0;
  };
  struct NameRule : Rule {
    std::string role;
    std::string op;
    std::string layer;  ///< a number, or $1
    std::optional<Port> port;
  };
  struct FormatRule : Rule {
    Format format{};
  };
  struct ScaleRule : Rule {
    std::string tensor;  ///< its name, with $1 for groups
    float value = 0;
  };
  struct PlaceRule : Rule {
    Place what{};
  };
  friend class OverridesReader;

  Status place(DumpTensor& tensor);
  Status name(DumpTensor& tensor);
  Status format(DumpTensor& tensor);
  Status scale(std::vector<DumpTensor>& tensors, const std::function<std::size_t(std::shared_ptr<Container>)>& add);

  std::vector<NameRule> names_;
  std::vector<FormatRule> formats_;
  std::vector<ScaleRule> scales_;
  std::vector<PlaceRule> places_;
  std::vector<Pattern> order_patterns_;
  Order order_ = Order::recorded;
  std::optional<std::int64_t> vocabulary_;
};

}  // namespace nanscope
