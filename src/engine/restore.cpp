#include "engine/restore.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <set>

#include "comm/agreement.h"
#include "comm/process_share.h"
#include "core/sync.h"
#include "core/thread_pool.h"
#include "engine/restore_target.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
constexpr size_t kPatternBufferBytes = 64_KiB;
constexpr uint64_t kPutTogetherBytesMax = 64_KiB;
constexpr size_t kReadsInFlight = 8;
/// Where several processes share a machine and its disk.
constexpr uint32_t kThreadsOfProcessMin = 4;

/// A range of a pack that goes to a place of a staged file.
struct Copy {
  uint32_t file = 0;
  uint32_t pack_offset = 0;
  uint64_t bytes = 0;
  uint64_t file_offset = 0;
};

struct PackPlan {
  PackLink link;
  std::vector<Copy> copies;
};

/// A file that is restored.
struct WantedFile {
  TreeFile file;          ///< without layout and references, which the plan of its copies holds
  bool is_own = false;    ///< this process restores it
  bool is_tiled = false;  ///< its tiles get whole
  bool is_small = false;  ///< and comes out of one pack as a whole
  bool is_above = false;  ///< a folder that is restored only for what is below it
};

TreeFile without_contents(const TreeFile& file) {
  TreeFile kept;
  kept.path = file.path;
  kept.type = file.type;
  kept.mode = file.mode;
  kept.modified_s = file.modified_s;
  kept.modified_ns = file.modified_ns;
  kept.link_target = file.link_target;
  kept.bytes = file.bytes;
  return kept;
}

/// Whether hardly any of the file is zeros, which are left as holes.
bool is_dense(const TreeFile& file) {
  uint64_t zero_bytes = 0;
  for (const std::vector<Reference>& stream : file.streams) {
    for (const Reference& reference : stream) {
      if (reference.pack == Reference::kPattern && reference.offset == 0) zero_bytes += reference.bytes;
    }
  }
  return file.bytes > 0 && zero_bytes < file.bytes / 8;
}

/// Whether all of a large file comes out of packs, so that its tiles get whole.
bool is_tiled(const TreeFile& file) {
  if (file.bytes < kTileBytes) return false;
  for (const std::vector<Reference>& stream : file.streams) {
    for (const Reference& reference : stream) {
      if (reference.pack == Reference::kPattern) return false;
    }
  }
  return true;
}

/// Whether a file is small, and all of it is in one pack: then it is put together in memory.
bool is_small(const TreeFile& file) {
  if (file.type != FileType::regular || file.bytes == 0 || file.bytes > kPutTogetherBytesMax) return false;
  std::optional<uint32_t> pack;
  for (const std::vector<Reference>& stream : file.streams) {
    for (const Reference& reference : stream) {
      if (reference.pack == Reference::kPattern || (pack && *pack != reference.pack)) return false;
      pack = reference.pack;
    }
  }
  return pack.has_value();
}

/// The files of a set that all processes together restore, by numbers that are the same on all.
class WantedFiles {
 public:
  /// Its number. corrupt: the set names a file of that path twice.
  Result<uint32_t> add(const TreeFile& file, bool own, bool above) {
    if (!paths_.emplace(file.path, file.type).second) return Status::corrupt("a set names a file twice", file.path);
    files_.push_back({without_contents(file), own, own && is_tiled(file), own && is_small(file), above});
    return static_cast<uint32_t>(files_.size() - 1);
  }
  /// A folder of the set that is not wanted itself.
  void note_other_folder(const TreeFile& folder) { other_folders_.emplace(folder.path, without_contents(folder)); }

  /// Without folders that are there only for what is below them.
  size_t count() const {
    return static_cast<size_t>(
        std::count_if(files_.begin(), files_.end(), [](const WantedFile& wanted) { return !wanted.is_above; }));
  }
  const WantedFile& operator[](uint32_t number) const { return files_[number]; }
  /// The own ones of a type.
  std::vector<uint32_t> own_of(FileType type) const {
    std::vector<uint32_t> numbers;
    for (uint32_t number = 0; number < files_.size(); ++number) {
      if (files_[number].is_own && files_[number].file.type == type) numbers.push_back(number);
    }
    return numbers;
  }

