#include "level/stored_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <utility>

#include "core/thread_pool.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
constexpr uint64_t kPatternWindowBytes = 64_KiB;
/// So many packs, of about a megabyte, are on their way while others are decoded.
constexpr size_t kPacksAhead = 8;
/// What is with another rank, or finds no room, is looked for again after this.
constexpr std::chrono::milliseconds kPauseForOthers(1);
/// So often in a load at most, if nothing has changed meanwhile: others may have died.
constexpr int kPausesMax = 1'000;
}  // namespace

/// What the image needs of a pack.
struct StoredImage::PackUse {
  struct Range {
    Extent in_pack;
    size_t stream = 0;
    uint64_t stream_offset = 0;
  };
  uint32_t pack = 0;
  std::vector<Range> ranges;
  uint64_t wanted_bytes = 0;  ///< of these
};

Status StoredImage::open(const SetRecord& record, uint32_t rank, uint32_t group) {
  const Status found = find(record, rank, group);
  if (found.code() == StatusCode::invalid_argument && origin_ != SetOrigin{}) {
    return Status::not_found(fmt::format("rank {} was on another node when the set was made", rank),
                             record.name.to_string());
  }
  VARVE_TRY(found);
  const Status table = read_table();
  if (!table.ok()) find_faults();
  return table;
}

namespace {
/// How many files of a leaf use each of its packs.
std::vector<uint32_t> users_of_packs(const Leaf& leaf) {
  std::vector<uint32_t> users(leaf.packs.size(), 0);
  std::vector<size_t> last(leaf.packs.size(), SIZE_MAX);  // of the files that were counted
  for (size_t file = 0; file < leaf.files.size(); ++file) {
    for (const std::vector<Reference>& stream : leaf.files[file].streams) {
      for (const Reference& reference : stream) {
        if (reference.pack == Reference::kPattern || std::exchange(last[reference.pack], file) == file) continue;
        ++users[reference.pack];
      }
    }
  }
  return users;
}
}  // namespace

Result<std::map<uint32_t, std::unique_ptr<StoredImage>>> StoredImage::open_present(const Store& store, Clock& clock,
                                                                                   const SetRecord& record,
                                                                                   bool of_node) {
  StoredImage looking(store, clock);
  if (of_node) VARVE_TRY(looking.find_origin(record, 0));
  const uint64_t rank_count = of_node ? looking.origin_.rank_count : record.rank_count;
  OfRanks found;
  for (const GroupRecord& group : record.groups) VARVE_TRY(looking.open_group(group, rank_count, found));
  return found;
}

Result<std::map<uint32_t, std::unique_ptr<StoredImage>>> StoredImage::open_group(
    const Store& store, Clock& clock, const SetRecord& record, uint32_t group,
    const std::function<const ImageTable*(uint32_t rank)>& known) {
  OfRanks found;
  VARVE_TRY(StoredImage(store, clock).open_group(record.groups[group], record.rank_count, found, known));
  return found;
}

Status StoredImage::open_group(const GroupRecord& group, uint64_t rank_count, OfRanks& found,
                               const std::function<const ImageTable*(uint32_t rank)>& known) {
  VARVE_ASSIGN(const Root root, read_root(group));
  for (const LeafLink& link : root.leaves) {
    VARVE_ASSIGN(Leaf leaf, read_leaf(link));
    const std::vector<uint32_t> users = users_of_packs(leaf);
    const std::vector<TreeFile> files = std::exchange(leaf.files, {});
    for (const TreeFile& file : files) {
      const std::optional<uint32_t> rank = rank_of_image(file.path);
      if (!rank || *rank >= rank_count || file.type != FileType::regular) continue;
      auto& image = found[*rank] = std::make_unique<StoredImage>(store_, clock_);
      image->leaf_ = leaf;
      image->leaf_.files.push_back(file);
      image->users_ = users;
      image->origin_ = origin_;
      if (const ImageTable* const table = known ? known(*rank) : nullptr) {
        if (table->image_bytes != file.bytes) return Status::corrupt("a rank's image is not what it was", file.path);
        image->image_ = *table;
        image->find_pieces();
      } else {
        VARVE_TRY(image->read_table());
      }
    }
  }
  return {};
}

