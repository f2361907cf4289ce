#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/progress.h"
#include "format/tree.h"
#include "layout/layout.h"

namespace varve {

/// One file of a checkpoint that is to be saved: of a folder, or the image of a program's snapshot.
struct SourceFile {
  std::string path;  ///< relative to the folder
  FileType type = FileType::regular;
  uint32_t mode = 0;
  int64_t modified_s = 0;
  uint32_t modified_ns = 0;
  std::string link_target;
  uint64_t bytes = 0;
  bool sparse = false;    ///< fewer bytes allocated than it is long: worth asking for holes
  int64_t changed_s = 0;  ///< inode change time: tells whether the file was touched while it was saved
  uint32_t changed_ns = 0;
  int64_t rank = -1;
  /// Of a folder of which a FileChoice takes some: a sum of what lies in it and is taken, which changes if anything of
  /// that comes, goes or is replaced. 0: none, its time tells of all.
  uint64_t names_sum = 0;
};

/// Where a group's checkpoint comes from: files of a folder, snapshots of a program. Used by one thread at a time; it
/// can be read from the beginning again, as a save that a prune took for dead starts over.
class Source {
 public:
  virtual ~Source() = default;
  /// The group's, in order; always the same.
  virtual const std::vector<SourceFile>& files() const = 0;
  /// Where the variables lie: one for each file, valid (validate_layout); empty for what is no regular file. Warnings
  /// go to `progress`.
  virtual Result<std::vector<Layout>> layouts(ProgressSink& progress) = 0;
  /// Fills `into` with the bytes of a regular file from `offset`. busy if the file is shorter than files() says.
  virtual Status read(uint32_t file, uint64_t offset, MutableByteSpan into) = 0;
  /// As many of the `bytes_max` bytes from `offset` on as lie together in memory and stay there, as they are, until the
  /// source's end: those need not be read. Nobody changes them meanwhile. None: they are to be read.
  virtual ByteSpan view(uint32_t file, uint64_t offset, uint64_t bytes_max) {
    static_cast<void>(file), static_cast<void>(offset), static_cast<void>(bytes_max);
    return {};
  }
  /// Nobody looks at these bytes, which were viewed, for the time being: they need not count as this process's memory.
  /// Any thread.
  virtual void leave(ByteSpan viewed) { static_cast<void>(viewed); }
  /// How many of the `bytes_max` bytes from `offset` on are a hole, which reads as zeros; 0 if there are data. Asked of
  /// sparse files only.
  virtual Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) = 0;
  /// busy if anything has changed since files() was made. Asked after the last read.
  virtual Status check_unchanged() = 0;
};

}  // namespace varve