  /// Whether the set has a folder there, which is restored, if only for what is below it. A leaf has it before that.
  bool comes(const std::string& folder) const {
    const auto wanted = paths_.find(folder);
    return other_folders_.contains(folder) || (wanted != paths_.end() && wanted->second == FileType::directory);
  }

  /// Folders that are not wanted themselves, and hold what is.
  std::vector<TreeFile> folders_above() const {
    std::set<std::string> above;
    for (const auto& [path, type] : paths_) {
      for (std::string at = parent_path(path); at != "." && above.insert(at).second;) at = parent_path(at);
    }
    std::vector<TreeFile> folders;
    for (const std::string& path : above) {
      const auto folder = other_folders_.find(path);
      if (folder != other_folders_.end()) folders.push_back(folder->second);
    }
    return folders;
  }

  /// What lies below anything but a folder could not be put there, or a link would lead it elsewhere.
  Status check_nesting() const {
    for (const auto& [path, type] : paths_) {
      for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
        auto above = paths_.find(path.substr(0, slash));
        if (above == paths_.end() || above->second == FileType::directory) continue;
        return Status::corrupt("a set names a file below something that is not a folder", path);
      }
    }
    return {};
  }

 private:
  std::vector<WantedFile> files_;
  std::map<std::string, FileType> paths_;
  std::map<std::string, TreeFile> other_folders_;
};

/// Copies ranges of packs to their places in staged files: each pack is read once for all that was planned. One thread
/// plans, and then calls run().
class PackCopier {
 public:
  /// All outlive it.
  PackCopier(const Store& store, RestoreTarget& target, const WantedFiles& files, const RestoreOptions& options,
             ProgressSink& progress)
      : store_(store),
        target_(target),
        files_(files),
        options_(options),
        progress_(progress),
        tiles_(
            [this](uint32_t number, uint64_t offset, ByteSpan bytes, bool whole_tile) -> Status {
              // What need not be durable stays in the page cache, where whoever restarts from it finds it.
              VARVE_TRY(whole_tile && options_.sync ? target_.write_direct(number, offset, bytes)
                                                    : target_.write(number, offset, bytes));
              note_written(number, bytes.size());
              return {};
            },
            options.memory_bytes / 2) {}

  void plan(const PackLink& link, const Copy& copy) {
    auto [found, added] = plan_of_.emplace(std::pair(link.score, link.hint), plans_.size());
    if (added) plans_.push_back({link, {}});
    plans_[found->second].copies.push_back(copy);
    ++copy_count_;
  }
  bool is_full() const { return copy_count_ > std::max<uint64_t>(options_.memory_bytes / 4 / sizeof(Copy), 4096); }

  /// All that was planned, on so many threads. With keep_going, damage is no failure: it costs files.
  Status run(size_t thread_count) {
    // By the first place that a pack serves, so that files fill from front to back, from however many arenas.
    std::sort(plans_.begin(), plans_.end(), [](const PackPlan& a, const PackPlan& b) {
      return std::pair(a.copies[0].file, a.copies[0].file_offset) <
             std::pair(b.copies[0].file, b.copies[0].file_offset);
    });
    count_missing();
    VARVE_TRY(parallel_for(plans_.size(), thread_count, [this](size_t i) { return copy_or_lose(plans_[i]); }));
    VARVE_TRY(tiles_.flush());
    plans_.clear();
    plan_of_.clear();
    copy_count_ = 0;
    return {};
  }

  bool is_lost(uint32_t number) const {
    const MutexLock lock(mutex_);
    return lost_.contains(number);
  }
  /// The files that need what is damaged.
  std::set<uint32_t> lost() const {
    const MutexLock lock(mutex_);
    return lost_;
  }
  Status first_damage() const {
    const MutexLock lock(mutex_);
    return first_damage_;
  }
  void note_damage(const Status& damage) {
    const MutexLock lock(mutex_);
    if (first_damage_.ok()) first_damage_ = damage;
  }
  /// Of packs, as stored.
  uint64_t read_bytes() const { return read_bytes_; }

