#pragma once

#include <memory>
#include <string>

#include "core/sync.h"
#include "mount/file_map.h"
#include "mount/mount_log.h"
#include "mount/pack_cache.h"
#include "mount/set_folder.h"

namespace varve {

/// A file of a committed set that a program reads. What cannot be read whole is EIO, and a line of the log. Reads ahead
/// while the file is read in sequence.
class StoredFile final : public OpenFile {
 public:
  /// `name` is for the log.
  StoredFile(std::shared_ptr<const FileMap> map, PackCache& packs, const MountLog& log, std::string name)
      : map_(std::move(map)), packs_(packs), log_(log), name_(std::move(name)) {}

  MountResult<size_t> read(uint64_t offset, MutableByteSpan into) override;
  MountResult<uint64_t> seek(uint64_t offset, int whence) override;

 private:
  void read_ahead(uint64_t offset, uint64_t end);

  const std::shared_ptr<const FileMap> map_;
  PackCache& packs_;
  const MountLog& log_;
  const std::string name_;

  Mutex mutex_;                ///< guards the rest
  uint64_t sequence_end_ = 0;  ///< where the reads so far have come to
  size_t next_ahead_ = 0;      ///< the first piece that was not read ahead
};

}  // namespace varve
