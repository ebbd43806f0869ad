#include "core/recording/row_image.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstring>

namespace nanscope::sqlite {
namespace {

constexpr std::size_t kPage = RowImage::kPageBytes;

/// Kinds of b-tree pages, and bytes before their array of cells.
enum class Kind : std::uint8_t { index_interior = 2, table_interior = 5, index_leaf = 10, table_leaf = 13 };
constexpr std::size_t kLeafHeader = 8;
constexpr std::size_t kInteriorHeader = 12;
constexpr std::size_t kCellPointer = 2;
constexpr std::size_t kPageNumber = 4;
constexpr std::size_t kFileHeader = 100;

/// What a leaf holds of a record at most, and of a longer one at least.
constexpr std::size_t kMostInLeaf = kPage - 35;
constexpr std::size_t kLeastInLeaf = (kPage - 12) * 32 / 255 - 23;
constexpr std::size_t kInOverflowPage = kPage - kPageNumber;

/// Entries of an index that fit a page whatever they are: a record of two integers takes 20 bytes, its length one more,
/// and, between two pages, the number of the first.
constexpr std::size_t kKeysInLeaf = (kPage - kLeafHeader) / (kCellPointer + 21);

std::size_t in_leaf(std::size_t record) {
  if (record <= kMostInLeaf) return record;
  const std::size_t filling = kLeastInLeaf + (record - kLeastInLeaf) % kInOverflowPage;
  return filling <= kMostInLeaf ? filling : kLeastInLeaf;
}

/// Fills a b-tree page with cells from its end on; their order is that in which they come.
class PageWriter {
 public:
  /// `header`: bytes of the page before the b-tree's own.
  PageWriter(std::byte* page, Kind kind, std::size_t header = 0)
      : page_(page), header_(page + header), interior_(kind == Kind::index_interior || kind == Kind::table_interior) {
    header_[0] = static_cast<std::byte>(kind);
    put_big_endian(header_ + 1, 0, kLeafHeader - 1);
    put_big_endian(header_ + 5, begin_, 2);
  }
  /// Goes on where `cells` are there from `begin` on.
  PageWriter(std::byte* page, std::size_t cells, std::size_t begin)
      : page_(page), header_(page), cells_(cells), begin_(begin) {}

  bool fits(std::size_t bytes) const { return pointers() + kCellPointer + bytes <= begin_; }
  /// Where the next cell's `bytes` are written.
  std::byte* cell(std::size_t bytes) {
    begin_ -= bytes;
    put_big_endian(page_ + pointers(), begin_, kCellPointer);
    ++cells_;
    put_big_endian(header_ + 3, cells_, 2);
    put_big_endian(header_ + 5, begin_, 2);
    return page_ + begin_;
  }
  void right_most(std::size_t child) { put_big_endian(header_ + kLeafHeader, child, kPageNumber); }

  std::size_t cells() const { return cells_; }
  std::size_t begin() const { return begin_; }

 private:
  std::size_t pointers() const {
    return static_cast<std::size_t>(header_ - page_) + (interior_ ? kInteriorHeader : kLeafHeader) +
           cells_ * kCellPointer;
  }