 private:
  Status copy_or_lose(const PackPlan& plan) {
    if (progress_.cancelled()) return Status::cancelled();
    const Status status = copy_pack(plan);
    if (!is_damage(status) || !options_.keep_going) return status;
    std::map<uint32_t, PackPlan> of_file;
    for (const Copy& copy : plan.copies)
      of_file.try_emplace(copy.file, PackPlan{plan.link, {}}).first->second.copies.push_back(copy);
    for (const auto& [file, own] : of_file) {
      const Status copied = of_file.size() == 1 ? status : copy_pack(own);
      if (!is_damage(copied)) {
        VARVE_TRY(copied);
        continue;
      }
      const MutexLock lock(mutex_);
      if (first_damage_.ok()) first_damage_ = copied;
      lost_.insert(file);
    }
    return {};
  }

  /// Small files come as a whole, and what need not be durable is left to the system.
  void count_missing() {
    const MutexLock lock(mutex_);
    missing_.clear();
    if (!options_.sync) return;
    for (const PackPlan& plan : plans_) {
      for (const Copy& copy : plan.copies) {
        if (!files_[copy.file].is_small) missing_[copy.file] += copy.bytes;
      }
    }
  }

  /// Once all that is planned of a file is written, the disk takes it while others are being decoded.
  void note_written(uint32_t number, uint64_t bytes) {
    if (!options_.sync) return;
    {
      const MutexLock lock(mutex_);
      const auto missing = missing_.find(number);
      if (missing == missing_.end() || (missing->second -= std::min(missing->second, bytes)) > 0) return;
      missing_.erase(missing);
    }
    target_.begin_writing_out(number);
  }

  Status copy_pack(const PackPlan& plan) {
    std::vector<Extent> ranges;
    for (const Copy& copy : plan.copies) ranges.push_back({copy.pack_offset, copy.bytes});
    VARVE_ASSIGN(Pack pack, read_pack(store_, plan.link, ranges));  // all verified before the first byte goes out
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan.copies.size(); ++i) {
      const Copy& copy = plan.copies[i];
      const WantedFile& wanted = files_[copy.file];
      if (wanted.is_small) {
        VARVE_TRY(copy_whole(pack, plan.copies, i));
        bytes += wanted.file.bytes;
        continue;
      }
      VARVE_ASSIGN(ByteSpan range, pack.range(copy.pack_offset, copy.bytes));
      if (wanted.is_tiled) {
        VARVE_TRY(tiles_.add(copy.file, wanted.file.bytes, copy.file_offset, range));
      } else {
        VARVE_TRY(target_.write(copy.file, copy.file_offset, range));
        note_written(copy.file, copy.bytes);
      }
      bytes += copy.bytes;
    }
    read_bytes_ += pack.meta().held_bytes();
    progress_.advance(bytes);
    return {};
  }

  /// Puts a small file together, all of whose copies begin at `first`, and are planned one after another; `first` is
  /// the last of them afterwards.
  Status copy_whole(Pack& pack, const std::vector<Copy>& copies, size_t& first) {
    const uint32_t number = copies[first].file;
    const TreeFile& file = files_[number].file;
    ByteVector contents(file.bytes);
    uint64_t filled = 0;
    for (size_t i = first; i < copies.size() && copies[i].file == number; first = i++) {
      const Copy& copy = copies[i];
      if (copy.file_offset > file.bytes || copy.bytes > file.bytes - copy.file_offset)
        return Status::corrupt("a set has bytes behind a file's end", file.path);
      VARVE_ASSIGN(const ByteSpan range, pack.range(copy.pack_offset, copy.bytes));
      std::copy(range.begin(), range.end(), contents.begin() + static_cast<ptrdiff_t>(copy.file_offset));
      filled += copy.bytes;
    }
    if (filled != file.bytes) return Status::corrupt("a set does not have all bytes of a file", file.path);
    return target_.stage_whole(number, contents, file, options_.sync);
  }

  const Store& store_;
  RestoreTarget& target_;
  const WantedFiles& files_;
  const RestoreOptions& options_;
  ProgressSink& progress_;
  TileWriter tiles_;
  std::vector<PackPlan> plans_;
  /// By arena too: two thinned copies of one pack may each hold what the other lacks.
  std::map<std::pair<Score, ArenaId>, size_t> plan_of_;
  size_t copy_count_ = 0;
  mutable Mutex mutex_;
  /// Bytes of files that are to be durable, which are planned and not written yet.
  std::map<uint32_t, uint64_t> missing_ VARVE_GUARDED_BY(mutex_);
  std::set<uint32_t> lost_ VARVE_GUARDED_BY(mutex_);
  Status first_damage_ VARVE_GUARDED_BY(mutex_);
  std::atomic<uint64_t> read_bytes_{0};
};

