#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/place.h"
#include "core/result.h"

/// Places that somebody wants to keep in view, with what they noted of them.
namespace nanscope::gui {

struct Pin {
  Place place;
  std::string note;
  bool operator==(const Pin&) const = default;
};

inline constexpr std::size_t kMostPins = 200;
inline constexpr std::size_t kMostNote = 4000;  ///< bytes of a note

/// Beside a recording or the folder of a dump: FILE.pins.json.
std::filesystem::path pins_file(const std::filesystem::path& run);

/// `{"pins": [{"place": "2/0/1/inner_norm.out[7,3]", "note": "..."}]}`. Errors: it is no such text, more than a
/// megabyte, more pins or longer notes than above.
Result<std::vector<Pin>> parse_pins(std::string_view text);
std::string pins_text(std::span<const Pin> pins);

/// The pins of a run, written to their file at every change. What another window added to the file meanwhile stays
/// there. A file that cannot be read is never written: what is pinned then lasts as long as the window.
class Pins {
 public:
  explicit Pins(const std::filesystem::path& run);

  const std::vector<Pin>& all() const { return pins_; }
  std::optional<std::size_t> find(const Place& place) const;
  /// Errors of these: it could not be written, or there are too many; the change is made all the same where it can be.
  Status add(const Place& place);
  Status remove(std::size_t index);
  /// All of them, as they were at another time.
  Status replace(std::vector<Pin> pins);
  Status note(std::size_t index, std::string words);
  /// What was wrong with the file when the window opened, once.
  std::optional<Error> take_problem() { return std::exchange(problem_, std::nullopt); }

 private:
  Status read();
  /// Takes over what others wrote since, then writes.
  Status save();

  std::filesystem::path file_;
  std::string last_read_;  ///< the file's text as this window knows it
  bool writable_ = true;
  std::vector<Pin> pins_;
  std::optional<Error> problem_;
};

}  // namespace nanscope::gui