  std::byte* page_;
  std::byte* header_;
  bool interior_ = false;
  std::size_t cells_ = 0;
  std::size_t begin_ = kPage;
};

std::byte* put(std::byte* to, std::span<const std::byte> bytes) {
  std::memcpy(to, bytes.data(), bytes.size());
  return to + bytes.size();
}

}  // namespace

RowImage::RowImage(std::vector<Table> tables, std::vector<Index> indexes)
    : tables_(std::move(tables)), indexes_(std::move(indexes)), trees_(tables_.size()), keys_(indexes_.size()) {
  pages_.resize(first_pages() * kPage);
  clear();
  write_schema();
}

void RowImage::clear() {
  used_ = first_pages();
  for (Tree& tree : trees_) {
    tree.leaves.clear();
    tree.rows = 0;
  }
  for (auto& keys : keys_) keys.clear();
}

std::size_t RowImage::new_page() {
  ++used_;
  if (pages_.size() < used_ * kPage) pages_.resize(used_ * kPage);
  return used_;
}

std::size_t RowImage::overflow(std::span<const std::byte> rest) {
  const std::size_t first = used_ + 1;
  while (!rest.empty()) {
    const std::size_t number = new_page();
    const auto piece = rest.first(std::min(rest.size(), kInOverflowPage));
    rest = rest.subspan(piece.size());
    put_big_endian(page(number), rest.empty() ? 0 : number + 1, kPageNumber);
    put(page(number) + kPageNumber, piece);
  }
  return first;
}

/// The first leaf is the root as long as it is the only one.
std::size_t RowImage::next_leaf(std::size_t table) {
  auto& leaves = trees_[table].leaves;
  if (leaves.empty()) return root_of_table(table);
  if (leaves.size() == 1) {
    leaves[0].page = new_page();
    std::memcpy(page(leaves[0].page), page(root_of_table(table)), kPage);
  }
  return new_page();
}

bool RowImage::empty() const {
  return std::all_of(trees_.begin(), trees_.end(), [](const Tree& tree) { return tree.rows == 0; });
}

void RowImage::add(std::size_t table, std::int64_t id, std::span<const std::byte> record) {
  Tree& tree = trees_[table];
  const std::size_t local = in_leaf(record.size());
  const Varint size(record.size());
  const Varint key(static_cast<std::uint64_t>(id));
  const std::size_t chained = local < record.size() ? kPageNumber : 0;
  const std::size_t bytes = size.size + key.size + local + chained;
  const auto last_leaf = [&] { return PageWriter(page(tree.leaves.back().page), tree.cells, tree.begin); };
  if (tree.leaves.empty() || !last_leaf().fits(bytes)) {
    tree.leaves.push_back({next_leaf(table), id});
    const PageWriter empty(page(tree.leaves.back().page), Kind::table_leaf);
    tree.cells = empty.cells();
    tree.begin = empty.begin();
  }
  const std::size_t rest = chained > 0 ? overflow(record.subspan(local)) : 0;
  PageWriter leaf = last_leaf();
  std::byte* to = put(put(put(leaf.cell(bytes), size.bytes()), key.bytes()), record.first(local));
  if (chained > 0) put_big_endian(to, rest, kPageNumber);
  tree.leaves.back().last = id;
  tree.cells = leaf.cells();
  tree.begin = leaf.begin();
  ++tree.rows;
}

void RowImage::add_key(std::size_t index, std::int64_t key, std::int64_t id) { keys_[index].emplace_back(key, id); }

void RowImage::finish_table(std::size_t table) {
  const Tree& tree = trees_[table];
  std::byte* root = page(root_of_table(table));
  if (tree.leaves.empty()) {
    PageWriter(root, Kind::table_leaf);
    return;
  }
  if (tree.leaves.size() == 1) return;
  PageWriter writer(root, Kind::table_interior);
  for (const Leaf& leaf : std::span(tree.leaves).first(tree.leaves.size() - 1)) {
    const Varint last(static_cast<std::uint64_t>(leaf.last));
    std::byte* cell = writer.cell(kPageNumber + last.size);
    put_big_endian(cell, leaf.page, kPageNumber);
    put(cell + kPageNumber, last.bytes());
  }
  writer.right_most(tree.leaves.back().page);
}

/// A b-tree of an index has entries between its leaves, too.
void RowImage::finish_index(std::size_t index) {
  const auto& keys = keys_[index];
  std::size_t at = 0;
  const auto write = [&](PageWriter& to, std::size_t child) {
    scratch_.clear();
    const auto record = scratch_.integer(keys[at].first).integer(keys[at].second).bytes();
    ++at;
    const Varint size(record.size());
    const std::size_t number = child > 0 ? kPageNumber : 0;
    std::byte* cell = to.cell(number + size.size + record.size());
    if (child > 0) put_big_endian(cell, child, kPageNumber);
    put(put(cell + number, size.bytes()), record);
  };
  const std::size_t root = root_of_index(index);
  if (keys.size() <= kKeysInLeaf) {
    PageWriter leaf(page(root), Kind::index_leaf);
    while (at < keys.size()) write(leaf, 0);
    return;
  }
  const std::size_t leaves = (keys.size() + 1 + kKeysInLeaf) / (kKeysInLeaf + 1);
  const std::size_t between = leaves - 1;
  const std::size_t first = used_ + 1;
  for (std::size_t i = 0; i < leaves; ++i) new_page();
  PageWriter interior(page(root), Kind::index_interior);
  for (std::size_t i = 0; i < leaves; ++i) {
    // As even as can be: none may be empty.
    const std::size_t end = (keys.size() - between) * (i + 1) / leaves + i;
    PageWriter leaf(page(first + i), Kind::index_leaf);
    while (at < end) write(leaf, 0);
    if (i < between) write(interior, first + i);
  }
  interior.right_most(first + between);
}

std::span<std::byte> RowImage::finish() {
  for (std::size_t i = 0; i < tables_.size(); ++i) finish_table(i);
  for (std::size_t i = 0; i < indexes_.size(); ++i) finish_index(i);
  put_big_endian(page(1) + 28, used_, kPageNumber);
  return std::span(pages_).first(used_ * kPage);
}

/// The file's header, which is zeros where nothing is written, and the rows of sqlite_schema.
void RowImage::write_schema() {
  std::byte* header = page(1);
  std::memcpy(header, "SQLite format 3", 16);
  constexpr std::uint32_t kChange = 1;
  const auto put_at = [header](std::size_t offset, std::uint64_t value, std::size_t bytes) {
    put_big_endian(header + offset, value, bytes);
  };
  put_at(16, kPage, 2);
  put_at(18, 1, 1);  // written and read with a rollback journal
  put_at(19, 1, 1);
  put_at(21, 64, 1);  // shares of a page, which are given
  put_at(22, 32, 1);
  put_at(23, 32, 1);
  put_at(24, kChange, 4);
  put_at(40, 1, 4);  // the schema's version
  put_at(44, 4, 4);  // its format, which has types for zero and one
  put_at(56, 1, 4);  // UTF-8
  put_at(92, kChange, 4);
  put_at(96, SQLITE_VERSION_NUMBER, 4);

  PageWriter schema(header, Kind::table_leaf, kFileHeader);
  std::int64_t row = 0;
  const auto add = [&](std::string_view type, std::string_view name, std::string_view table, std::size_t root,
                       std::string_view sql) {
    scratch_.clear();
    scratch_.text(type).text(name).text(table).integer(static_cast<std::int64_t>(root)).text(sql);
    const auto record = scratch_.bytes();
    const Varint size(record.size());
    const Varint id(static_cast<std::uint64_t>(++row));
    std::byte* cell = schema.cell(size.size + id.size + record.size());
    put(put(put(cell, size.bytes()), id.bytes()), record);
  };
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    add("table", tables_[i].name, tables_[i].name, root_of_table(i), tables_[i].sql);
  }
  for (std::size_t i = 0; i < indexes_.size(); ++i) {
    add("index", indexes_[i].name, tables_[indexes_[i].table].name, root_of_index(i), indexes_[i].sql);
  }
}

}  // namespace nanscope::sqlite
