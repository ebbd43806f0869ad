#pragma once
#include <sqlite3.h>

#include <memory>
#include <string>

#include "core/recording/lent_pages.h"
#include "core/recording/page_queue.h"
#include "core/result.h"

/// A thread of its own for the writes of a database. Private to core/recording.
namespace nanscope::sqlite {

/// A virtual file system for one database: SQLite makes the next page while the system copies the last ones. What is
/// read back, and every other process, sees the same as without it: pages are in the file, in the order in which SQLite
/// wrote them, before anything else is done with the file, before the transaction's journal is given up and before the
/// file is unlocked. The journal itself is written directly, before the pages that it is for; so what a killed process
/// leaves is what it would have left with fewer pages written. (https://www.sqlite.org/vfs.html,
/// https://www.sqlite.org/c3ref/c_fcntl_begin_atomic_write.html for SQLITE_FCNTL_SYNC, which stands before each commit
/// whatever `synchronous` is.)
class WriteBehind {
 public:
  /// `file` is the database, open for writing, and stays so until the connection is closed, which this outlives.
  /// `direct`: as PageQueue takes it. Errors: SQLite has no memory.
  static Result<std::unique_ptr<WriteBehind>> make(int file, std::size_t direct);
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  /// For sqlite3_open_v2().
  const std::string& name() const { return name_; }
  /// What takes the place of pages that are written; of the thread that writes rows.
  LentPages& lent() { return lent_; }
  /// SQLite's own.
  sqlite3_vfs* system() const { return system_; }

 private:
  WriteBehind(int file, std::size_t direct);
  static int open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out_flags);

  PageQueue queue_;
  LentPages lent_;
  std::string name_;
  sqlite3_vfs* system_ = nullptr;
  sqlite3_vfs vfs_{};  ///< registered while it has a name
};

}  // namespace nanscope::sqlite