namespace {
/// A leaf with nothing but one file of another, and the packs that it needs: a leaf may have very many files.
Leaf leaf_of_file(const Leaf& leaf, const TreeFile& file) {
  Leaf own;
  std::map<uint32_t, uint32_t> place_of;  // of packs
  TreeFile& kept = own.files.emplace_back(file);
  for (std::vector<Reference>& stream : kept.streams) {
    for (Reference& reference : stream) {
      if (reference.pack == Reference::kPattern) continue;
      const auto [place, added] = place_of.emplace(reference.pack, static_cast<uint32_t>(own.packs.size()));
      if (added) own.packs.push_back(leaf.packs[reference.pack]);
      reference.pack = place->second;
    }
  }
  return own;
}
}  // namespace

Result<std::optional<std::vector<std::unique_ptr<StoredImage>>>> StoredImage::open_files(const Store& store,
                                                                                         Clock& clock,
                                                                                         const SetRecord& record) {
  StoredImage looking(store, clock);
  std::vector<std::unique_ptr<StoredImage>> found;
  for (const GroupRecord& group : record.groups) {
    VARVE_ASSIGN(const Root root, looking.read_root(group));
    for (const LeafLink& link : root.leaves) {
      VARVE_ASSIGN(const Leaf leaf, looking.read_leaf(link));
      for (const TreeFile& file : leaf.files) {
        if (file.type != FileType::regular) continue;
        if (rank_of_image(file.path) || SetOrigin::is_file_name(file.path))
          return std::optional<std::vector<std::unique_ptr<StoredImage>>>();
        auto& image = found.emplace_back(std::make_unique<StoredImage>(store, clock));
        image->leaf_ = leaf_of_file(leaf, file);
        image->find_pieces();
      }
    }
  }
  return std::optional(std::move(found));
}

/// A set has one run's parts only, so any group's origin will do.
Status StoredImage::find_origin(const SetRecord& record, uint32_t group) {
  for (size_t i = 0; i < record.groups.size(); ++i) {
    const GroupRecord& candidate = record.groups[(group + i) % record.groups.size()];
    VARVE_ASSIGN(const Root root, read_root(candidate));
    for (const LeafLink& link : root.leaves) {
      VARVE_ASSIGN(const std::optional<SetOrigin> origin, origin_in(link));
      if (!origin) continue;
      origin_ = *origin;
      return {};
    }
  }
  return Status::invalid_argument("the set does not say of which run it is: it was not made by a session",
                                  record.name.to_string(), {Remedy::take_another_job, record.name.to_string()});
}

Result<std::optional<SetOrigin>> StoredImage::origin_in(const LeafLink& link) {
  VARVE_ASSIGN(const Leaf leaf, read_leaf(link));
  const auto file = std::find_if(leaf.files.begin(), leaf.files.end(), [](const TreeFile& candidate) {
    return candidate.type == FileType::regular && SetOrigin::is_file_name(candidate.path);
  });
  if (file == leaf.files.end()) return std::optional<SetOrigin>();
  if (file->bytes > SetOrigin::kBytesMax || file->streams.size() != 1) {
    return Status::corrupt("what says of which run a set is makes no sense", file->path);
  }
  ByteVector text(file->bytes);
  StreamReader reader(store_);
  VARVE_TRY(reads_([&] { return reader.read(leaf, file->streams.front(), 0, text); }));
  VARVE_ASSIGN(const SetOrigin origin, SetOrigin::parse(as_text(text)));
  return std::optional(origin);
}

Status StoredImage::find(const SetRecord& record, uint32_t rank, uint32_t group) {
  const std::string path = image_file_name(rank);
  for (size_t i = 0; i < record.groups.size(); ++i) {
    const GroupRecord& candidate = record.groups[(group + i) % record.groups.size()];
    VARVE_ASSIGN(const Root root, read_root(candidate));
    for (const LeafLink& link : root.leaves) {
      VARVE_ASSIGN(leaf_, read_leaf(link));
      const auto found =
          std::find_if(leaf_.files.begin(), leaf_.files.end(), [&](const TreeFile& file) { return file.path == path; });
      if (found == leaf_.files.end()) continue;
      if (found->type != FileType::regular) return Status::corrupt("a rank's image is no file", path);
      users_ = users_of_packs(leaf_);
      TreeFile file = std::move(*found);
      leaf_.files.clear();
      leaf_.files.push_back(std::move(file));
      return {};
    }
  }
  // No damage that an older set would mend, and nothing that a run may replace.
  return Status::invalid_argument(fmt::format("the set has nothing of rank {}: it was not made by a session", rank),
                                  record.name.to_string(), {Remedy::take_another_job, record.name.to_string()});
}

