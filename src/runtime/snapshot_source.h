#pragma once

#include <vector>

#include "aggregate/source.h"
#include "runtime/drained_image.h"

namespace varve {

/// The snapshots of a group's members as the engine reads them: one file for each rank.
class SnapshotSource final : public Source {
 public:
  struct Part {
    uint32_t rank = 0;
    DrainedImage* image = nullptr;  ///< outlives the source
  };
  /// `parts` in the order of ranks; `time_s`, since 1970, is what the files are dated.
  SnapshotSource(std::vector<Part> parts, int64_t time_s);

  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink& progress) override;
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override {
    return parts_[file].image->read(offset, into);
  }
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override;
  Status check_unchanged() override;

  uint64_t bytes() const;

 private:
  const std::vector<Part> parts_;
  std::vector<SourceFile> files_;
};

}  // namespace varve
