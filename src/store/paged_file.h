#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "core/sync.h"

namespace varve {

/// How many bytes of pages several files may hold together.
class PageBudget {
 public:
  explicit PageBudget(uint64_t bytes) : left_(static_cast<int64_t>(bytes)) {}
  /// Whether there was room for it; then it is taken.
  bool take(int64_t bytes) {
    if (left_.fetch_sub(bytes, std::memory_order_relaxed) >= bytes) return true;
    give_back(bytes);
    return false;
  }
  void take_always(int64_t bytes) { left_.fetch_sub(bytes, std::memory_order_relaxed); }
  void give_back(int64_t bytes) { left_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> left_;
};

/// An immutable file of which small pieces are looked at again and again. Its pages are read when they are first looked
/// at, and held from then on, as those of a mapped file would be; but what the disk does not give is a failed read, and
/// not the end of the program by SIGBUS. Thread-safe.
class PagedFile {
 public:
  /// `budget` outlives it, and is for the pages that read() may hold.
  static Result<std::unique_ptr<PagedFile>> open(FileSystem& fs, const std::string& path,
                                                 std::shared_ptr<PageBudget> budget);
  ~PagedFile();
  PagedFile(const PagedFile&) = delete;
  PagedFile& operator=(const PagedFile&) = delete;

  uint64_t bytes() const { return bytes_; }

  enum class Hold { within_budget, always };
  /// Whether the bytes from `offset` could be read: failure() says why not.
  bool read(uint64_t offset, MutableByteSpan into, Hold hold = Hold::within_budget) const;
  /// The same past all pages, for who reads a lot once.
  Status read_once(uint64_t offset, MutableByteSpan into) const;
  /// Has what read() holds of that place brought near the processor.
  void prefetch(uint64_t offset) const {
    const std::byte* const page = pages_[offset / kPageBytes].load(std::memory_order_acquire);
    if (page != nullptr) __builtin_prefetch(page + offset % kPageBytes);
  }

  /// The first failure of a read.
  Status failure() const;

 private:
  static constexpr uint64_t kPageBytes = 4096;

  PagedFile(std::unique_ptr<File> file, uint64_t bytes, std::string path, std::shared_ptr<PageBudget> budget);
  /// The page, which it reads if need be; null if it cannot be read, or not be held.
  const std::byte* page(uint64_t number, Hold hold) const;

  const std::unique_ptr<File> file_;
  const uint64_t bytes_;
  const std::string path_;  ///< for messages
  const std::shared_ptr<PageBudget> budget_;
  const std::unique_ptr<std::atomic<std::byte*>[]> pages_;  ///< by number; null: not held
  mutable Mutex mutex_;                                     // guards failure_
  mutable Status failure_;
};

}  // namespace varve
