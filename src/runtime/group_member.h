#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "engine/source.h"
#include "format/image.h"
#include "level/stored_image.h"
#include "snapshot/control_block.h"
#include "snapshot/shared_segment.h"
#include "snapshot/snapshot_view.h"
#include "varve/status.h"

namespace varve {

/// A member's snapshot while the checkpoint thread writes it: its bytes do not change.
class DrainedImage {
 public:
  virtual ~DrainedImage() = default;
  virtual const ImageTable& image() const = 0;
  virtual Status read(uint64_t offset, MutableByteSpan into) = 0;
  /// As Source::view().
  virtual ByteSpan view(uint64_t, uint64_t) { return {}; }
  /// What was looked at, all of it or these viewed bytes if they are of this image, is not to count as this process's
  /// memory. Any thread.
  virtual void leave_pages() {}
  virtual void leave_pages(ByteSpan) {}
  /// Asked after the last read: corrupt if somebody has changed it after all.
  virtual Status check_unchanged() = 0;
};

/// A rank as its group's checkpoint thread sees it, wherever it runs. That thread's alone.
class GroupMember {
 public:
  virtual ~GroupMember() = default;
  virtual uint32_t rank() const = 0;
  /// On another node: next_step() waits then, until the member says what it has or lacks next.
  virtual bool remote() const { return false; }

  /// The oldest step whose snapshot waits to be drained (of a remote member: or that it lacks).
  virtual Result<std::optional<uint64_t>> next_step() = 0;
  /// Whether it has no snapshot of `step` and will have none: it failed to make one, has gone on, or died.
  virtual bool will_lack(uint64_t step) = 0;
  /// The newest step that it has given up by itself.
  virtual std::optional<uint64_t> given_up() const { return std::nullopt; }

  /// The snapshot of that step, which stays as it is until end_drain().
  virtual Result<DrainedImage*> begin_drain(uint64_t step) = 0;
  /// Gives the slot of `step` back, with what became of it; also if it was not drained.
  virtual Status end_drain(uint64_t step, const Status& outcome) = 0;
  /// Tells the member how far its group is.
  virtual void post(const GroupNews& news) = 0;
};

/// A member on the same node, through its shared memory. It need not have made its memory yet: until then it has no
/// snapshot.
class LocalMember final : public GroupMember {
 public:
  static Result<std::unique_ptr<LocalMember>> open(const SegmentOwner& owner);

  uint32_t rank() const override { return owner_.rank; }
  Result<std::optional<uint64_t>> next_step() override;
  bool will_lack(uint64_t step) override;
  std::optional<uint64_t> given_up() const override { return view_->given_up(); }
  Result<DrainedImage*> begin_drain(uint64_t step) override;
  Status end_drain(uint64_t step, const Status& outcome) override;
  void post(const GroupNews& news) override { view_->post(news); }

 private:
  class Image final : public DrainedImage {
   public:
    const ImageTable& image() const override { return reader->image(); }
    Status read(uint64_t offset, MutableByteSpan into) override { return reader->read(offset, into); }
    ByteSpan view(uint64_t offset, uint64_t bytes_max) override;
    void leave_pages() override { reader->leave_pages(); }
    void leave_pages(ByteSpan viewed) override { reader->leave_pages(viewed); }
    Status check_unchanged() override;
    const SnapshotReader* reader = nullptr;
  };

  LocalMember(SegmentOwner owner, std::unique_ptr<SnapshotView> view)
      : owner_(std::move(owner)), view_(std::move(view)) {}

  const SegmentOwner owner_;
  const std::unique_ptr<SnapshotView> view_;
  Image image_;
  std::optional<uint64_t> draining_;
};

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
  ByteSpan view(uint32_t file, uint64_t offset, uint64_t bytes_max) override;
  void leave(ByteSpan viewed) override;
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override;
  Status check_unchanged() override;

  uint64_t bytes() const;

 private:
  DrainedImage& touch(uint32_t file, uint64_t bytes);
  void add_file(const std::string& path, uint32_t rank, uint64_t bytes, int64_t time_s);

  const std::vector<Part> parts_;
  std::string origin_;        ///< the text of the first file, or nothing
  uint32_t first_image_ = 0;  ///< among the files
  std::vector<SourceFile> files_;
  std::vector<uint8_t> touched_parts_;  ///< of parts_: how often their pages are yet to be left
  uint64_t touched_bytes_ = 0;          ///< since they were
};

/// The snapshots of a group's members, as its checkpoint thread takes them, step by step. That thread's alone, but for
/// post().
class GroupSnapshots {
 public:
  /// One member at least is on this node. `job` is for people.
  GroupSnapshots(std::vector<std::unique_ptr<GroupMember>> members, std::string job);

  bool has_remote() const { return has_remote_; }
  /// What to do with a step of which not all will have a snapshot, for this reason; among it is give_back().
  using Lose = std::function<void(uint64_t step, const Status& why)>;
  /// The oldest step that all members have. Steps that some member will never have are lost on the way.
  std::optional<uint64_t> next_step(const Lose& lose);
  /// At the end: loses the snapshots that not all members have. Members on other nodes tell when they end.
  void lose_rest(const Lose& lose);

  /// Those of that step, in the order of ranks; they stay as they are until they are given back.
  Result<std::vector<SnapshotSource::Part>> begin_drain(uint64_t step);
  /// Gives all members the slots of `step` back, with what became of it. What went wrong with that.
  std::vector<Status> give_back(uint64_t step, const Status& outcome);
  /// The newest of `step` and those that were given back.
  uint64_t newest_given_back(uint64_t step) const { return std::max(given_back_.value_or(0), step); }

  /// Tells the members how far their group is. One thread at a time.
  void post(const GroupNews& news);

 private:
  std::optional<uint64_t> oldest_local_step();
  bool catch_up(GroupMember& member, uint64_t step, const Lose& lose);

  const std::vector<std::unique_ptr<GroupMember>> members_;
  const std::string job_;
  const bool has_remote_;
  std::optional<uint64_t> given_back_;
};

}  // namespace varve