class Restorer {
 public:
  Restorer(const Store& store, RestoreTarget& target, const SetRecord& record, const RestoreOptions& options,
           Communicator& ranks, ProgressSink& progress)
      : store_(store),
        target_(target),
        record_(record),
        options_(options),
        ranks_(ranks),
        progress_(progress),
        shares_(record.raw_bytes, ranks.rank_count()),
        copier_(store, target, files_, options, progress),
        idle_patterns_(options.filter) {}

  /// Walks the tree and brings the wanted files that are this process's into the staging folder.
  Status stage() {
    Status planned = for_each_leaf(
        store_, record_,
        [&](const Leaf& leaf) -> Status {
          for (const TreeFile& file : leaf.files) {
            // Neighbours share packs, so each process takes a run of files. What has no bytes is the first one's.
            const uint32_t process = file.type == FileType::regular ? shares_.take(file.bytes) : 0;
            if (options_.filter.matches(file)) {
              idle_patterns_.note(file);
              VARVE_TRY(plan_file(leaf, file, process == ranks_.rank()));
            } else if (file.type == FileType::directory) {
              files_.note_other_folder(file);
            }
          }
          return copier_.is_full() ? execute() : Status();
        },
        [&](const LostLeaves& lost) -> Status {
          if (!options_.keep_going) return lost.why;
          copier_.note_damage(lost.why);
          ++lost_leaf_count_;
          unnamed_file_count_ += lost.file_count;
          lost_sum_ += lost.node.prefix();
          return {};
        });
    VARVE_TRY(planned);
    // Wanted files bring the folders that they lie in, with their modes.
    for (const TreeFile& folder : files_.folders_above())
      VARVE_TRY(plan_file({}, folder, ranks_.rank() == 0, /*above=*/true));
    VARVE_TRY(files_.check_nesting());
    VARVE_TRY(execute());
    return options_.sync ? target_.make_staged_durable() : Status();
  }

  /// Puts everything at its place, one type after another on all processes. Collective.
  Status publish(RestoreReport& report) {
    VARVE_TRY(follow_first(ranks_, ranks_.rank() == 0 ? begin_publishing() : Status()));
    const Status given = give_names(report);
    if (given.ok()) return follow_first(ranks_, ranks_.rank() == 0 ? target_.end_publishing(options_.sync) : Status());
    // All come here, or none. Where no file got its name, the folder is what it was.
    std::array<uint64_t, 1> any = {target_.gave_names() ? uint64_t{1} : uint64_t{0}};
    if (ranks_.all_max(any).ok() && any[0] == 0 && ranks_.rank() == 0) target_.take_note_back();
    return given;
  }

  /// All processes walk the whole tree, and the first one says it. What nobody can read any more may have matched.
  void warn_of_idle_patterns() const {
    if (ranks_.rank() > 0 || has_lost_leaves()) return;
    for (const Status& warning : idle_patterns_.warnings()) progress_.warning(warning);
  }

  /// Wanted files of all processes.
  size_t file_count() const { return files_.count(); }
  Status first_damage() const { return copier_.first_damage(); }
  bool has_lost_leaves() const { return lost_leaf_count_ > 0; }
  /// Each process takes its share of what it sees: all have to see the same. Collective.
  Status check_lost_alike() const {
    const std::array<uint64_t, 2> mine = {lost_leaf_count_, lost_sum_};
    std::array<uint64_t, 2> least = mine, most = mine;
    VARVE_TRY(ranks_.all_min(least));
    VARVE_TRY(ranks_.all_max(most));
    if (least == most) return {};
    return Status::io_error("processes have found different damage", record_.name.to_string(), "do it again");
  }

