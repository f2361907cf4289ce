#pragma once

#include <optional>
#include <string>
#include <vector>

#include "aggregate/source.h"
#include "level/set_origin.h"
#include "runtime/drained_image.h"

namespace varve {

/// The snapshots of a group's members as the engine reads them: one file for each rank, and the set's origin before
/// them, if it is to be told.
class SnapshotSource final : public Source {
 public:
  struct Part {
    uint32_t rank = 0;
    DrainedImage* image = nullptr;  ///< outlives the source
  };
  /// `parts` in the order of ranks, not empty; `time_s`, since 1970, is what the files are dated.
  SnapshotSource(std::vector<Part> parts, int64_t time_s, const std::optional<SetOrigin>& origin = std::nullopt);

  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink& progress) override;
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override;
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override;
  Status check_unchanged() override;

  uint64_t bytes() const;

 private:
  void add_file(const std::string& path, uint32_t rank, uint64_t bytes, int64_t time_s);

  const std::vector<Part> parts_;
  std::string origin_;        ///< the text of the first file, or nothing
  uint32_t first_image_ = 0;  ///< among the files
  std::vector<SourceFile> files_;
};

}  // namespace varve
