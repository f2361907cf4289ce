#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/process.h"
#include "core/unique_id.h"

namespace varve {

/// 16 hexadecimal digits that stand for a job of a store: programs with the same one would meet.
std::string make_job_key(std::string_view canonical_store_path, std::string_view job);

/// Whose segments, where.
struct SegmentFamily {
  std::string folder;  ///< of a memory file system: "/dev/shm"
  uint32_t user = 0;   ///< numeric id
  std::string job_key;
  /// Where slots and grids go that have no room in `folder`: the first one that has. All of a node know the same.
  std::vector<std::string> spill_folders{};
  bool operator==(const SegmentFamily&) const = default;

  /// What the file names of all of them begin with: "varve-1000-0123456789abcdef-".
  std::string file_prefix() const;
  /// Where runs of the job on this node may have left something to restart from, as the family of one that was there:
  /// in `folder`, and, where that had no room, in those spill folders that are in memory, too, or are `own_folder`. No
  /// folder twice, whatever it is called.
  std::vector<SegmentFamily> memory_places(const std::string& own_folder = {}) const;
};

/// The segments of one rank of one run.
struct SegmentOwner {
  SegmentFamily family;
  UniqueId run;
  uint32_t rank = 0;
  bool operator==(const SegmentOwner&) const = default;

  /// `what`: "control", "slot0", "slot1", "grid-<n>".
  std::string path(std::string_view what) const;
  std::string control_path() const { return path("control"); }
  std::string slot_path(uint32_t slot) const;
  std::string grid_path(uint32_t grid) const;
  /// Where a segment of this path may be instead, by preference; itself first.
  std::vector<std::string> places_of(const std::string& path) const;
};

/// The parts of a segment's file name.
struct SegmentName {
  UniqueId run;
  uint32_t rank = 0;
  std::string what;
};
/// Nothing if it is no segment of this family.
std::optional<SegmentName> parse_segment_name(const SegmentFamily& family, std::string_view file_name);

/// Whether what is in a folder is in memory, rather than on a disk.
bool is_memory_folder(const std::string& folder);

/// A file of a memory file system, mapped. Movable; unmaps at its end and leaves the file.
class SharedSegment {
 public:
  enum class Access { read, read_write };

  SharedSegment() = default;
  SharedSegment(SharedSegment&& other) noexcept { *this = std::move(other); }
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  /// Makes the file, of zeroes, for this user alone, with all of its memory (no_space now, rather than a SIGBUS later),
  /// and touches it. `fill` writes its first content before the file has a name: nobody ever sees it without.
  /// already_exists; unsupported: the folder's file system cannot do it.
  template <class Fill>
  static Result<SharedSegment> create(const std::string& path, uint64_t bytes, const Fill& fill) {
    return create_sparse(path, bytes, bytes, fill);
  }
  static Result<SharedSegment> create(const std::string& path, uint64_t bytes) {
    return create(path, bytes, [](MutableByteSpan) {});
  }
  /// The same with memory for the first `bytes` alone, which `fill` sees, of `mapped_bytes` that are mapped: the rest
  /// is not to be touched before take() has taken memory for it.
  template <class Fill>
  static Result<SharedSegment> create_sparse(const std::string& path, uint64_t bytes, uint64_t mapped_bytes,
                                             const Fill& fill) {
    VARVE_ASSIGN(SharedSegment segment, create_nameless(path, bytes, mapped_bytes));
    fill(segment.bytes().first(bytes));
    VARVE_TRY(segment.publish());
    return segment;
  }
  /// Takes memory for a part of it: no_space now, rather than a SIGBUS when it is written. Anyone that may write.
  Status take(uint64_t offset, uint64_t bytes) const;
  /// create() at the first of these paths where that can be done; what it says of the last one if none is such.
  static Result<SharedSegment> create_anywhere(std::span<const std::string> paths, uint64_t bytes);
  /// Whether a failure to make shared memory means that there is too little of it, rather than that something is wrong.
  static bool lacks_room(const Status& failure) { return failure.code() == StatusCode::no_space; }

  /// Maps all of a file that is there. Links are not followed; permission_denied unless it is a regular file of this
  /// user; corrupt if it is empty.
  static Result<SharedSegment> open(const std::string& path, Access access);
  /// The same of the first of these that is there.
  static Result<SharedSegment> open_first(std::span<const std::string> paths, Access access);

  /// Makes it at least that large, touched; it may lie elsewhere then. Only the creator.
  Status grow(uint64_t bytes);
  /// Maps anew if another process has made it larger.
  Status follow_growth();
  /// Holds a lock for as long as the creator lives, whatever process number it has; tells whether one is held,
  /// or may be, where the system does not say.
  bool creator_holds_lock() const;
  /// What this process has touched of it counts as its memory no more, until it touches that again. Nothing is lost.
  void leave_pages() const;
  /// The same of `part`, as far as it lies in here, by whole pages, huge ones where there are any: one at whose end it
  /// does not arrive is left with the part that does.
  void leave_pages(ByteSpan part) const;
  /// Removes the file; the mapping stays. A file that is gone is fine.
  Status unlink() const;

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  MutableByteSpan bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  bool in_memory() const { return is_memory_folder(path_.substr(0, path_.rfind('/'))); }
  bool valid() const { return data_ != nullptr; }

 private:
  static Result<SharedSegment> create_nameless(const std::string& path, uint64_t bytes, uint64_t mapped_bytes);
  Status publish();
  Status map(uint64_t bytes);
  void unmap();

  std::string path_;
  UniqueFd file_;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  Access access_ = Access::read;
};

}  // namespace varve
