#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "core/recording/sqlite.h"
#include "tests/unit/core/recording/sample.h"

namespace nanscope {
namespace {

/// A parameter keeps what it has; what is bound in between counts.
TEST(Statement, BindsWhatAParameterHasNotYet) {
  const auto db = sqlite::open({}, SQLITE_OPEN_READWRITE).value();
  auto statement = sqlite::Statement::prepare(db.get(), "SELECT ?1").value();
  const auto value = [&statement] {
    EXPECT_TRUE(statement.step().value());
    std::string text = statement.text(0);
    statement.reset();
    return text;
  };
  const auto bytes = sample::noise(3, 1);
  for (int i = 0; i < 2; ++i) {
    statement.bind(1, std::int64_t{5});
    EXPECT_EQ(value(), "5");
    EXPECT_EQ(value(), "5") << "kept";
    statement.bind(1, std::int64_t{6});
    EXPECT_EQ(value(), "6");
    const auto six = [&] {
      statement.bind(1, std::int64_t{6});
      EXPECT_EQ(value(), "6");
    };
    statement.bind_real(1, 2.5);
    EXPECT_EQ(value(), "2.5");
    six();
    statement.bind(1, std::string_view("text"));
    EXPECT_EQ(value(), "text");
    six();
    statement.bind_null(1);
    EXPECT_EQ(value(), "");
    six();
    statement.bind(1, std::span<const std::byte>(bytes));
    EXPECT_EQ(value().size(), 3U);
    six();
    statement.bind_zeros(1, 4);
    EXPECT_EQ(value().size(), 4U);
    six();
  }
}

}  // namespace
}  // namespace nanscope
