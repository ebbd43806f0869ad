#include "gui/session.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <chrono>
#include <memory>

#include "tests/unit/core/recording/sample.h"

namespace nanscope::gui {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = std::chrono::seconds(60);
constexpr auto kLockedFor = std::chrono::milliseconds(500);

/// Nobody can read the file while it lives.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& path) {
    EXPECT_EQ(sqlite3_open(path.c_str(), &db_), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db_, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { sqlite3_close(db_); }

 private:
  sqlite3* db_ = nullptr;
};

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write("first.nanscope", 3);
    write("second.nanscope", 5);
    AppOptions options;
    options.size = {900, 700};
    options.script = "none";  // so that it leaves no traces
    Result<std::unique_ptr<Session>> opened = Session::open(options, *open_run(folder_ / "first.nanscope"), {});
    ASSERT_TRUE(opened) << opened.error().message;
    session = std::move(*opened);
  }

  /// Four tokens through so many ops.
  void write(const char* name, int ops) {
    auto writer = RecordingWriter::create(folder_ / name, sample::run_info());
    ASSERT_TRUE(writer) << writer.error().message;
    RequestRow request;
    request.prompt_tokens = {1, 2, 3, 4};
    (*writer)->add(request);
    sample::add_step(**writer, 1, 0, 0, ops, 4, 8, true);
    ASSERT_TRUE((*writer)->finish());
  }

  void drop(const char* name) {
    session->platform().synthetic().drop((folder_ / name).string());
    session->frame(0);
    session->frame(0);
  }

  void press(int key) {
    for (const bool down : {true, false}) {
      session->platform().synthetic().key(key, down);
      for (int i = 0; i < 3; ++i) session->frame(0);
    }
  }

  /// Until all that was asked for is on screen.
  void settle() {
    const auto begin = Clock::now();
    for (int settled = 0; settled < 4 && Clock::now() - begin < kDeadline;) {
      session->frame(0);
      settled = session->settled() ? settled + 1 : 0;
    }
    ASSERT_TRUE(session->settled());
  }

  TemporaryFolder folder_;
  std::unique_ptr<Session> session;
};

TEST_F(SessionTest, GoesOnDrawingWhileAFileIsOpened) {
  session->window()->say_error("in the first window");
  auto lock = std::make_unique<Lock>(folder_ / "second.nanscope");
  const auto begin = Clock::now();
  drop("second.nanscope");
  int frames = 0;
  for (; Clock::now() - begin < kLockedFor; ++frames) session->frame(0);
  EXPECT_GT(frames, 1);
  EXPECT_TRUE(session->opening());
  EXPECT_FALSE(session->settled());
  EXPECT_EQ(session->window()->error(), "in the first window");
  lock.reset();
  while (session->opening() && Clock::now() - begin < kDeadline) session->frame(0);
  EXPECT_FALSE(session->opening());
  EXPECT_EQ(session->window()->error(), "");
}

TEST_F(SessionTest, TheLastChoiceIsShown) {
  write("third.nanscope", 4);
  auto lock = std::make_unique<Lock>(folder_ / "second.nanscope");
  drop("second.nanscope");
  drop("third.nanscope");
  EXPECT_TRUE(session->opening());
  lock.reset();
  settle();
  EXPECT_EQ(session->window()->error(), "");
  EXPECT_EQ(session->window()->cells(), 16);
}

TEST_F(SessionTest, TheWindowWaitsBehindTheStartScreenAsItWasLeft) {
  settle();
  Window* window = session->window();
  window->go("0/0/0/attn_norm");
  settle();
  const Selection left = window->selection();
  press(GLFW_KEY_HOME);
  EXPECT_EQ(session->window(), nullptr);
  press(GLFW_KEY_HOME);
  EXPECT_EQ(session->window(), window);
  EXPECT_EQ(session->window()->selection(), left);
}

TEST_F(SessionTest, ARecordingThatIsOpenedAgainIsShownAsItWasLeft) {
  settle();
  session->window()->open_beside(folder_ / "second.nanscope");
  session->window()->go("0/0/0/attn_norm");
  settle();
  const Selection left = session->window()->selection();
  ASSERT_FALSE(left.place.op.empty());
  press(GLFW_KEY_HOME);
  drop("second.nanscope");
  settle();
  ASSERT_NE(session->window(), nullptr) << "what is dropped takes the place of the start screen";
  EXPECT_NE(session->window()->selection(), left);
  EXPECT_EQ(session->window()->beside_file(), "");
  drop("first.nanscope");
  settle();
  EXPECT_EQ(session->window()->selection(), left);
  EXPECT_EQ(session->window()->beside_file(), folder_ / "second.nanscope");
}

TEST_F(SessionTest, AWrongChoiceOnTheStartScreenLosesNothing) {
  settle();
  Window* window = session->window();
  press(GLFW_KEY_HOME);
  drop("no such file");
  settle();
  EXPECT_EQ(session->window(), nullptr);
  press(GLFW_KEY_ESCAPE);
  EXPECT_EQ(session->window(), window);
  EXPECT_EQ(window->error(), "");
}

}  // namespace
}  // namespace nanscope::gui
