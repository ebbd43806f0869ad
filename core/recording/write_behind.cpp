#include "core/recording/write_behind.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>

namespace nanscope::sqlite {
namespace {

/// What SQLite holds of an open database; the system's own file lies behind it.
struct DatabaseFile {
  sqlite3_file base;
  PageQueue* queue;
  LentPages* lent;
  void* unused;  ///< so that the system's file is aligned
};
static_assert(sizeof(DatabaseFile) % alignof(std::max_align_t) == 0);

PageQueue& queue_of(sqlite3_file* file) { return *reinterpret_cast<DatabaseFile*>(file)->queue; }
LentPages& lent_of(sqlite3_file* file) { return *reinterpret_cast<DatabaseFile*>(file)->lent; }
sqlite3_file* system_file(sqlite3_file* file) {
  return reinterpret_cast<sqlite3_file*>(reinterpret_cast<DatabaseFile*>(file) + 1);
}

/// As SQLite's own file system says it of the same error.
int code_of(int error) {
  if (error == 0) return SQLITE_OK;
  errno = error;
  return error == ENOSPC || error == EDQUOT ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

/// Calls a method of the system's file once all pages are in it.
template <auto kMethod, class... Args>
int after_pages(sqlite3_file* file, Args... args) {
  const int drained = code_of(queue_of(file).drain());
  sqlite3_file* system = system_file(file);
  return drained == SQLITE_OK ? (system->pMethods->*kMethod)(system, args...) : drained;
}

int close_file(sqlite3_file* file) {
  const int drained = code_of(queue_of(file).drain());
  sqlite3_file* system = system_file(file);
  const int closed = system->pMethods->xClose(system);
  queue_of(file).give_back();
  return drained == SQLITE_OK ? closed : drained;
}

int read_page(sqlite3_file* file, void* bytes, int size, sqlite3_int64 offset) {
  if (const int drained = code_of(queue_of(file).drain(offset, size)); drained != SQLITE_OK) return drained;
  sqlite3_file* system = system_file(file);
  return system->pMethods->xRead(system, bytes, size, offset);
}

int write_page(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
  const std::span page(static_cast<const std::byte*>(bytes), static_cast<std::size_t>(size));
  LentPages& lent = lent_of(file);
  if (page.size() == PageQueue::kPageBytes && lent.marks(page)) {
    auto taken = lent.take(page);
    // SQLite writes such a page once; were it otherwise, its elements are gone, and the mark must not take their place.
    return taken ? code_of(queue_of(file).push(page, offset, std::move(*taken))) : SQLITE_IOERR_WRITE;
  }
  if (page.size() <= PageQueue::kPageBytes) return code_of(queue_of(file).push(page, offset));
  return after_pages<&sqlite3_io_methods::xWrite>(file, bytes, size, offset);
}

/// A lock is let go only over what others may see.
int unlock(sqlite3_file* file, int level) {
  const int drained = code_of(queue_of(file).drain());
  sqlite3_file* system = system_file(file);
  const int unlocked = system->pMethods->xUnlock(system, level);
  return drained == SQLITE_OK ? unlocked : drained;
}

int lock(sqlite3_file* file, int level) {
  sqlite3_file* system = system_file(file);
  return system->pMethods->xLock(system, level);
}

int check_reserved_lock(sqlite3_file* file, int* out) {
  sqlite3_file* system = system_file(file);
  return system->pMethods->xCheckReservedLock(system, out);
}

int control(sqlite3_file* file, int what, void* argument) {
  // The queue takes space by itself, and this comes with every page.
  if (what == SQLITE_FCNTL_SIZE_HINT) return SQLITE_OK;
  if (what == SQLITE_FCNTL_SYNC) {
    if (const int drained = code_of(queue_of(file).drain()); drained != SQLITE_OK) return drained;
  }
  sqlite3_file* system = system_file(file);
  return system->pMethods->xFileControl(system, what, argument);
}

int sector_size(sqlite3_file* file) {
  sqlite3_file* system = system_file(file);
  return system->pMethods->xSectorSize(system);
}

int characteristics(sqlite3_file* file) {
  sqlite3_file* system = system_file(file);
  return system->pMethods->xDeviceCharacteristics(system);
}

/// Of version 1: neither shared memory nor mapped pages.
constexpr sqlite3_io_methods kMethods = {
    1,
    close_file,
    read_page,
    write_page,
    after_pages<&sqlite3_io_methods::xTruncate, sqlite3_int64>,
    after_pages<&sqlite3_io_methods::xSync, int>,
    after_pages<&sqlite3_io_methods::xFileSize, sqlite3_int64*>,
    lock,
    unlock,
    check_reserved_lock,
    control,
    sector_size,
    characteristics,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

/// Calls a method of SQLite's own file system, which is what most of them are.
template <auto kMethod, class... Args>
auto forward(sqlite3_vfs* vfs, Args... args) {
  auto* system = static_cast<WriteBehind*>(vfs->pAppData)->system();
  return (system->*kMethod)(system, args...);
}

}  // namespace

WriteBehind::WriteBehind(int file, std::size_t direct)
    : queue_(file, direct), name_(fmt::format("nanscope-{}", fmt::ptr(this))), system_(sqlite3_vfs_find(nullptr)) {}

WriteBehind::~WriteBehind() {
  if (vfs_.zName != nullptr) sqlite3_vfs_unregister(&vfs_);
}

Result<std::unique_ptr<WriteBehind>> WriteBehind::make(int file, std::size_t direct) {
  std::unique_ptr<WriteBehind> made(new WriteBehind(file, direct));
  if (made->system_ == nullptr) return fail("SQLite has no file system");
  sqlite3_vfs& vfs = made->vfs_;
  vfs.iVersion = 1;
  vfs.szOsFile = static_cast<int>(sizeof(DatabaseFile)) + made->system_->szOsFile;
  vfs.mxPathname = made->system_->mxPathname;
  vfs.pAppData = made.get();
  vfs.xOpen = open;
  vfs.xDelete = forward<&sqlite3_vfs::xDelete, const char*, int>;
  vfs.xAccess = forward<&sqlite3_vfs::xAccess, const char*, int, int*>;
  vfs.xFullPathname = forward<&sqlite3_vfs::xFullPathname, const char*, int, char*>;
  vfs.xRandomness = forward<&sqlite3_vfs::xRandomness, int, char*>;
  vfs.xSleep = forward<&sqlite3_vfs::xSleep, int>;
  vfs.xCurrentTime = forward<&sqlite3_vfs::xCurrentTime, double*>;
  vfs.xGetLastError = forward<&sqlite3_vfs::xGetLastError, int, char*>;
  vfs.zName = made->name_.c_str();
  if (const int code = sqlite3_vfs_register(&vfs, 0); code != SQLITE_OK) {
    vfs.zName = nullptr;
    return fail(sqlite3_errstr(code));
  }
  return made;
}

int WriteBehind::open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  auto* self = static_cast<WriteBehind*>(vfs->pAppData);
  // The journal is written before the pages that it is for, without a queue.
  const bool database = (flags & SQLITE_OPEN_MAIN_DB) != 0;
  file->pMethods = nullptr;
  sqlite3_file* system = database ? system_file(file) : file;
  const int code = self->system_->xOpen(self->system_, path, system, flags, out_flags);
  if (!database || code != SQLITE_OK) return code;
  *reinterpret_cast<DatabaseFile*>(file) = {{&kMethods}, &self->queue_, &self->lent_, nullptr};
  return SQLITE_OK;
}

}  // namespace nanscope::sqlite
