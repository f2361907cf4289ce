#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "core/sync.h"
#include "format/frame.h"
#include "format/pack.h"

namespace varve {

struct ArenaWriterOptions {
  bool direct = true;             ///< bypass the page cache where the file system can
  bool background = true;         ///< threads of its own write while the caller fills the next buffer
  uint64_t buffer_bytes = 4_MiB;  ///< of each of the buffers; a multiple of kDirectAlignment
  uint32_t buffer_count = 2;      ///< at least 2: one is filled, the others are written or wait for it
};

/// Appends frames to a new arena. One caller at a time. Nothing is durable before seal() has
/// returned OK, and after any failure the arena is lost: drop it and write what it held to a new one.
class ArenaWriter {
 public:
  /// Begins the object `path`, which the backend must not have. The backend outlives the writer.
  static Result<std::unique_ptr<ArenaWriter>> create(Backend& backend, const std::string& path,
                                                     const ArenaHeader& header, ArenaWriterOptions options);
  ~ArenaWriter();  ///< gives the arena up if it was not sealed
  ArenaWriter(const ArenaWriter&) = delete;
  ArenaWriter& operator=(const ArenaWriter&) = delete;

  /// Appends a pack, or a node whose content has this score; returns its ordinal among its kind. A pack's body that has
  /// a `keeper` is copied when it is written: it stays as it is for as long as somebody has the keeper.
  Result<size_t> append_pack(const PackMeta& meta, ByteSpan body, std::shared_ptr<const void> keeper = nullptr);
  Result<size_t> append_node(const Score& score, ByteSpan content);
  /// Copies a frame from another arena as it is; `entry` says what it is.
  Status append_copy(FrameKind kind, const FrameEntry& entry, ByteSpan meta, ByteSpan body);

  /// Writes index and footer, and seals the object. Its name is durable once its folder is settled.
  Status seal();

  const ArenaId& id() const { return header_.arena; }
  const ArenaIndex& index() const { return index_; }
  uint64_t bytes() const { return next_offset_; }

 private:
  /// What is not in its buffer before that is written.
  struct LateBytes {
    size_t at = 0;  ///< in the buffer
    ByteSpan bytes;
    std::shared_ptr<const void> keeper;
  };
  struct Buffer {
    AlignedBlock block;
    size_t used = 0;
    uint64_t offset = 0;
    std::vector<LateBytes> late;
  };
  ArenaWriter(std::string path, const ArenaHeader& header, ArenaWriterOptions options)
      : path_(std::move(path)), header_(header), options_(options) {}
  Status start(Backend& backend);
  Status make_buffer();
  Result<uint64_t> append_frame(FrameKind kind, ByteSpan meta, ByteSpan body,
                                const std::shared_ptr<const void>& keeper = nullptr);
  Status put(ByteSpan bytes, const std::shared_ptr<const void>& keeper = nullptr);
  Status flush_buffer();
  Status hand_out();
  Status take_buffer();
  Status write(Buffer& buffer, size_t bytes, size_t writing);
  void start_writers();
  Status wait_for_writers();
  void run_writer();

  const std::string path_;
  const ArenaHeader header_;
  const ArenaWriterOptions options_;
  std::unique_ptr<ObjectWriter> object_;
  ArenaIndex index_;
  uint64_t next_offset_ = 0;
  Buffer filling_;
  unsigned buffer_count_ = 0;  ///< that were made

  Mutex mutex_;
  ConditionVariable has_pending_;                        ///< for the writers
  ConditionVariable has_written_;                        ///< for the caller
  std::deque<Buffer> pending_ VARVE_GUARDED_BY(mutex_);  ///< to be written, in order
  size_t writing_ VARVE_GUARDED_BY(mutex_) = 0;          ///< buffers that the threads have
  std::vector<Buffer> idle_ VARVE_GUARDED_BY(mutex_);
  bool stopping_ VARVE_GUARDED_BY(mutex_) = false;
  Status write_status_ VARVE_GUARDED_BY(mutex_);
  std::vector<Thread> writers_;
};

}  // namespace varve