void StoredImage::find_pieces() {
  const TreeFile& file = leaf_.files.front();
  pieces_of_stream_.resize(file.streams.size());
  for (size_t stream = 0; stream < file.streams.size(); ++stream) {
    uint64_t at = 0;
    for (const Extent& extent : stream_extents(file, stream)) {
      pieces_of_stream_[stream].push_back({extent.offset, extent.bytes, stream, at});
      pieces_.push_back(pieces_of_stream_[stream].back());
      at += extent.bytes;
    }
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
}

Status StoredImage::read_table() {
  find_pieces();
  const TreeFile& file = leaf_.files.front();
  if (file.bytes < kImagePrefixBytes) return Status::corrupt("a rank's image is too short", file.path);
  ByteVector header(kImagePrefixBytes);
  VARVE_TRY(read(0, header));
  VARVE_ASSIGN(const uint64_t header_bytes, image_header_bytes(header, file.bytes));
  header.resize(header_bytes);
  VARVE_TRY(read(0, header));
  VARVE_ASSIGN(image_, decode_image_header(header, file.bytes));
  return {};
}

Status StoredImage::read(uint64_t offset, MutableByteSpan into) {
  const TreeFile& file = leaf_.files.front();
  if (offset > file.bytes || into.size() > file.bytes - offset) {
    return Status::corrupt("bytes past the end of an image were asked for", file.path);
  }
  auto after = [](uint64_t at, const Piece& piece) { return at < piece.offset; };
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset, after);
  while (!into.empty()) {
    // Streams cover the file, so there is a piece at every offset.
    const Piece& here = *std::prev(piece);
    const uint64_t skip = offset - here.offset;
    const size_t bytes = std::min<uint64_t>(into.size(), here.bytes - skip);
    VARVE_TRY(reads_(
        [&] { return streams_.read(leaf_, file.streams[here.stream], here.stream_offset + skip, into.first(bytes)); }));
    into = into.subspan(bytes);
    offset += bytes;
    ++piece;
  }
  return {};
}

void StoredImage::for_each_piece(size_t stream, Extent bytes, const std::function<void(const Extent&)>& visit) const {
  const std::vector<Piece>& pieces = pieces_of_stream_[stream];
  auto after = [](uint64_t at, const Piece& piece) { return at < piece.stream_offset; };
  auto piece = std::upper_bound(pieces.begin(), pieces.end(), bytes.offset, after);
  while (bytes.bytes > 0) {
    const Piece& here = *std::prev(piece);
    const uint64_t skip = bytes.offset - here.stream_offset;
    const uint64_t part = std::min(bytes.bytes, here.bytes - skip);
    visit({here.offset + skip, part});
    bytes.offset += part;
    bytes.bytes -= part;
    ++piece;
  }
}

/// How many of these bytes of the image are.
uint64_t StoredImage::wanted_bytes(const Load& load, const Extent& bytes) {
  if (!load.wanted) return bytes.bytes;
  const uint64_t end = bytes.offset + bytes.bytes;
  const auto ends_after = [](uint64_t at, const Extent& extent) { return at < extent.offset + extent.bytes; };
  auto next = std::upper_bound(load.wanted->begin(), load.wanted->end(), bytes.offset, ends_after);
  uint64_t wanted = 0;
  for (; next != load.wanted->end() && next->offset < end; ++next)
    wanted += std::min(end, next->offset + next->bytes) - std::max(bytes.offset, next->offset);
  return wanted;
}

