#pragma once

#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "aggregate/source.h"
#include "service/node_files.h"

namespace varve {

/// A group's files that lie on several nodes. Small reads are made of windows, which are kept: the schemes go through
/// all files again and again, a variable at a time, and a question costs a round trip.
class NodeSource final : public Source {
 public:
  struct Place {
    std::shared_ptr<NodeFiles> node;
    uint64_t file = 0;  ///< ordinal in the node's offer
  };
  /// `window_memory_bytes`: for windows, about.
  NodeSource(std::vector<SourceFile> files, std::vector<Layout> layouts, std::vector<Place> places,
             uint64_t window_memory_bytes);

  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink&) override { return layouts_; }
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override;
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override;
  Status check_unchanged() override;

 private:
  using Key = std::pair<uint32_t, uint64_t>;  ///< file, ordinal of the window in it
  struct Window {
    ByteVector bytes;
    std::list<Key>::iterator used;
  };
  Result<const ByteVector*> window(const Key& key);

  const std::vector<SourceFile> files_;
  const std::vector<Layout> layouts_;
  const std::vector<Place> places_;
  const size_t windows_max_;
  std::map<Key, Window> windows_;
  std::list<Key> recently_used_;
};

}  // namespace varve
