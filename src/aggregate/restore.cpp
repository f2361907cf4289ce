#include "aggregate/restore.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "aggregate/restore_target.h"
#include "aggregate/tile_writer.h"
#include "core/parallel.h"

namespace varve {

namespace {
constexpr size_t kPatternBufferBytes = 64 * 1024;
constexpr size_t kReadsInFlight = 8;

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

class Restorer {
 public:
  Restorer(const Store& store, RestoreTarget& target, const RestoreOptions& options, ProgressSink& progress)
      : store_(store),
        target_(target),
        options_(options),
        progress_(progress),
        tiles_(
            [this](uint32_t number, uint64_t offset, ByteSpan bytes, bool whole_tile) {
              // What need not be durable stays in the page cache, where whoever restarts from it finds it.
              return whole_tile && options_.sync ? target_.write_direct(number, offset, bytes)
                                                 : target_.write(number, offset, bytes);
            },
            options.memory_bytes / 2) {}

  /// Walks the tree and brings all wanted files into the staging folder.
  Status stage(const SetRecord& record) {
    Status planned = for_each_leaf(store_, record, [&](const Leaf& leaf) -> Status {
      for (const TreeFile& file : leaf.files) {
        if (options_.filter.matches(file)) VARVE_TRY(plan_file(leaf, file));
      }
      return copy_count_ > copies_max() ? execute() : Status();
    });
    VARVE_TRY(planned);
    VARVE_TRY(check_nesting());
    return execute();
  }

  Status publish(RestoreReport& report) {
    std::vector<const TreeFile*> folders;
    for (FileType type :
         {FileType::directory, FileType::regular, FileType::symlink}) {  // links last: nothing is written through them
      for (uint32_t number = 0; number < files_.size(); ++number) {
        const TreeFile& file = files_[number];
        if (file.type != type || lost_.contains(number)) continue;
        VARVE_TRY(target_.publish(number, file));
        ++report.file_count;
        report.raw_bytes += file.bytes;
        if (type == FileType::directory) folders.push_back(&file);
      }
    }
    for (uint32_t number : lost_) report.lost_files.push_back(files_[number].path);
    report.read_bytes = read_bytes_;
    return target_.finish_folders(folders, options_.sync);
  }

  size_t file_count() const { return files_.size(); }
  const Status& first_damage() const { return first_damage_; }

 private:
  size_t copies_max() const { return std::max<uint64_t>(options_.memory_bytes / 4 / sizeof(Copy), 4096); }

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

  Status plan_file(const Leaf& leaf, const TreeFile& file) {
    const auto number = static_cast<uint32_t>(files_.size());
    if (!paths_.emplace(file.path, file.type).second) return Status::corrupt("a set names a file twice", file.path);
    VARVE_TRY(target_.check_free(file));
    TreeFile kept;  // without layout and references, which the plan holds
    kept.path = file.path;
    kept.type = file.type;
    kept.mode = file.mode;
    kept.modified_s = file.modified_s;
    kept.modified_ns = file.modified_ns;
    kept.link_target = file.link_target;
    kept.bytes = file.bytes;
    files_.push_back(std::move(kept));
    if (file.type != FileType::regular) {
      tiled_.push_back(false);
      return {};
    }
    VARVE_TRY(target_.stage(number, file.bytes, is_dense(file)));
    tiled_.push_back(is_tiled(file));
    staged_.push_back(number);
    for (size_t position = 0; position < file.streams.size(); ++position) {
      VARVE_TRY(plan_stream(leaf, file.streams[position], stream_extents(file, position), number));
    }
    return {};
  }

  /// Whether hardly any of the file is zeros, which are left as holes.
  static bool is_dense(const TreeFile& file) {
    uint64_t zero_bytes = 0;
    for (const std::vector<Reference>& stream : file.streams) {
      for (const Reference& reference : stream) {
        if (reference.pack == Reference::kPattern && reference.offset == 0) zero_bytes += reference.bytes;
      }
    }
    return file.bytes > 0 && zero_bytes < file.bytes / 8;
  }