 private:
  /// Another restore into the folder may have been faster.
  Status check_still_free() {
    if (target_.is_still_empty()) return {};
    for (const FileType type : {FileType::directory, FileType::regular, FileType::symlink}) {
      for (const uint32_t number : files_.own_of(type)) {
        const TreeFile& file = files_[number].file;
        if (!copier_.is_lost(number)) VARVE_TRY(target_.check_free(file, files_.comes(parent_path(file.path))));
      }
    }
    return {};
  }

  Status give_names(RestoreReport& report) {
    VARVE_TRY(agree(ranks_, check_still_free()));
    for (FileType type :
         {FileType::directory, FileType::regular, FileType::symlink}) {  // links last: nothing is written through them
      VARVE_TRY(agree(ranks_, publish_type(type, report)));
    }
    for (const uint32_t number : copier_.lost()) report.lost_files.push_back(files_[number].file.path);
    report.read_bytes = copier_.read_bytes();
    // All processes walk the whole tree.
    report.lost_leaf_count = ranks_.rank() == 0 ? lost_leaf_count_ : 0;
    report.unnamed_file_count = ranks_.rank() == 0 ? unnamed_file_count_ : 0;
    // Before folders get their modes, each process makes the names durable that it has given.
    VARVE_TRY(agree(ranks_, ranks_.rank() > 0 ? target_.finish_folders({}, options_.sync) : Status()));
    std::vector<const TreeFile*> folders;
    for (const uint32_t number : files_.own_of(FileType::directory)) folders.push_back(&files_[number].file);
    return agree(ranks_, ranks_.rank() == 0 ? target_.finish_folders(folders, options_.sync) : Status());
  }

  Status begin_publishing() {
    std::string part;
    for (const std::string& glob : options_.filter.globs) part += glob + "\n";
    if (options_.filter.rank) part += "rank " + std::to_string(*options_.filter.rank);
    return target_.begin_publishing(record_.name.to_string(), part, options_.sync, progress_);
  }

  Status publish_type(FileType type, RestoreReport& report) {
    std::vector<uint32_t> numbers = files_.own_of(type);
    std::erase_if(numbers, [this](uint32_t number) { return copier_.is_lost(number); });
    if (type == FileType::directory) {  // before what is in them: they may need to be made writable
      std::sort(numbers.begin(), numbers.end(),
                [this](uint32_t a, uint32_t b) { return files_[a].file.path < files_[b].file.path; });
    }
    for (const uint32_t number : numbers) {
      const auto& [file, own, tiled, small, above] = files_[number];
      VARVE_TRY(target_.publish(number, file));
      if (above) continue;
      ++report.file_count;
      report.raw_bytes += file.bytes;
    }
    return {};
  }

  Status plan_file(const Leaf& leaf, const TreeFile& file, bool own, bool above = false) {
    VARVE_ASSIGN(const uint32_t number, files_.add(file, own, above));
    if (!own) return {};
    VARVE_TRY(target_.check_free(file, files_.comes(parent_path(file.path))));
    if (file.type != FileType::regular) return {};
    if (!files_[number].is_small) {
      VARVE_TRY(target_.stage(number, file.bytes, is_dense(file)));
      staged_.push_back(number);
    }
    for (size_t position = 0; position < file.streams.size(); ++position) {
      VARVE_TRY(plan_stream(leaf, file.streams[position], stream_extents(file, position), number));
    }
    return {};
  }

