#pragma once

#include <memory>

#include "core/file_system.h"
#include "core/sync.h"
#include "format/frame.h"
#include "format/pack.h"

namespace varve {

struct ArenaWriterOptions {
  bool direct = true;             ///< bypass the page cache where the file system can
  bool background = true;         ///< a thread of its own writes while the caller fills the next buffer
  uint64_t buffer_bytes = 4_MiB;  ///< of each of the two buffers; a multiple of kDirectAlignment
};

/// Appends frames to a new arena under a temporary name. One caller at a time. Nothing is durable before seal() has
/// returned OK, and after any failure the arena is lost: drop it and write what it held to a new one.
class ArenaWriter {
 public:
  /// Creates `part_path`, which must not exist.
  static Result<std::unique_ptr<ArenaWriter>> create(FileSystem& fs, std::string part_path, const ArenaHeader& header,
                                                     ArenaWriterOptions options);
  ~ArenaWriter();  ///< removes the file if it was not sealed
  ArenaWriter(const ArenaWriter&) = delete;
  ArenaWriter& operator=(const ArenaWriter&) = delete;

  /// Appends a pack, or a node whose content has this score; returns its ordinal among its kind.
  Result<size_t> append_pack(const PackMeta& meta, ByteSpan body);
  Result<size_t> append_node(const Score& score, ByteSpan content);
  /// Copies a frame from another arena as it is; `entry` says what it is.
  Status append_copy(FrameKind kind, const FrameEntry& entry, ByteSpan meta, ByteSpan body);

  /// Writes index and footer, syncs, and renames the file to `final_path`. The name is durable once its directory is
  /// synced.
  Status seal(const std::string& final_path);

  const ArenaId& id() const { return header_.arena; }
  const ArenaIndex& index() const { return index_; }
  uint64_t bytes() const { return next_offset_; }

 private:
  struct Buffer {
    AlignedBlock block;
    size_t used = 0;
    uint64_t offset = 0;
  };
  ArenaWriter(FileSystem& fs, std::string part_path, const ArenaHeader& header, ArenaWriterOptions options)
      : fs_(fs), part_path_(std::move(part_path)), header_(header), options_(options) {}
  Status start();
  Result<uint64_t> append_frame(FrameKind kind, ByteSpan meta, ByteSpan body);
  Status put(ByteSpan bytes);
  Status flush_buffer();
  Status write_pending();
  Status wait_for_writer();
  void run_writer();

  FileSystem& fs_;
  const std::string part_path_;
  const ArenaHeader header_;
  const ArenaWriterOptions options_;
  std::unique_ptr<File> file_;
  ArenaIndex index_;
  uint64_t next_offset_ = 0;
  bool sealed_ = false;
  Buffer filling_;

  Mutex mutex_;  // guards what follows
  ConditionVariable changed_;
  Buffer writing_;
  bool write_pending_ = false;
  bool stopping_ = false;
  Status write_status_;
  Thread writer_;
};

}  // namespace varve
