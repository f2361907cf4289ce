#include "study/dedup.h"

#include <algorithm>
#include <bit>
#include <map>

#include "core/sync.h"
#include "core/thread_pool.h"
#include "core/work_meter.h"
#include "engine/pack_builder.h"
#include "hash/score.h"
#include "study/compression.h"

namespace varve {

namespace {
constexpr size_t kSlotsMin = 1024;
}  // namespace

bool FingerprintSet::insert(uint64_t fingerprint) {
  if (4 * (size_ + 1) > 3 * slots_.size()) grow();
  if (fingerprint == 0) fingerprint = 1;  // 0 marks a free slot
  const size_t mask = slots_.size() - 1;
  size_t slot = fingerprint & mask;
  while (slots_[slot] != 0) {
    if (slots_[slot] == fingerprint) return false;
    slot = (slot + 1) & mask;
  }
  slots_[slot] = fingerprint;
  ++size_;
  return true;
}

void FingerprintSet::clear() {
  std::fill(slots_.begin(), slots_.end(), 0);
  size_ = 0;
}

void FingerprintSet::grow() {
  std::vector<uint64_t> before(std::max(kSlotsMin, 2 * slots_.size()));
  before.swap(slots_);
  size_ = 0;
  for (const uint64_t fingerprint : before) {
    if (fingerprint != 0) insert(fingerprint);
  }
}

namespace {
constexpr auto index_of(ShareScope scope) { return static_cast<size_t>(scope); }
}  // namespace

Estimate ShareCount::duplicate_chunks() const {
  const auto all = static_cast<double>(chunks);
  return {all - unique_chunks.value, all - unique_chunks.high, all - unique_chunks.low};
}

ShareCounter::ShareCounter(uint64_t chunks_expected, uint64_t memory_bytes, bool one_rank, bool of_sample)
    : one_rank_(one_rank), of_sample_(of_sample) {
  const uint64_t tables = one_rank ? 2 : kShareScopes;
  while (chunks_expected / (sample_mask_ + 1) * FingerprintSet::kBytesEach * tables > memory_bytes &&
         sample_mask_ < 0xffff) {
    sample_mask_ = 2 * sample_mask_ + 1;
  }
}

void ShareCounter::begin_set() {
  sets_.emplace_back();
  known_[index_of(ShareScope::within)].clear();
  known_[index_of(ShareScope::ranks)].clear();
}

bool ShareCounter::add(uint64_t fingerprint, uint64_t bytes, int64_t rank, uint64_t unit) {
  SetSums& set = sets_.back();
  ++set.chunks;
  set.bytes += bytes;
  if (!sampled(fingerprint)) return false;
  Sums& sums = set.groups[(of_sample_ ? unit : fingerprint) >> 60];
  ++sums.chunks;
  sums.bytes += bytes;
  const uint64_t of_rank = mix(fingerprint ^ mix(static_cast<uint64_t>(rank)));
  const auto count = [&](ShareScope scope, uint64_t key) {
    const bool is_new = known_[index_of(scope)].insert(key);
    sums.unique_chunks[index_of(scope)] += is_new ? 1 : 0;
    sums.unique_bytes[index_of(scope)] += is_new ? bytes : 0;
    return is_new;
  };
  count(ShareScope::ranks, fingerprint);
  const bool is_new = count(ShareScope::both, fingerprint);
  if (one_rank_) return is_new;
  count(ShareScope::within, of_rank);
  return count(ShareScope::sets, of_rank);
}

std::array<ShareCount, kShareScopes> ShareCounter::counts(size_t set) const {
  const SetSums& sums = sets_[set];
  std::array<ShareCount, kShareScopes> counts;
  for (size_t scope = 0; scope < kShareScopes; ++scope) {
    // With one rank, what it shares with others is what it shares with itself.
    const size_t from = !one_rank_                              ? scope
                        : scope == index_of(ShareScope::within) ? index_of(ShareScope::ranks)
                        : scope == index_of(ShareScope::sets)   ? index_of(ShareScope::both)
                                                                : scope;
    std::array<RatioUnit, kGroups> chunks, bytes;
    for (size_t group = 0; group < kGroups; ++group) {
      const Sums& of_group = sums.groups[group];
      chunks[group] = {0, static_cast<double>(of_group.chunks), static_cast<double>(of_group.unique_chunks[from])};
      bytes[group] = {0, static_cast<double>(of_group.bytes), static_cast<double>(of_group.unique_bytes[from])};
    }
    ShareCount& count = counts[scope];
    count.chunks = sums.chunks;
    count.bytes = sums.bytes;
    count.unique_chunks = estimate_from_groups(chunks, static_cast<double>(sums.chunks));
    count.unique_bytes = estimate_from_groups(bytes, static_cast<double>(sums.bytes));
    if (sample_mask_ == 0 && !of_sample_) {
      count.unique_chunks = Estimate::exact(count.unique_chunks.value);
      count.unique_bytes = Estimate::exact(count.unique_bytes.value);
    }
  }
  return counts;
}

namespace {
constexpr size_t kBatchBytes = 4_MiB;
constexpr uint64_t kUnitBytes = 64_KiB;
constexpr size_t kSizeBins = 21;  // up to kChunkBytesMax

/// Bytes of a stream that lie in a batch's buffer.
struct Segment {
  uint32_t stream = 0;
  uint64_t begin = 0, end = 0;  ///< in the stream
  size_t buffer_offset = 0;
};

/// Streams of a set, one after another.
struct Batch {
  explicit Batch(size_t bytes) : buffer(bytes) {}
  Buffer buffer;
  std::vector<Segment> segments;
};

/// Cuts all batches in one way.
class Cutter {
 public:
  Cutter(DedupMethod method, std::unique_ptr<Chunker> chunker, ShareCounter counter, bool tells_changes)
      : method_(std::move(method)),
        chunker_(std::move(chunker)),
        counter_(std::move(counter)),
        tells_changes_(tells_changes),
        sizes_(kSizeBins) {}