  /// Lays the references of a stream over its extents.
  Status plan_stream(const Leaf& leaf, const std::vector<Reference>& stream, const std::vector<Extent>& extents,
                     uint32_t number) {
    size_t extent = 0;
    uint64_t skip = 0;
    for (const Reference& reference : stream) {
      for (uint64_t done = 0; done < reference.bytes;) {
        const uint64_t part = std::min(reference.bytes - done, extents[extent].bytes - skip);
        const uint64_t file_offset = extents[extent].offset + skip;
        if (reference.pack == Reference::kPattern) {
          VARVE_TRY(write_pattern(number, reference.offset, done, part, file_offset));
        } else {
          copier_.plan(leaf.packs[reference.pack],
                       {number, static_cast<uint32_t>(reference.offset + done), part, file_offset});
        }
        done += part;
        skip += part;
        if (skip == extents[extent].bytes) {
          ++extent;
          skip = 0;
        }
      }
    }
    return {};
  }

  Status write_pattern(uint32_t number, uint64_t pattern, uint64_t offset, uint64_t bytes, uint64_t file_offset) {
    progress_.advance(bytes);
    if (pattern == 0) return {};  // a staged file begins as a hole
    ByteVector buffer(std::min<uint64_t>(bytes, kPatternBufferBytes));
    fill_pattern(pattern, offset, buffer);  // the buffer is a multiple of the pattern, so each write continues it
    for (uint64_t done = 0; done < bytes; done += buffer.size()) {
      VARVE_TRY(target_.write(number, file_offset + done,
                              ByteSpan(buffer).first(std::min<uint64_t>(buffer.size(), bytes - done))));
    }
    return {};
  }

  /// Does the copies that are planned; then the staged files are complete.
  Status execute() {
    // Each thread reads, decodes and writes in turn, so more of them than processors keep the disk busy.
    const size_t usual = std::max(kReadsInFlight, 2 * size_t{processor_count()});
    const size_t thread_count = options_.thread_count > 0 ? options_.thread_count : usual;
    VARVE_TRY(copier_.run(thread_count));
    // In parallel, too: a file system makes many files durable at once.
    VARVE_TRY(parallel_for(staged_.size(), thread_count, [this](size_t i) {
      const uint32_t number = staged_[i];
      return copier_.is_lost(number) ? Status() : target_.finish(number, files_[number].file, options_.sync);
    }));
    staged_.clear();
    return {};
  }

  const Store& store_;
  RestoreTarget& target_;
  const SetRecord& record_;
  const RestoreOptions& options_;
  Communicator& ranks_;
  ProgressSink& progress_;
  ProcessShares shares_;
  WantedFiles files_;
  std::vector<uint32_t> staged_;  ///< files whose copies are planned
  PackCopier copier_;
  uint64_t lost_leaf_count_ = 0, unnamed_file_count_ = 0;
  uint64_t lost_sum_ = 0;       ///< says which ones are lost
  IdlePatterns idle_patterns_;  ///< of the filter
};

/// The record of the set, as the first process finds it.
Result<SetRecord> share_record(const Store& store, const SetName& name, Communicator& ranks) {
  VARVE_ASSIGN(const ByteVector told, told_by_first(ranks, [&]() -> Result<ByteVector> {
                 VARVE_ASSIGN(const SetRecord record, Catalog(store).read(name));
                 return encode_set_record(record, store.score());
               }));
  return decode_set_record(told, store.score());
}

/// Opens the folder on all processes; the first one makes it.
Status open_target(const std::string& folder, bool overwrite, Communicator& ranks,
                   std::unique_ptr<RestoreTarget>& target) {
  auto open = [&]() -> Status {
    VARVE_ASSIGN(target, RestoreTarget::open(folder, overwrite));
    return {};
  };
  VARVE_TRY(follow_first(ranks, ranks.rank() == 0 ? open() : Status()));
  return agree(ranks, ranks.rank() == 0 ? Status() : open());
}

/// Takes the staging folders away. The first process, which may have made the folder itself, does it when the others
/// have left it.
Status leave_target(Communicator& ranks, std::unique_ptr<RestoreTarget>& target) {
  if (ranks.rank() != 0) target.reset();
  const Status left = ranks.barrier();
  target.reset();
  return left;
}

