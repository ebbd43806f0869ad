#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/recording/sqlite.h"

namespace nanscope::sqlite {

/// A query under construction: text, and the values of its parameters.
class Query {
 public:
  explicit Query(std::string sql) : sql_(std::move(sql)) {}

  template <class T>
  Query& where(std::string_view condition, const std::optional<T>& value) {
    if (!value) return *this;
    where(condition);
    if constexpr (std::is_same_v<T, std::string>) {
      values_.push_back({0, *value, true});
    } else {
      values_.push_back({*value, {}, false});
    }
    return *this;
  }
  /// One more value for a condition that names several.
  Query& value(std::int64_t value) {
    values_.push_back({value, {}, false});
    return *this;
  }
  /// A condition that names its value several times.
  Query& where_range(std::string_view condition, const std::optional<std::int64_t>& value, int times) {
    if (!value) return *this;
    where(condition);
    for (int i = 0; i < times; ++i) values_.push_back({*value, {}, false});
    return *this;
  }
  Query& where(std::string_view condition) {
    sql_ += (conditions_++ == 0 ? " WHERE " : " AND ");
    sql_ += condition;
    return *this;
  }
  Query& then(std::string_view text) {
    sql_ += text;
    return *this;
  }
  Query& limit(std::int64_t rows) {
    if (rows < 0) return *this;
    sql_ += " LIMIT ?";
    values_.push_back({rows, {}, false});
    return *this;
  }

  const std::string& sql() const { return sql_; }
  void bind(Statement& statement) const {
    int at = 1;
    for (const auto& value : values_) {
      if (value.is_text) {
        statement.bind(at++, value.text);
      } else {
        statement.bind(at++, value.integer);
      }
    }
  }

 private:
  struct Value {
    std::int64_t integer;
    std::string text;
    bool is_text;
  };
  std::string sql_;
  int conditions_ = 0;
  std::vector<Value> values_;
};

}  // namespace nanscope::sqlite