  size_t bytes_ahead() const { return chunker_->bytes_ahead(); }
  ShareCounter& counter() { return counter_; }

  void begin_set(size_t class_count) {
    counter_.begin_set();
    class_bytes_.assign(class_count, 0);
    class_changed_.assign(class_count, 0);
  }
  const std::vector<uint64_t>& class_bytes() const { return class_bytes_; }
  const std::vector<uint64_t>& class_changed() const { return class_changed_; }

  void take(const Batch& batch, const std::vector<Stream>& streams) {
    WorkMeter meter;
    {
      const WorkMeter::Scope metered(&meter);
      chunks_.clear();
      owners_.clear();
      for (const Segment& segment : batch.segments) cut(batch, segment, streams[segment.stream]);
      scores_.resize(chunks_.size());
      score_.many(chunks_, scores_);
      count(streams);
    }
    method_.processor_seconds += meter.processor_seconds();
  }

  DedupMethod finish(size_t sets_done) {
    while (counter_.set_count() > sets_done) counter_.drop_last_set();
    for (size_t set = 0; set < counter_.set_count(); ++set) method_.sets.push_back(counter_.counts(set));
    method_.sampled_one_in = counter_.sampled_one_in();
    for (size_t bin = 0; bin < sizes_.size(); ++bin) {
      if (sizes_[bin].chunks == 0) continue;
      sizes_[bin].bytes_from = uint64_t{1} << bin;
      method_.sizes.push_back(sizes_[bin]);
    }
    return std::move(method_);
  }

 private:
  struct Owner {
    uint32_t stream = 0;
    uint64_t offset = 0;  ///< in the stream
  };

  /// About the windows of SamplePlan: the same of all ranks and sets.
  static uint64_t unit_hash(const Stream& stream, uint64_t offset) {
    return mix(mix((uint64_t{stream.class_id} << 32) + stream.position) + offset / kUnitBytes);
  }

  /// A segment may begin before the place where this cutter stopped, as others look ahead farther.
  void cut(const Batch& batch, const Segment& segment, const Stream& stream) {
    uint64_t at = segment.begin == 0 ? 0 : at_;
    while (at < segment.end) {
      const ByteSpan ahead =
          ByteSpan(batch.buffer).subspan(segment.buffer_offset + (at - segment.begin), segment.end - at);
      const uint64_t remaining = stream.bytes - at;
      if (ahead.size() < remaining && ahead.size() < chunker_->bytes_ahead()) break;
      const size_t bytes = next_chunk_bytes(*chunker_, stream.type, ahead, remaining);
      chunks_.push_back(ahead.first(bytes));
      owners_.push_back({segment.stream, at});
      at += bytes;
    }
    at_ = at;
  }

