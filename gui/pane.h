#pragma once
#include <memory>
#include <optional>
#include <string>

#include "gui/store.h"
#include "gui/views/view.h"

namespace nanscope::gui {

/// A view on screen: asks the store for what the view needs, keeps the last good answer and dims it
/// while a newer one is made, and says what goes on where there is nothing to show yet.
class Pane {
 public:
  explicit Pane(std::unique_ptr<View> view) : view_(std::move(view)) {}

  const View& view() const { return *view_; }
  View& view() { return *view_; }
  /// Of what is shown; nothing before there is something, and for what is no table.
  std::optional<TableMaker> table() const { return prepared_ ? view_->table(prepared_) : std::nullopt; }
  /// On a ground of the theme's panels.
  void draw(Store& store, const ViewContext& context, const ViewActions& actions, Area area, bool titled);
  /// Takes the answer if it is this pane's.
  void take(const Answer& answer);
  /// There is an answer to show, if not the newest.
  bool has_content() const { return prepared_ != nullptr; }
  /// The newest request is answered, or there is none to make, and the view is at nothing.
  bool settled() const { return !waiting_ && !view_->busy(); }

 private:
  void ask(Store& store, const ViewContext& context, Area area);
  void draw_notice(const ViewContext& context, Area area) const;

  std::unique_ptr<View> view_;
  std::string asked_;  ///< key of the newest request
  std::uint64_t ticket_ = 0;
  bool waiting_ = false;
  int stale_frames_ = 0;
  PreparedPtr prepared_;
  std::optional<Error> error_;
};

}  // namespace nanscope::gui
