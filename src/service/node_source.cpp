#include "service/node_source.h"

#include <algorithm>
#include <set>

namespace varve {

namespace {
constexpr uint64_t kWindowBytes = 256_KiB;
}

NodeSource::NodeSource(std::vector<SourceFile> files, std::vector<Layout> layouts, std::vector<Place> places,
                       uint64_t window_memory_bytes)
    : files_(std::move(files)),
      layouts_(std::move(layouts)),
      places_(std::move(places)),
      windows_max_(std::max<uint64_t>(window_memory_bytes / kWindowBytes, 2)) {}

Result<const ByteVector*> NodeSource::window(const Key& key) {
  if (const auto found = windows_.find(key); found != windows_.end()) {
    recently_used_.splice(recently_used_.begin(), recently_used_, found->second.used);
    return &found->second.bytes;
  }
  if (windows_.size() >= windows_max_) {
    windows_.erase(recently_used_.back());
    recently_used_.pop_back();
  }
  const uint64_t begin = key.second * kWindowBytes;
  ByteVector bytes(std::min(kWindowBytes, files_[key.first].bytes - begin));
  const Place& place = places_[key.first];
  VARVE_TRY(place.node->read(place.file, begin, bytes));
  recently_used_.push_front(key);
  return &windows_.emplace(key, Window{std::move(bytes), recently_used_.begin()}).first->second.bytes;
}

Status NodeSource::read(uint32_t file, uint64_t offset, MutableByteSpan into) {
  const Place& place = places_[file];
  if (into.size() >= kWindowBytes / 2) return place.node->read(place.file, offset, into);
  while (!into.empty()) {
    VARVE_ASSIGN(const ByteVector* const bytes, window({file, offset / kWindowBytes}));
    const uint64_t begin = offset % kWindowBytes;
    if (begin >= bytes->size()) return Status::internal("a read beyond the end of an offered file");
    const size_t count = std::min<size_t>(into.size(), bytes->size() - begin);
    std::copy_n(bytes->begin() + static_cast<ptrdiff_t>(begin), count, into.begin());
    into = into.subspan(count);
    offset += count;
  }
  return {};
}

Result<uint64_t> NodeSource::hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) {
  return places_[file].node->hole_bytes(places_[file].file, offset, bytes_max);
}

Status NodeSource::check_unchanged() {
  std::set<NodeFiles*> nodes;
  for (const Place& place : places_) nodes.insert(place.node.get());
  for (NodeFiles* const node : nodes) VARVE_TRY(node->check_unchanged());
  return {};
}

}  // namespace varve
