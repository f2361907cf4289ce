#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/process.h"
#include "core/progress.h"
#include "engine/second_reading.h"
#include "format/tree.h"
#include "layout/layout.h"
#include "layout/layout_service.h"
#include "store/catalog.h"
#include "store/store.h"

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

/// What of a folder is saved: shell patterns. One without '/' matches a component of a path, so that a folder of that
/// name is meant with all that is below it; one with '/' matches a path from the saved folder on, or one above. A '/'
/// at the end says nothing.
struct FileChoice {
  std::vector<std::string> include;  ///< nothing else; empty: all
  std::vector<std::string> exclude;
  bool all() const { return include.empty() && exclude.empty(); }
};

/// False: for sure, the choice takes neither this path of the saved folder nor anything below it.
bool may_take(const FileChoice& choice, const std::string& path);

/// A note of this name lies in a folder while the files of that set leave it, as they are saved: what is left is not
/// the set. It is no part of any set.
inline constexpr std::string_view kRemovalNotePrefix = ".varve-removing-of-";
inline bool is_removal_note(std::string_view name) { return name.starts_with(kRemovalNotePrefix); }

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

/// Lists a folder with all that is below it, without following symbolic links; sorted by path. Sockets, pipes and
/// devices are left out with a warning; what a restore that was killed has left there, without. Anything that cannot be
/// read is an error: a set is never silently less than its folder. `depth_max`: 1 lists the folder alone.
Result<std::vector<SourceFile>> scan_source_tree(const std::string& folder, ProgressSink& progress,
                                                 size_t depth_max = SIZE_MAX);

/// What a FileChoice takes of a folder.
struct ChosenFiles {
  std::vector<SourceFile> files;  ///< sorted by path; with the folders that they lie in
  uint64_t names_sum = 0;         ///< SourceFile::names_sum of the folder itself
  bool some_left_out = false;
};
/// The same of what `choice` takes, and of the notes of restores and removals, unless these are excluded. What it
/// cannot take (may_take()) is neither opened nor looked at, so that nothing of it can fail. Warns of patterns that
/// match nothing.
Result<ChosenFiles> scan_chosen_files(const std::string& folder, const FileChoice& choice, ProgressSink& progress);

/// What somebody names to be saved: a folder, or one file.
struct NamedSource {
  std::string folder;  ///< the named one, or that in which the named file lies
  SourceFile self;     ///< the folder as `.`, or the file: for check_unchanged()
  bool is_file() const { return self.type == FileType::regular; }
};
/// `path` may be a link to either.
Result<NamedSource> look_at_source(const std::string& path);

/// What has become of a file that is not any more what the scan saw: busy.
Status changed_while_saved(const std::string& path);

/// What a failed system call on what the scan saw means: changed_while_saved() if it is gone, or is something else by
/// now.
Status failed_while_saved(int error, std::string_view action, const std::string& path);

/// busy if the file, or what lies in the folder, differs from what the scan saw.
Status check_unchanged(const std::string& folder, const SourceFile& file);
/// The same where `choice` was scanned for: what comes and goes in a folder and is not taken changes nothing.
Status check_unchanged(const std::string& folder, const SourceFile& file, const FileChoice& choice);

/// Waits until whatever happens to the files from now on gives them other times than those that the scan saw, for two
/// seconds at most: a file system counts time in ticks, and what is written in one tick has one time.
void let_times_pass(const std::vector<SourceFile>& files);

/// Reads files of a folder. One thread.
class SourceReader {
 public:
  SourceReader(std::string folder, const std::vector<SourceFile>& files);
  ~SourceReader();
  SourceReader(const SourceReader&) = delete;
  SourceReader& operator=(const SourceReader&) = delete;

