#include "store/paged_file.h"

#include <algorithm>
#include <cstring>

namespace varve {

PagedFile::PagedFile(std::unique_ptr<File> file, uint64_t bytes, std::string path, std::shared_ptr<PageBudget> budget)
    : file_(std::move(file)),
      bytes_(bytes),
      path_(std::move(path)),
      budget_(std::move(budget)),
      pages_(new std::atomic<std::byte*>[bytes / kPageBytes + 1]()) {}

Result<std::unique_ptr<PagedFile>> PagedFile::open(FileSystem& fs, const std::string& path,
                                                   std::shared_ptr<PageBudget> budget) {
  VARVE_ASSIGN(std::unique_ptr<File> file, fs.open_read(path));
  VARVE_ASSIGN(const uint64_t bytes, file->size());
  return std::unique_ptr<PagedFile>(new PagedFile(std::move(file), bytes, fs.shown_path(path), std::move(budget)));
}

PagedFile::~PagedFile() {
  for (uint64_t number = 0; number <= bytes_ / kPageBytes; ++number) {
    const std::byte* const held = pages_[number].load(std::memory_order_relaxed);
    if (held == nullptr) continue;
    budget_->give_back(kPageBytes);
    delete[] held;
  }
}

Status PagedFile::read_once(uint64_t offset, MutableByteSpan into) const {
  Status read = read_exactly(*file_, offset, into, path_);
  if (read.ok()) return read;
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = read;
  return read;
}

Status PagedFile::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

const std::byte* PagedFile::page(uint64_t number, Hold hold) const {
  std::byte* held = pages_[number].load(std::memory_order_acquire);
  if (held != nullptr) return held;
  if (hold == Hold::always) {
    budget_->take_always(kPageBytes);
  } else if (!budget_->take(kPageBytes)) {
    return nullptr;
  }
  std::unique_ptr<std::byte[]> fresh(new (std::nothrow) std::byte[kPageBytes]);
  const uint64_t begin = number * kPageBytes;
  const MutableByteSpan bytes(fresh.get(), fresh ? std::min(kPageBytes, bytes_ - begin) : 0);
  // Of two that read it at the same time, the first one's stays.
  if (fresh && read_once(begin, bytes).ok() &&
      pages_[number].compare_exchange_strong(held, fresh.get(), std::memory_order_acq_rel)) {
    return fresh.release();
  }
  budget_->give_back(kPageBytes);
  return held;
}

bool PagedFile::read(uint64_t offset, MutableByteSpan into, Hold hold) const {
  while (!into.empty()) {
    const uint64_t skip = offset % kPageBytes;
    const size_t part = static_cast<size_t>(std::min<uint64_t>(into.size(), kPageBytes - skip));
    if (offset >= bytes_ || part > bytes_ - offset) return false;
    if (const std::byte* const held = page(offset / kPageBytes, hold)) {
      std::memcpy(into.data(), held + skip, part);
    } else if (!read_once(offset, into.first(part)).ok()) {
      return false;
    }
    into = into.subspan(part);
    offset += part;
  }
  return true;
}

}  // namespace varve