std::vector<StoredImage::PackUse> StoredImage::pack_uses(const Load& load) const {
  const TreeFile& file = leaf_.files.front();
  std::map<uint32_t, size_t> place_of;
  std::vector<PackUse> uses;
  for (size_t stream = 0; stream < file.streams.size(); ++stream) {
    uint64_t at = 0;
    for (const Reference& reference : file.streams[stream]) {
      uint64_t wanted = 0;
      if (reference.pack != Reference::kPattern) {
        for_each_piece(stream, {at, reference.bytes},
                       [&](const Extent& in_image) { wanted += wanted_bytes(load, in_image); });
      }
      if (wanted > 0) {
        const auto [place, added] = place_of.emplace(reference.pack, uses.size());
        if (added) uses.push_back({reference.pack, {}});
        uses[place->second].wanted_bytes += wanted;
        uses[place->second].ranges.push_back({{reference.offset, reference.bytes}, stream, at});
      }
      at += reference.bytes;
    }
  }
  return uses;
}

MutableByteSpan StoredImage::place_of(const PackUse& use, ImageTarget& target) const {
  const PackUse::Range& first = use.ranges.front();
  if (use.ranges.size() != 1 || first.in_pack.offset != 0) return {};
  MutableByteSpan place;
  for_each_piece(first.stream, {first.stream_offset, first.in_pack.bytes}, [&](const Extent& in_image) {
    if (in_image.bytes == first.in_pack.bytes) place = target.memory(in_image.offset, in_image.bytes);
  });
  return place;
}

Result<Root> StoredImage::read_root(const GroupRecord& group) {
  Result<Root> root = reads_([&] { return varve::read_root(store_, group.root, group.hint); });
  if (!root.ok()) note_faults(faults_of_node(store_, group.root, group.hint));
  return root;
}

Result<Leaf> StoredImage::read_leaf(const LeafLink& link) {
  Result<Leaf> leaf = reads_([&] { return varve::read_leaf(store_, link); });
  if (!leaf.ok()) note_faults(faults_of_node(store_, link.score, link.hint));
  return leaf;
}

void StoredImage::note_faults(const CopyFaults& faults) {
  const MutexLock lock(mutex_);
  faults_.damaged.insert(faults.damaged.begin(), faults.damaged.end());
  faults_.unreadable.insert(faults.unreadable.begin(), faults.unreadable.end());
}

void StoredImage::load_patterns(const Load& load) const {
  const TreeFile& file = leaf_.files.front();
  ByteVector window;
  for (size_t stream = 0; stream < file.streams.size(); ++stream) {
    uint64_t at = 0;
    for (const Reference& reference : file.streams[stream]) {
      if (reference.pack == Reference::kPattern) {
        uint64_t done = 0;  // of the pattern
        for_each_piece(stream, {at, reference.bytes}, [&](const Extent& in_image) {
          const bool wanted = wanted_bytes(load, in_image) > 0;
          for (uint64_t put = 0; put < in_image.bytes && wanted; put += window.size()) {
            window.resize(std::min(kPatternWindowBytes, in_image.bytes - put));
            fill_pattern(reference.offset, done + put, window);
            load.target->put(in_image.offset + put, window);
          }
          done += in_image.bytes;
        });
      }
      at += reference.bytes;
    }
  }
}

/// What images of a store need of a pack.
struct StoredImage::PackJob {
  struct Use {
    const Load* load = nullptr;
    PackUse use;
  };
  const Store* store = nullptr;
  PackLink link;
  StoredCopy copy;     ///< where it is looked for first
  uint32_t users = 0;  ///< as users_of()
  std::vector<Use> uses{};
  bool done = false;

  PackPlace place() const {
    return copy.arena ? PackPlace{copy.arena->id(), copy.arena->index().packs[copy.ordinal].offset} : PackPlace();
  }
  uint64_t raw_bytes() const { return copy.arena ? copy.arena->index().packs[copy.ordinal].raw_bytes : 0; }
  /// Of this process, all of them together at most.
  uint64_t wanted_bytes() const {
    uint64_t bytes = 0;
    for (const Use& use : uses) bytes += use.use.wanted_bytes;
    return bytes;
  }
  /// Whether other ranks are likely to need it.
  bool is_shared() const {
    if (raw_bytes() > NodePacks::kPackBytesMax) return false;
    return users > uses.size() || wanted_bytes() < raw_bytes();
  }
};

