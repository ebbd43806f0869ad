#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

/// Elements that reach the file from where they lie. Private to core/recording.
namespace nanscope::sqlite {

/// What a page holds behind the four bytes that every overflow page begins with, the number of the next one
/// (https://www.sqlite.org/fileformat2.html#ovflpgs).
struct Lent {
  std::span<const std::byte> bytes;    ///< the rest of the page is zero
  std::shared_ptr<const void> memory;  ///< what they lie in: held until they are written
};

/// SQLite would copy the elements of a tensor into its pages, only to have the pages written. So it makes pages of
/// zeros, each with a mark where the elements belong, and the elements take the place of the mark's page when SQLite
/// writes it. SQLite decides when that is and journals what must be journalled; only bytes that it never looks at are
/// others. That holds of rows that are never read, changed or deleted by the connection that wrote them. A mark begins
/// with 16 random bytes, so that no page has one by chance. One thread.
class LentPages {
 public:
  static constexpr std::size_t kLinkBytes = 4;
  static constexpr std::size_t kMarkBytes = 24;
  using Mark = std::array<std::byte, kMarkBytes>;

  LentPages();
  /// The mark that a page must have behind its link so that it is `lent`.
  Mark add(Lent lent);
  /// Whether a page that is being written has a mark.
  bool marks(std::span<const std::byte> page) const;
  /// What the page with this mark holds, once; nothing when that was taken before, or forgotten.
  std::optional<Lent> take(std::span<const std::byte> page);
  /// Whether all pages were taken.
  bool empty() const { return lent_.empty(); }
  void forget() { lent_.clear(); }

 private:
  static constexpr std::size_t kSecretBytes = 16;

  std::array<std::byte, kSecretBytes> secret_{};
  std::uint64_t count_ = 0;
  std::unordered_map<std::uint64_t, Lent> lent_;
};

/// Which part of a blob of `bytes` bytes lies with the row itself, when it is the last column of a table `(id INTEGER
/// PRIMARY KEY, data BLOB)` in pages of `page` bytes; what follows fills pages one after another, all but kLinkBytes of
/// each (https://www.sqlite.org/fileformat2.html#b_tree_pages).
std::size_t bytes_in_row(std::size_t bytes, std::size_t page);

}  // namespace nanscope::sqlite
