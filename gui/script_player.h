#pragma once
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/output_file.h"
#include "gui/drawn.h"
#include "gui/script.h"
#include "gui/session.h"

namespace nanscope::gui {

/// What a script may write, and when it is to stop.
struct ScriptFiles {
  OutputOptions output;
  std::stop_token stop;
};

/// Plays a script on a session, frame by frame, as a person would.
class ScriptPlayer final : public DrawnListener {
 public:
  using Say = std::function<void(std::string_view)>;

  /// `say` takes what `where` found. On a screen a person, or a program that plays one, may act too:
  /// what is expected is waited for although nothing moves.
  ScriptPlayer(Session& session, bool on_screen, Say say, ScriptFiles files);
  ScriptPlayer(const ScriptPlayer&) = delete;
  ScriptPlayer& operator=(const ScriptPlayer&) = delete;
  ~ScriptPlayer() override { listen_to_drawing(nullptr); }

  /// Errors: the step that could not be done or the expectation that failed, with its line and with
  /// the picture of the window as it was then.
  Status play(const Script& script);

  void on_text(Area where, std::string_view words) override;
  void on_item(Area where, std::string_view name) override { items_.push_back({where, std::string(name)}); }

 private:
  struct Drawn {
    Area where;
    std::string words;
  };
  using Condition = std::function<Status()>;

  Status run(const ScriptStep& step);
  Status expect(const ScriptStep& step);
  /// Draws until the condition holds. Errors: its last one, when nothing moves any more.
  Status await(const Condition& condition);
  /// Draws until all that was asked for is on screen.
  Status settle();
  Status frames(int count);
  Status frame();
  Status picture(const std::filesystem::path& path);

  Result<ImVec2> find(const Target& target) const;
  Result<ImVec2> await(const Target& target);
  Result<Window*> window() const;
  bool playing() const;

  Status select(const ScriptStep& step);
  Status press(const KeyPress& press);
  Status type(const std::string& text);
  Status click(const ScriptStep& step);
  Status drag(const ScriptStep& step);
  Status wheel(const ScriptStep& step);
  Status drop(const ScriptStep& step);
  Status wait(double seconds);
  Status where(const ScriptStep& step);

  Session& session_;
  bool on_screen_;
  Say say_;
  ScriptFiles files_;
  std::vector<Drawn> texts_;  ///< of the last frame
  std::vector<Drawn> items_;
};

}  // namespace nanscope::gui
