#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/recording/record.h"

/// Rows of tables as a database in memory. Private to core/recording.
namespace nanscope::sqlite {

/// A database as SQLite's file format has it (https://www.sqlite.org/fileformat2.html), made of rows that are appended:
/// SQLite copies them into its own by `INSERT INTO main.t SELECT * FROM image.t`, record by record, where both tables
/// are created by the same text, in a fifth of the instructions of a statement a row. Rows of one table come in
/// ascending order. B-trees of two levels: some megabytes of rows, beside what is longer than a page.
class RowImage {
 public:
  static constexpr std::size_t kPageBytes = 8192;

  struct Table {
    std::string name;
    std::string sql;  ///< its first column is INTEGER PRIMARY KEY: the row's id, NULL in its record
  };
  /// Of one table: an integer column, whose rows are added by themselves.
  struct Index {
    std::string name;
    std::size_t table;
    std::string sql;
  };
  /// Page 1 holds them: a few.
  RowImage(std::vector<Table> tables, std::vector<Index> indexes);

  /// A row of the `table`th of the tables.
  void add(std::size_t table, std::int64_t id, std::span<const std::byte> record);
  /// An entry of the `index`th of the indexes, in ascending order, too.
  void add_key(std::size_t index, std::int64_t key, std::int64_t id);

  std::span<const Table> tables() const { return tables_; }
  /// Of that table, since clear().
  std::int64_t rows(std::size_t table) const { return trees_[table].rows; }
  bool empty() const;
  /// About how large it is.
  std::size_t bytes() const { return used_ * kPageBytes; }

  /// The whole database, until the next add() or clear(). It may be asked for once.
  std::span<std::byte> finish();
  void clear();

 private:
  /// A page of a table that holds rows, with the last of their ids.
  struct Leaf {
    std::size_t page;
    std::int64_t last;
  };
  struct Tree {
    std::vector<Leaf> leaves;
    std::int64_t rows = 0;
    std::size_t cells = 0;  ///< of the last leaf
    std::size_t begin = 0;  ///< of its cells
  };
  /// Page 1 has the schema, and each tree's root stands at a place of its own.
  std::size_t first_pages() const { return 1 + tables_.size() + indexes_.size(); }
  std::size_t root_of_table(std::size_t table) const { return 2 + table; }
  std::size_t root_of_index(std::size_t index) const { return 2 + tables_.size() + index; }

  std::byte* page(std::size_t number) { return pages_.data() + (number - 1) * kPageBytes; }
  std::size_t new_page();
  std::size_t next_leaf(std::size_t table);
  /// Pages of what a leaf does not hold of a record; the first of them.
  std::size_t overflow(std::span<const std::byte> rest);
  void finish_table(std::size_t table);
  void finish_index(std::size_t index);
  void write_schema();

  std::vector<Table> tables_;
  std::vector<Index> indexes_;
  std::vector<Tree> trees_;
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> keys_;
  std::vector<std::byte> pages_;
  std::size_t used_ = 0;  ///< pages
  Record scratch_;
};

}  // namespace nanscope::sqlite
