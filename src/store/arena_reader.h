#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "backend/backend.h"
#include "core/progress.h"
#include "format/frame.h"
#include "format/pack.h"

namespace varve {

/// The frames in the file of a sealed arena, as they lie there, against their checksums. Thread-safe.
class ArenaFrames {
 public:
  /// How much of a frame is read.
  enum class Part : uint8_t {
    meta,            ///< no body
    unchecked_body,  ///< for who checks all that they use of it
    all,
  };
  struct Raw {
    Buffer storage;  ///< what the spans are in, but for a body that is in the room that was given
    ByteSpan meta, body;
    uint32_t body_crc = 0;  ///< as the header says
  };
  /// `path`: for messages. `bytes`: of the file.
  ArenaFrames(std::string path, const ArenaId& arena, std::unique_ptr<RangeReader> file, uint64_t bytes)
      : path_(std::move(path)), arena_(arena), file_(std::move(file)), bytes_(bytes) {}

  const std::string& path() const { return path_; }
  const ArenaId& arena() const { return arena_; }
  uint64_t bytes() const { return bytes_; }
  RangeReader& file() const { return *file_; }

  Result<FrameHeader> read_header(uint64_t offset) const;
  /// corrupt also if the frame is not what `entry` says of it. A body that is as long as `room` is read into it.
  Result<Raw> read(FrameKind kind, const FrameEntry& entry, Part part, MutableByteSpan room = {}) const;
  Status check_body(const Raw& frame, const FrameEntry& entry) const;
  /// `status`, with where that is in the file.
  Status at(const Status& status, uint64_t offset) const;

 private:
  std::string path_;
  ArenaId arena_;
  std::unique_ptr<RangeReader> file_;
  uint64_t bytes_;
};

/// Reads a sealed arena, which is immutable. Thread-safe. Everything read is checked: headers and meta parts against
/// their checksums, packs' tables and nodes against their scores, bodies against their checksums, or, where they are
/// nothing but chunks, chunk by chunk against these' scores (Pack).
class ArenaReader {
 public:
  /// Opens the arena `id` of the store `store` at `path`. If its index or footer is damaged, the frames are found by
  /// going through the file, and index_status() says what was wrong.
  static Result<std::shared_ptr<ArenaReader>> open(Backend& backend, const std::string& path, const ArenaId& id,
                                                   const UniqueId& store, const ScoreFunction& score);

  const ArenaId& id() const { return frames_.arena(); }
  /// For messages (Backend::shown_path).
  const std::string& path() const { return frames_.path(); }
  const ArenaIndex& index() const { return index_; }
  uint64_t bytes() const { return frames_.bytes(); }
  const Status& index_status() const { return index_status_; }
  /// Why index() may lack what the arena holds: some of its frames could not be read when they were looked for. OK: it
  /// lacks nothing but what is damaged.
  const Status& unread_status() const { return unread_status_; }

  /// The ordinal of a pack in index().packs, or of a node in index().nodes.
  std::optional<size_t> find_pack(const Score& score) const;
  std::optional<size_t> find_node(const Score& score) const;

  Result<PackMeta> read_pack_meta(size_t ordinal) const;
  /// `room`: as Pack::decode().
  Result<Pack> read_pack(size_t ordinal, MutableByteSpan room = {}) const;
  /// A hint, as RangeReader::will_need().
  void will_read_pack(size_t ordinal) const;
  /// A node's content, verified.
  Result<ByteVector> read_node(size_t ordinal) const;

  using RawFrame = ArenaFrames::Raw;
  /// A frame as it lies there, checksums verified.
  Result<RawFrame> read_raw(FrameKind kind, size_t ordinal) const;

  /// Goes through all bytes of the arena in order: every byte belongs to the header, a frame or the footer, and each of
  /// those is whole. With `deep`, decodes packs and nodes and checks all scores. Calls `damaged` for each damage (the
  /// score if it is a known pack or node). Tells `progress` how far it is; stops between two frames once that is
  /// cancelled.
  void verify(bool deep, const std::function<void(const Status&, std::optional<Score>)>& damaged,
              ProgressSink& progress = null_progress()) const;

 private:
  ArenaReader(ArenaFrames frames, const ScoreFunction& score) : frames_(std::move(frames)), score_(score) {}
  Status load_index();
  Status scan_frames();
  Status verify_frame(const FrameHeader& header, bool deep, std::optional<Score>& known) const;
  void build_maps();

  const ArenaFrames frames_;
  const ScoreFunction score_;
  ArenaIndex index_;
  Status index_status_, unread_status_;
  std::unordered_map<Score, size_t, ScoreHash> packs_, nodes_;
};

}  // namespace varve