  /// Fills `into` with the file's bytes from `offset`. busy if the file is shorter than that.
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into);

  /// How many of the `bytes_max` bytes from `offset` are a hole of the (sparse) file; 0 if there are data.
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max);

  /// Somebody reads the file otherwise, from here on: what is written to it is noticed from now. False: its times may
  /// not tell, so that what he has read has to be read by him again, too, before check_unnoticed().
  Result<bool> notice(uint32_t file);

  const std::string& folder() const { return folder_; }
  const std::vector<SourceFile>& files() const { return files_; }

  /// Closes what is open; who reads on opens it again.
  void close_all();

  /// busy if what was read of the file, or of any, is not one state of it, as far as its times do not tell: then it is
  /// read again.
  Status check_unnoticed(uint32_t file);
  Status check_unnoticed();

 private:
  struct OpenFile {
    UniqueFd fd;
    std::list<uint32_t>::iterator used;
  };
  Result<int> open(uint32_t file);
  void close(uint32_t file);
  Status look_first(uint32_t file, int descriptor, uint64_t device, const std::string& path);
  /// Of a file whose times may not tell that it changes; else null.
  SecondReading* second_reading(uint32_t file);

  const std::string folder_;
  const std::vector<SourceFile>& files_;
  const size_t open_files_max_;
  std::vector<bool> seen_;  ///< those that were open once: writes to them are noticed from then on, or
  std::map<uint32_t, SecondReading> second_readings_;  ///< they are among these
  std::map<uint64_t, bool> devices_;                   ///< and whether times_may_miss_writes() there
  Buffer reread_;                                      ///< for second readings
  std::unordered_map<uint32_t, OpenFile> open_;
  std::list<uint32_t> recently_used_;

  // The last hole found: the block schemes ask for it piece by piece.
  uint32_t hole_file_ = UINT32_MAX;
  uint64_t hole_begin_ = 0, hole_end_ = 0;

  // Small extents that lie near one another (headers between variables) are read with one call: the second of them
  // opens a window. One that stands alone is read alone.
  uint32_t small_file_ = UINT32_MAX;
  uint64_t small_end_ = 0;
  uint32_t window_file_ = UINT32_MAX;
  uint64_t window_offset_ = 0;
  ByteVector window_;
};

/// Some files of a folder, as scan_source_tree() found them, or scan_chosen_files() by `choice`.
class FolderSource final : public Source {
 public:
  /// `layouts` must outlive this.
  FolderSource(std::string folder, std::vector<SourceFile> files, LayoutService& layouts,
               LayoutReadOptions layout_options, FileChoice choice = {})
      : folder_(std::move(folder)),
        files_(std::move(files)),
        layouts_(layouts),
        layout_options_(std::move(layout_options)),
        choice_(std::move(choice)),
        reader_(folder_, files_) {}
  FolderSource(const FolderSource&) = delete;
  FolderSource& operator=(const FolderSource&) = delete;

  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink& progress) override;
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override {
    return reader_.read(file, offset, into);
  }
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override {
    return reader_.hole_bytes(file, offset, bytes_max);
  }
  Status check_unchanged() override;

 private:
  Status notice_files();
  Status check_layouts();

  const std::string folder_;
  const std::vector<SourceFile> files_;
  LayoutService& layouts_;
  const LayoutReadOptions layout_options_;
  const FileChoice choice_;
  SourceReader reader_;
  /// Of those files whose times may not tell that they change, a sum of the layout; until it was compared.
  std::map<uint32_t, uint32_t> unnoticed_layouts_;
};

/// Which files of a set are meant. Empty: all.
struct FileFilter {
  std::vector<std::string> globs;  ///< shell patterns; one without '/' may match the last component alone
  std::optional<int64_t> rank;
  bool all() const { return globs.empty() && !rank; }
  bool matches(const TreeFile& file) const;
};

/// Whether something is damaged or missing, and not only out of reach now.
inline bool is_damage(const Status& status) {
  return status.code() == StatusCode::corrupt || status.code() == StatusCode::not_found;
}

/// A part of a set's tree that is damaged or missing, and with it the names of the files that it lists.
struct LostLeaves {
  Status why;
  Score node;               ///< that cannot be read
  uint64_t file_count = 0;  ///< that it lists; 0: not known
};

/// Visits the leaves of a set's tree in order, each verified. It ends at the first that cannot be read; with `lost`, it
/// tells of those that are damaged or missing, and goes on if that gives OK.
Status for_each_leaf(const Store& store, const SetRecord& record, const std::function<Status(const Leaf&)>& visit,
                     const std::function<Status(const LostLeaves&)>& lost = {});

/// Where some consecutive bytes of a file lie: in a stream.
struct FilePiece {
  uint64_t file_offset = 0, bytes = 0;
  size_t stream = 0;
  uint64_t stream_offset = 0;
};
/// All of a file, in order.
std::vector<FilePiece> file_pieces(const TreeFile& file);

/// Reads streams out of packs, keeping the last few packs decoded. One thread.
class StreamReader {
 public:
  explicit StreamReader(const Store& store, size_t packs_max = 16) : store_(store), packs_max_(packs_max) {}
  /// Fills `into` with the bytes of a stream from `offset`, verified. `leaf` is the one that holds the stream.
  Status read(const Leaf& leaf, const std::vector<Reference>& stream, uint64_t offset, MutableByteSpan into);

 private:
  Result<ByteSpan> range(const PackLink& link, const Extent& range);
  const Store& store_;
  const size_t packs_max_;
  std::list<std::pair<Score, Pack>> packs_;  ///< last used first
};

/// Fills `into` with a pattern as it lies `offset` bytes into its reference.
void fill_pattern(uint64_t pattern, uint64_t offset, MutableByteSpan into);

}  // namespace varve