  void count(const std::vector<Stream>& streams) {
    for (size_t i = 0; i < chunks_.size(); ++i) {
      const Stream& stream = streams[owners_[i].stream];
      const uint64_t bytes = chunks_[i].size(), fingerprint = scores_[i].prefix();
      SizeBin& bin = sizes_[static_cast<size_t>(std::bit_width(bytes)) - 1];
      ++bin.chunks;
      bin.bytes += bytes;
      const bool is_new = counter_.add(fingerprint, bytes, stream.rank, unit_hash(stream, owners_[i].offset));
      if (!tells_changes_ || !counter_.sampled(fingerprint)) continue;
      class_bytes_[stream.class_id] += bytes;
      class_changed_[stream.class_id] += is_new ? bytes : 0;
    }
  }

  DedupMethod method_;
  std::unique_ptr<Chunker> chunker_;
  ShareCounter counter_;
  const bool tells_changes_;
  const ScoreFunction score_ = ScoreFunction::preferred();
  std::vector<SizeBin> sizes_;
  std::vector<uint64_t> class_bytes_, class_changed_;  ///< of this set
  uint64_t at_ = 0;                                    ///< in the stream of the last segment
  std::vector<ByteSpan> chunks_;
  std::vector<Owner> owners_;  ///< of chunks_
  std::vector<Score> scores_;
};

/// Reads the streams of a set into batches.
class BatchFiller {
 public:
  BatchFiller(Source& source, const std::vector<Stream>& streams, size_t bytes_ahead)
      : streams_(streams), gatherer_(source), bytes_ahead_(bytes_ahead) {}

  /// Empty at the end.
  Status fill(Batch& batch) {
    batch.segments.clear();
    size_t used = 0;
    while (stream_ < streams_.size()) {
      const uint64_t remaining = streams_[stream_].bytes - at_;
      const size_t room = batch.buffer.size() - used;
      // A part that is not the stream's end must be longer than what the next one repeats.
      if (room < remaining && room < 2 * bytes_ahead_) return {};
      const uint64_t bytes = std::min<uint64_t>(remaining, room);
      if (bytes > 0) {
        VARVE_TRY(gatherer_.read(streams_[stream_], at_, MutableByteSpan(batch.buffer).subspan(used, bytes)));
        batch.segments.push_back({static_cast<uint32_t>(stream_), at_, at_ + bytes, used});
        used += bytes;
      }
      if (bytes < remaining) {
        at_ += bytes - bytes_ahead_;
        return {};
      }
      ++stream_;
      at_ = 0;
    }
    return {};
  }

 private:
  const std::vector<Stream>& streams_;
  StreamGatherer gatherer_;
  const size_t bytes_ahead_;
  size_t stream_ = 0;
  uint64_t at_ = 0;
};

class DedupPass {
 public:
  DedupPass(const StudySeries& series, const SamplePlan& plan, const DedupOptions& options, ProgressSink& progress)
      : series_(series), plan_(plan), options_(options), progress_(progress) {}

  Result<Dedup> run() {
    VARVE_TRY(make_cutters());
    Dedup dedup;
    uint64_t seen_bytes = 0, all_bytes = 0;
    for (const StudySet& set : series_.sets) {
      VARVE_ASSIGN(const bool done, take_set(set, seen_bytes));
      if (!done) break;
      all_bytes += set.bytes();
      ++dedup.sets_done;
    }
    dedup.sampled_share = all_bytes == 0 ? 1 : static_cast<double>(seen_bytes) / static_cast<double>(all_bytes);
    for (Cutter& cutter : cutters_) dedup.methods.push_back(cutter.finish(dedup.sets_done));
    for (auto& [key, change] : classes_) {
      change.class_key = key;
      dedup.classes.push_back(change);
    }
    std::stable_sort(dedup.classes.begin(), dedup.classes.end(),
                     [](const ClassChange& a, const ClassChange& b) { return a.bytes > b.bytes; });
    return dedup;
  }

