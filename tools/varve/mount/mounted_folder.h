#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

/// Why an operation on the mounted folder failed, as the program sees it: an errno; 0 is success.
struct [[nodiscard]] Errno {
  int number = 0;
  bool ok() const { return number == 0; }
  bool operator==(const Errno&) const = default;
};

/// A value, or why there is none.
template <class T>
class [[nodiscard]] MountResult {
 public:
  MountResult(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  MountResult(Errno why) : state_(std::in_place_index<1>, why) {}

  bool ok() const { return state_.index() == 0; }
  Errno error() const { return ok() ? Errno{} : std::get<1>(state_); }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

 private:
  std::variant<T, Errno> state_;
};

/// The errno that says best what a Status says.
Errno errno_of(const Status& status);

}  // namespace varve

/// Returns from the current function if `expression` (an Errno) is a failure.
#define MOUNT_TRY(expression)                                                                   \
  do {                                                                                          \
    if (const ::varve::Errno mount_errno = (expression); !mount_errno.ok()) return mount_errno; \
  } while (false)

/// Declares `declaration` from a MountResult's value, or returns its Errno from the current function.
#define MOUNT_ASSIGN(declaration, expression) \
  MOUNT_ASSIGN_INNER(VARVE_CONCAT(mount_outcome_, __LINE__), declaration, expression)
#define MOUNT_ASSIGN_INNER(outcome, declaration, expression) \
  auto outcome = (expression);                               \
  if (!outcome.ok()) return outcome.error();                 \
  declaration = *std::move(outcome)

namespace varve {

/// What is known of a name in the mounted folder. Its inode number tells the rest of the mount where it belongs.
struct NodeView {
  struct stat status {};
  bool lasting = false;  ///< it will never change
};

struct ListedName {
  std::string name;
  uint64_t inode = 0;
  uint32_t type = 0;  ///< S_IFDIR and the like
};

/// What a program asks to be changed of a name; what is not set stays.
struct AttributeChange {
  std::optional<uint32_t> mode;
  std::optional<uint32_t> owner, group;
  std::optional<uint64_t> bytes;
  std::optional<timespec> accessed, modified;  ///< tv_nsec may be UTIME_NOW
};

/// Who closes a descriptor of a file.
enum class ClosedBy : uint8_t {
  program,  ///< also where it ends by itself
  signal,   ///< which has killed the program
  unknown,  ///< a program of which we cannot see how it ends
};

/// A file that a program has open. Several threads may use it at a time.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  /// Reads up to `into.size()` bytes; fewer only at the end of the file. Returns how many.
  virtual MountResult<size_t> read(uint64_t offset, MutableByteSpan into) = 0;
  /// SEEK_DATA and SEEK_HOLE.
  virtual MountResult<uint64_t> seek(uint64_t offset, int whence) = 0;
  /// A file of the local disk with the same bytes, to read and write without a copy; -1: there is none.
  virtual int descriptor() const { return -1; }
  /// Asked before each write through the descriptor.
  virtual Errno begin_write() { return {EBADF}; }
  /// What a write has written. What one that failed before did not may be there by that.
  virtual void note_written(uint64_t offset, uint64_t bytes) { static_cast<void>(offset), static_cast<void>(bytes); }
  /// A write has failed, or wrote less than it was to: its bytes from `offset` on are missing. `in_memory`: of what a
  /// program has changed through a memory map, so that it may never hear of it.
  virtual void write_failed(uint64_t offset, bool in_memory) {
    static_cast<void>(offset), static_cast<void>(in_memory);
  }
  virtual Errno allocate(int, uint64_t, uint64_t) { return {EBADF}; }
  virtual Errno sync(bool) { return {}; }
  /// Whether it was opened to be written.
  virtual bool writes() const { return false; }
  /// One of its descriptors was closed; there may be more.
  virtual void flushed(ClosedBy) {}
  /// Who was the last to close a descriptor of it. Always a program if it was not opened to be written.
  virtual ClosedBy last_closed_by() const { return ClosedBy::program; }
  /// Whether a program has heard of a write that failed, and has not made it again.
  virtual bool has_failed_write() const { return false; }
  /// What somebody wanted to write may be missing.
  bool is_cut_off() const { return last_closed_by() != ClosedBy::program; }
};

/// A folder of the mount that has a number of its own, its realm, and what is in it: things are named by numbers of 32
/// bits that stay the same as long as anybody knows them. kTop is the folder itself. What a folder does not say about
/// changes is not permitted in it. Thread-safe.
class MountedFolder {
 public:
  static constexpr uint32_t kTop = 1;
  virtual ~MountedFolder() = default;

  virtual MountResult<NodeView> look(uint32_t id) = 0;
  /// The one of that name in a folder. The caller knows it from then on, until it forgets it as often as it found it.
  virtual MountResult<NodeView> find(uint32_t folder, const std::string& name) = 0;
  virtual void forget(uint32_t, uint64_t) {}
  virtual MountResult<std::vector<ListedName>> list(uint32_t folder) = 0;
  virtual MountResult<std::string> read_link(uint32_t id) = 0;
  virtual MountResult<std::unique_ptr<OpenFile>> open(uint32_t, int) { return Errno{EPERM}; }
  /// Makes the folder's names durable.
  virtual Errno sync_folder(uint32_t) { return {}; }

  // Changes. What makes a name returns what find() would.
  virtual MountResult<std::pair<NodeView, std::unique_ptr<OpenFile>>> create(uint32_t, const std::string&, int,
                                                                             uint32_t) {
    return Errno{EPERM};
  }
  virtual MountResult<NodeView> make_folder(uint32_t, const std::string&, uint32_t) { return Errno{EPERM}; }
  virtual MountResult<NodeView> make_link(uint32_t, const std::string&, const std::string&) { return Errno{EPERM}; }
  /// `flags` as of unlinkat(): AT_REMOVEDIR for a folder, else 0.
  virtual Errno remove(uint32_t, const std::string&, int) { return {EPERM}; }
  /// `flags` as of renameat2().
  virtual Errno rename(uint32_t, const std::string&, uint32_t, const std::string&, unsigned) { return {EPERM}; }
  virtual MountResult<NodeView> change(uint32_t, const AttributeChange&, OpenFile*) { return Errno{EPERM}; }
};

/// The inode number of what is called `id` in the folder that has this number in the mount.
inline uint64_t inode_of(uint32_t realm, uint32_t id) { return (uint64_t{realm} << 32) | id; }

}  // namespace varve
