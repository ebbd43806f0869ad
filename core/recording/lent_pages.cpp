#include "core/recording/lent_pages.h"

#include <sqlite3.h>

#include <cstring>
#include <utility>

namespace nanscope::sqlite {

LentPages::LentPages() { sqlite3_randomness(static_cast<int>(secret_.size()), secret_.data()); }

LentPages::Mark LentPages::add(Lent lent) {
  const std::uint64_t number = count_++;
  lent_.emplace(number, std::move(lent));
  Mark mark;
  std::memcpy(mark.data(), secret_.data(), kSecretBytes);
  std::memcpy(mark.data() + kSecretBytes, &number, sizeof number);
  return mark;
}

bool LentPages::marks(std::span<const std::byte> page) const {
  return count_ > 0 && page.size() >= kLinkBytes + kMarkBytes &&
         std::memcmp(page.data() + kLinkBytes, secret_.data(), kSecretBytes) == 0;
}

std::optional<Lent> LentPages::take(std::span<const std::byte> page) {
  std::uint64_t number = 0;
  std::memcpy(&number, page.data() + kLinkBytes + kSecretBytes, sizeof number);
  auto found = lent_.extract(number);
  if (found.empty()) return std::nullopt;
  return std::move(found.mapped());
}

std::size_t bytes_in_row(std::size_t bytes, std::size_t page) {
  // Its own size, the type of the id, which is not stored, and the first byte of the blob's type.
  std::size_t header = 3;
  for (std::size_t type = 2 * bytes + 12; type >= 128; type /= 128) ++header;
  const std::size_t payload = header + bytes;
  if (payload <= page - 35) return bytes;
  const std::size_t least = (page - 12) * 32 / 255 - 23;
  const std::size_t filling = least + (payload - least) % (page - LentPages::kLinkBytes);
  return (filling <= page - 35 ? filling : least) - header;
}

}  // namespace nanscope::sqlite