 private:
  Status make_cutters() {
    const uint64_t memory_bytes = options_.memory_bytes / std::max<size_t>(options_.chunkers.size(), 1);
    for (const std::string& text : options_.chunkers) {
      VARVE_ASSIGN(const ChunkerOptions chunker_options, parse_chunker(text));
      VARVE_ASSIGN(std::unique_ptr<Chunker> chunker, make_chunker(chunker_options));
      const bool tells_changes = !options_.of_files && chunker_options.kind == ChunkerKind::fixed &&
                                 chunker_options.bytes_average == kChangeBlockBytes;
      DedupMethod method;
      method.name = text;
      method.of_files = options_.of_files;
      ShareCounter counter(series_.bytes() / chunker_options.bytes_average, memory_bytes, series_.rank_count() == 1,
                           !plan_.takes_all());
      bytes_ahead_ = std::max(bytes_ahead_, chunker->bytes_ahead());
      cutters_.emplace_back(std::move(method), std::move(chunker), std::move(counter), tells_changes);
    }
    return {};
  }

  /// False: stopped in the middle.
  Result<bool> take_set(const StudySet& set, uint64_t& seen_bytes) {
    PartSource source(set, plan_, all_files(set));
    SaveOptions save_options = series_.options;
    save_options.scheme = options_.of_files ? Scheme::agnostic : Scheme::aware;
    VARVE_ASSIGN(const GroupStreams group, describe_streams(source, save_options, progress_));
    for (Cutter& cutter : cutters_) cutter.begin_set(group.class_keys.size());
    BatchFiller filler(source, group.streams, bytes_ahead_);
    Batch batch(std::max<size_t>(kBatchBytes, 8 * bytes_ahead_));
    const size_t threads = options_.thread_count == 0 ? processor_count() : options_.thread_count;
    while (true) {
      if (progress_.cancelled()) return false;
      VARVE_TRY(filler.fill(batch));
      if (batch.segments.empty()) break;
      Status taken = parallel_for(cutters_.size(), std::max<size_t>(threads, 1), [&](size_t i) -> Status {
        cutters_[i].take(batch, group.streams);
        return {};
      });
      VARVE_TRY(taken);
      uint64_t bytes = 0;
      for (const Segment& segment : batch.segments) bytes += segment.end - segment.begin;
      progress_.advance(bytes);
    }
    seen_bytes += group.raw_bytes;
    note_changes(group);
    return true;
  }

  void note_changes(const GroupStreams& group) {
    const bool first = cutters_.front().counter().set_count() == 1;
    for (const Cutter& cutter : cutters_) {
      for (size_t id = 0; id < group.class_keys.size(); ++id) {
        if (cutter.class_bytes()[id] == 0) continue;
        ClassChange& change = classes_[group.class_keys[id]];
        if (first) continue;
        change.bytes += cutter.class_bytes()[id];
        change.changed_bytes += cutter.class_changed()[id];
      }
    }
  }

  const StudySeries& series_;
  const SamplePlan& plan_;
  const DedupOptions& options_;
  ProgressSink& progress_;
  std::vector<Cutter> cutters_;
  size_t bytes_ahead_ = 0;
  std::map<std::string, ClassChange> classes_;
};

void add(Estimate& sum, const Estimate& more) {
  // The sets' errors are not independent: the wider interval.
  sum.value += more.value;
  sum.low += more.low;
  sum.high += more.high;
}
}  // namespace

ShareCount DedupMethod::total(ShareScope scope) const {
  ShareCount sum;
  for (const auto& set : sets) {
    const ShareCount& count = set[static_cast<size_t>(scope)];
    sum.chunks += count.chunks;
    sum.bytes += count.bytes;
    add(sum.unique_chunks, count.unique_chunks);
    add(sum.unique_bytes, count.unique_bytes);
  }
  return sum;
}

Result<Dedup> study_dedup(const StudySeries& series, const SamplePlan& plan, const DedupOptions& options,
                          ProgressSink& progress) {
  return DedupPass(series, plan, options, progress).run();
}

}  // namespace varve