/// The same report on all processes, of what all have done.
Result<RestoreReport> gather_report(const RestoreReport& of_this, Communicator& ranks) {
  ByteVector mine;
  ByteWriter w(mine);
  for (uint64_t number :
       {of_this.file_count, of_this.raw_bytes, of_this.read_bytes, of_this.lost_leaf_count, of_this.unnamed_file_count})
    w.varint(number);
  for (const std::string& path : of_this.lost_files) w.text(path);
  VARVE_ASSIGN(const auto all, ranks.all_gather(mine));
  RestoreReport report;
  report.set = of_this.set;
  for (const std::vector<std::byte>& of_one : all) {
    ByteReader reader(of_one);
    for (uint64_t* sum : {&report.file_count, &report.raw_bytes, &report.read_bytes, &report.lost_leaf_count,
                          &report.unnamed_file_count}) {
      VARVE_ASSIGN(const uint64_t number, reader.varint());
      *sum += number;
    }
    while (!reader.at_end()) {
      VARVE_ASSIGN(const std::string_view path, reader.text());
      report.lost_files.emplace_back(path);
    }
  }
  return report;
}

Status cannot_restore(const SetName& name, bool keep_going, const Status& staged) {
  const std::string context = "cannot restore " + name.to_string();
  if (staged.code() != StatusCode::corrupt && staged.code() != StatusCode::not_found) {
    return staged.with_context(context);
  }
  return Status::corrupt(context + ": " + std::string(staged.message()), std::string(staged.subject()),
                         keep_going ? Remedy::repair_from_another_store : Remedy::keep_going);
}

Result<RestoreReport> restore_into(const Store& store, const SetRecord& record, RestoreTarget& target,
                                   const RestoreOptions& options, Communicator& ranks, ProgressSink& progress) {
  Restorer restorer(store, target, record, options, ranks, progress);
  const Status staged = agree(ranks, restorer.stage());
  if (!staged.ok()) return cannot_restore(record.name, options.keep_going, staged);
  if (options.keep_going) VARVE_TRY(restorer.check_lost_alike());
  // Not even a name is left.
  if (restorer.file_count() == 0 && restorer.has_lost_leaves())
    return cannot_restore(record.name, options.keep_going, restorer.first_damage());
  if (restorer.file_count() == 0 && !options.filter.all()) {
    return Status::not_found("no file of the set matches", record.name.to_string(),
                             {Remedy::list_files, record.name.to_string()});
  }
  RestoreReport report;
  report.set = record.name;
  VARVE_TRY(restorer.publish(report));
  restorer.warn_of_idle_patterns();
  if (!restorer.first_damage().ok()) progress.warning(restorer.first_damage());
  return gather_report(report, ranks);
}
}  // namespace

Result<RestoreReport> restore_set(const Store& store, const SetName& name, const std::string& folder,
                                  const RestoreOptions& options, ProgressSink& progress) {
  const std::unique_ptr<Communicator> alone = make_single_communicator();
  return restore_set_together(store, name, folder, options, *alone, progress);
}

Result<RestoreReport> restore_set_together(const Store& store, const SetName& name, const std::string& folder,
                                           RestoreOptions options, Communicator& ranks, ProgressSink& progress) {
  SharedProgress shared(ranks, progress);
  shared.phase("restoring");
  VARVE_ASSIGN(const SetRecord record, share_record(store, name, ranks));
  shared.total(options.filter.all() ? record.raw_bytes / ranks.rank_count() : 0);
  if (ranks.rank_count() > 1) {
    // Also where this process has been told how many: another one may not have been.
    VARVE_ASSIGN(const uint32_t threads, threads_of_process(ranks));
    if (options.thread_count == 0) options.thread_count = std::max(2 * threads, kThreadsOfProcessMin);
  }
  std::unique_ptr<RestoreTarget> target;
  const Status opened = open_target(folder, options.overwrite, ranks, target);
  Result<RestoreReport> report =
      opened.ok() ? restore_into(store, record, *target, options, ranks, shared) : Result<RestoreReport>(opened);
  const Status left = leave_target(ranks, target);
  const Status told = left.ok() ? shared.tell_warnings() : left;
  if (report.ok() && !told.ok()) return told;
  if (!report.ok()) return Catalog(store).unless_dropped(record.name, report.status());
  return report;
}

}  // namespace varve