  /// Whether all of a large file comes out of packs, so that its tiles get whole.
  static bool is_tiled(const TreeFile& file) {
    if (file.bytes < kTileBytes) return false;
    for (const std::vector<Reference>& stream : file.streams) {
      for (const Reference& reference : stream) {
        if (reference.pack == Reference::kPattern) return false;
      }
    }
    return true;
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
          plan_copy(leaf.packs[reference.pack],
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

  void plan_copy(const PackLink& link, const Copy& copy) {
    auto [found, added] = plan_of_.emplace(std::pair(link.score, link.hint), plans_.size());
    if (added) plans_.push_back({link, {}});
    plans_[found->second].copies.push_back(copy);
    ++copy_count_;
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

  /// Reads every planned pack once and puts its bytes where they belong; then the files are complete.
  Status execute() {
    // By the first place that a pack serves, so that files fill from front to back, from however many arenas.
    std::sort(plans_.begin(), plans_.end(), [](const PackPlan& a, const PackPlan& b) {
      return std::pair(a.copies[0].file, a.copies[0].file_offset) <
             std::pair(b.copies[0].file, b.copies[0].file_offset);
    });
    // Each thread reads, decodes and writes in turn, so more of them than processors keep the disk busy.
    const size_t usual = std::max<size_t>(kReadsInFlight, 2 * std::thread::hardware_concurrency());
    const size_t thread_count = options_.thread_count > 0 ? options_.thread_count : usual;
    VARVE_TRY(parallel_for(plans_.size(), thread_count, [this](size_t i) { return copy_or_lose(plans_[i]); }));
    VARVE_TRY(tiles_.flush());
    plans_.clear();
    plan_of_.clear();
    copy_count_ = 0;
    // In parallel, too: a file system makes many files durable at once.
    VARVE_TRY(parallel_for(staged_.size(), thread_count, [this](size_t i) {
      return lost_.contains(staged_[i]) ? Status() : target_.finish(staged_[i], files_[staged_[i]], options_.sync);
    }));
    staged_.clear();
    return {};
  }

  /// With keep_going, damage costs the files that need the pack.
  Status copy_or_lose(const PackPlan& plan) {
    if (progress_.cancelled()) return Status::cancelled();
    Status status = copy_pack(plan);
    const bool damage = status.code() == StatusCode::corrupt || status.code() == StatusCode::not_found;
    if (!damage || !options_.keep_going) return status;
    std::lock_guard lock(mutex_);
    if (first_damage_.ok()) first_damage_ = status;
    for (const Copy& copy : plan.copies) lost_.insert(copy.file);
    return {};
  }

  Status copy_pack(const PackPlan& plan) {
    std::vector<Extent> ranges;
    for (const Copy& copy : plan.copies) ranges.push_back({copy.pack_offset, copy.bytes});
    VARVE_ASSIGN(Pack pack, store_.read_pack(plan.link, ranges));  // all verified before the first byte goes out
    uint64_t bytes = 0;
    for (const Copy& copy : plan.copies) {
      VARVE_ASSIGN(ByteSpan range, pack.range(copy.pack_offset, copy.bytes));
      if (tiled_[copy.file]) {
        VARVE_TRY(tiles_.add(copy.file, files_[copy.file].bytes, copy.file_offset, range));
      } else {
        VARVE_TRY(target_.write(copy.file, copy.file_offset, range));
      }
      bytes += copy.bytes;
    }
    read_bytes_ += pack.meta().held_bytes();
    progress_.advance(bytes);
    return {};
  }

  const Store& store_;
  RestoreTarget& target_;
  const RestoreOptions& options_;
  ProgressSink& progress_;
  std::vector<TreeFile> files_;
  std::map<std::string, FileType> paths_;
  std::vector<bool> tiled_;
  std::vector<uint32_t> staged_;  ///< files of the plan
  TileWriter tiles_;
  std::vector<PackPlan> plans_;
  /// By arena too: two thinned copies of one pack may each hold what the other lacks.
  std::map<std::pair<Score, ArenaId>, size_t> plan_of_;
  size_t copy_count_ = 0;
  std::mutex mutex_;  // guards lost_ and first_damage_ while packs are copied
  std::set<uint32_t> lost_;
  Status first_damage_;
  std::atomic<uint64_t> read_bytes_{0};
};
}  // namespace

Result<RestoreReport> restore_set(const Store& store, const SetName& name, const std::string& folder,
                                  const RestoreOptions& options, ProgressSink& progress) {
  progress.phase("restoring");
  VARVE_ASSIGN(SetRecord record, Catalog(store).read(name));
  progress.total(options.filter.all() ? record.raw_bytes : 0);
  VARVE_ASSIGN(std::unique_ptr<RestoreTarget> target, RestoreTarget::open(folder, options.overwrite));
  Restorer restorer(store, *target, options, progress);
  const std::string context = "cannot restore " + name.to_string();
  if (Status staged = restorer.stage(record); !staged.ok()) {
    if (staged.code() == StatusCode::corrupt || staged.code() == StatusCode::not_found) {
      return Status::corrupt(
          context + ": " + std::string(staged.message()), std::string(staged.subject()),
          "nothing was written; `varve verify --deep` tells what is affected, --keep-going restores what is whole");
    }
    return staged.with_context(context);
  }
  if (restorer.file_count() == 0 && !options.filter.all()) {
    return Status::not_found("no file of the set matches", name.to_string(),
                             "`varve show " + name.to_string() + "` lists its files");
  }
  RestoreReport report;
  report.set = name;
  VARVE_TRY(restorer.publish(report));
  if (!report.lost_files.empty()) progress.warning(restorer.first_damage());
  return report;
}

}  // namespace varve
