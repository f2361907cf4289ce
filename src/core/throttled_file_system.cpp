#include "core/throttled_file_system.h"

#include <algorithm>
#include <utility>

namespace varve {

BandwidthLimit::BandwidthLimit(double bytes_per_second, Clock& clock, double burst_seconds)
    : bytes_per_second_(bytes_per_second), burst_seconds_(burst_seconds), clock_(clock), paid_until_(clock.seconds()) {}

void BandwidthLimit::take(uint64_t bytes) {
  double wait_seconds = 0;
  {
    std::lock_guard lock(mutex_);
    const double now = clock_.seconds();
    paid_until_ = std::max(paid_until_, now - burst_seconds_) + static_cast<double>(bytes) / bytes_per_second_;
    wait_seconds = paid_until_ - now;
  }
  clock_.sleep(wait_seconds);
}

namespace {
class ThrottledFile final : public ForwardingFile {
 public:
  ThrottledFile(std::unique_ptr<File> inner, BandwidthLimit& limit) : ForwardingFile(std::move(inner)), limit_(limit) {}

  Status write_at(uint64_t offset, ByteSpan from) override {
    limit_.take(from.size());
    return ForwardingFile::write_at(offset, from);
  }

 private:
  BandwidthLimit& limit_;
};
}  // namespace

ThrottledFileSystem::ThrottledFileSystem(FileSystem& inner, double write_bytes_per_second, Clock& clock)
    : ForwardingFileSystem(inner), limit_(write_bytes_per_second, clock) {}

Result<std::unique_ptr<File>> ThrottledFileSystem::create(const std::string& path, CreateOptions options) {
  VARVE_ASSIGN(auto file, ForwardingFileSystem::create(path, options));
  return std::unique_ptr<File>(std::make_unique<ThrottledFile>(std::move(file), limit_));
}

}  // namespace varve