/// Loads images pack by pack, in the order in which packs lie in their arenas; some are fetched while those before are
/// decoded. What another rank of the node is about to decode is left for later.
class StoredImage::PackLoads {
 public:
  PackLoads(std::span<const Load> loads, NodePacks* shared) : shared_(shared) {
    std::map<std::pair<const Store*, Score>, size_t> known;
    for (const Load& load : loads) {
      const StoredImage& image = *load.image;
      for (PackUse& use : image.pack_uses(load)) {
        const PackLink& link = image.leaf_.packs[use.pack];
        const auto [found, added] = known.try_emplace({&image.store_, link.score}, jobs_.size());
        if (added) jobs_.push_back({&image.store_, link, {}, image.users_of(use.pack)});
        jobs_[found->second].uses.push_back({&load, std::move(use)});
      }
    }
    for (PackJob& job : jobs_) {
      Result<std::vector<StoredCopy>> copies = find_pack_copies(*job.store, job.link.score, job.link.hint);
      // What is nowhere is told of by who reads it.
      if (copies.ok() && !copies->empty()) job.copy = std::move(copies->front());
    }
    // By the names of the arenas, so that a restart is the same each time.
    std::stable_sort(jobs_.begin(), jobs_.end(),
                     [&](const PackJob& a, const PackJob& b) { return a.place() < b.place(); });
    const auto first = std::find_if(jobs_.begin(), jobs_.end(), [](const PackJob& job) { return job.is_shared(); });
    if (first == jobs_.end() || (shared_ != nullptr && !shared_->begin(first->place()))) shared_ = nullptr;
  }
  ~PackLoads() {
    if (shared_ != nullptr) shared_->end();
  }
  PackLoads(const PackLoads&) = delete;
  PackLoads& operator=(const PackLoads&) = delete;

  Status run(size_t thread_count) {
    thread_count = std::min(thread_count, jobs_.size());
    return parallel_for(thread_count, thread_count, [&](size_t) {
      while (const std::optional<size_t> next = take()) {
        if (load(jobs_[*next])) {
          note_done(*next);
        } else {
          put_off(*next);
        }
      }
      return Status();
    });
  }

 private:
  /// The next pack to load; those that were put off come last, after a while.
  std::optional<size_t> take() {
    size_t next = 0;
    {
      const MutexLock lock(mutex_);
      // Not far ahead of what is put off, which others keep for this rank.
      if (next_ < jobs_.size() && put_off_.size() < kPacksAhead) {
        fetch_ahead();
        return next_++;
      }
      if (put_off_.empty()) return std::nullopt;
      next = put_off_.front();
      put_off_.pop_front();
    }
    if (!shared_->wait(kPauseForOthers)) ++pauses_;
    return next;
  }
  void put_off(size_t job) {
    const MutexLock lock(mutex_);
    put_off_.push_back(job);
  }
  void fetch_ahead() VARVE_REQUIRES(mutex_) {
    for (; fetched_ < std::min(jobs_.size(), next_ + kPacksAhead); ++fetched_) {
      const StoredCopy& copy = jobs_[fetched_].copy;
      if (copy.arena) copy.arena->will_read_pack(copy.ordinal);
    }
  }
  void note_done(size_t job) {
    if (shared_ == nullptr) return;
    const MutexLock lock(mutex_);
    jobs_[job].done = true;
    const size_t before = first_left_;
    while (first_left_ < jobs_.size() && jobs_[first_left_].done) ++first_left_;
    if (first_left_ != before && first_left_ < jobs_.size()) shared_->go_on(jobs_[first_left_].place());
  }

  /// False: another rank is about to have it, or there will be room for it.
  bool load(const PackJob& job) {
    if (shared_ == nullptr || !job.is_shared()) {
      load_alone(job);
      return true;
    }
    NodePacks::Held held = shared_->find(job.link.score, job.place(), job.raw_bytes());
    switch (held.state()) {
      case NodePacks::State::whole: break;
      case NodePacks::State::to_fill:
        if (fill(job, held.bytes())) held.publish();
        break;
      case NodePacks::State::on_its_way:
      case NodePacks::State::no_room:
        if (pauses_ < kPausesMax) return false;
        break;
      case NodePacks::State::alone: break;
    }
    if (held.state() != NodePacks::State::whole || !put(job, held.bytes())) load_alone(job);
    return true;
  }

  /// Whether all of the pack is there now, checked.
  static bool fill(const PackJob& job, MutableByteSpan room) {
    const Extent all{0, room.size()};
    Result<Pack> pack = read(job, {&all, 1}, room);
    if (!pack.ok()) return false;
    const Result<ByteSpan> raw = pack->range(0, room.size());
    if (!raw.ok()) return false;
    if (raw->data() != room.data()) std::copy(raw->begin(), raw->end(), room.begin());
    return true;
  }
  static Result<Pack> read(const PackJob& job, std::span<const Extent> ranges, MutableByteSpan room) {
    StoredImage& image = *job.uses.front().load->image;
    return image.reads_([&] { return read_pack(*job.store, job.link, ranges, room); });
  }

  /// Of the pack's raw bytes, what is used. False: it uses more than there is.
  static bool put(const PackJob& job, ByteSpan raw) {
    for (const PackJob::Use& use : job.uses) {
      for (const PackUse::Range& range : use.use.ranges) {
        if (range.in_pack.offset > raw.size() || range.in_pack.bytes > raw.size() - range.in_pack.offset) return false;
        put(use, range, raw.subspan(range.in_pack.offset, range.in_pack.bytes));
      }
    }
    return true;
  }
  static void put(const PackJob::Use& use, const PackUse::Range& range, ByteSpan bytes) {
    use.load->image->for_each_piece(range.stream, {range.stream_offset, bytes.size()}, [&](const Extent& in_image) {
      use.load->target->put(in_image.offset, bytes.first(in_image.bytes));
      bytes = bytes.subspan(in_image.bytes);
    });
  }

  /// For this process only.
  static void load_alone(const PackJob& job) {
    const Status loaded = load_uses(job);
    if (loaded.ok()) return;
    const PackJob::Use& first = job.uses.front();
    if (job.uses.size() == 1) return first.load->image->note_failure(first.use, loaded);
    // One may lack what others do not need.
    for (const PackJob::Use& use : job.uses) load_alone({job.store, job.link, job.copy, job.users, {use}});
  }
  static Status load_uses(const PackJob& job) {
    std::vector<Extent> extents;
    for (const PackJob::Use& use : job.uses) {
      for (const PackUse::Range& range : use.use.ranges) extents.push_back(range.in_pack);
    }
    const PackJob::Use& first = job.uses.front();
    const MutableByteSpan place =
        job.uses.size() == 1 ? first.load->image->place_of(first.use, *first.load->target) : MutableByteSpan();
    VARVE_ASSIGN(Pack pack, read(job, extents, place));
    for (const PackJob::Use& use : job.uses) {
      for (const PackUse::Range& range : use.use.ranges) {
        VARVE_ASSIGN(const ByteSpan bytes, pack.range(range.in_pack.offset, range.in_pack.bytes));
        if (bytes.data() != place.data()) put(use, range, bytes);
      }
    }
    return {};
  }

  NodePacks* shared_;
  std::vector<PackJob> jobs_;
  std::atomic<int> pauses_{0};
  Mutex mutex_;
  size_t next_ VARVE_GUARDED_BY(mutex_) = 0;
  size_t fetched_ VARVE_GUARDED_BY(mutex_) = 0;
  size_t first_left_ VARVE_GUARDED_BY(mutex_) = 0;
  std::deque<size_t> put_off_ VARVE_GUARDED_BY(mutex_);
};

void StoredImage::note_failure(const PackUse& use, const Status& failure) {
  note_faults(faults_of_pack(store_, leaf_.packs[use.pack]));
  const MutexLock lock(mutex_);
  // An image of which some cannot be read may be whole tomorrow, but not one of which some is damaged.
  if (first_failure_.ok() || failure.code() == StatusCode::corrupt) first_failure_ = failure;
}

Status StoredImage::load_all(std::span<const Load> loads, size_t thread_count, NodePacks* shared) {
  for (const Load& load : loads) load.image->load_patterns(load);
  PackLoads packs(loads, shared);
  VARVE_TRY(packs.run(thread_count));
  for (const Load& load : loads) {
    const MutexLock lock(load.image->mutex_);
    VARVE_TRY(load.image->first_failure_);
  }
  return {};
}

namespace {
class NowhereTarget final : public ImageTarget {
 public:
  void put(uint64_t, ByteSpan) override {}
};
}  // namespace

void StoredImage::find_faults() {
  NowhereTarget nowhere;
  load(1, nowhere).ignore("the faults are what is asked for");
}

}  // namespace varve
