#include "engine/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "core/sync.h"
#include "core/thread_pool.h"
#include "engine/pack_fetcher.h"
#include "engine/stored_files.h"
#include "store/needs.h"
#include "store/spread_writer.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
constexpr uint64_t kWriteBufferBytes = 1_MiB;

size_t threads_of(const TransferOptions& options) {
  return options.thread_count > 0 ? options.thread_count : processor_count();
}

/// Raw bytes of a pack, by the index of an arena that has it; kPackBytesMax at most, as no longer pack is ever decoded.
Result<uint64_t> raw_bytes_of(const Store& from, const Score& score, const SetNeeds::PackNeed& need) {
  VARVE_ASSIGN(const std::vector<StoredCopy> places, find_pack_copies(from, score, need.hint));
  if (places.empty()) {
    return Status::corrupt("no arena holds a pack that the set needs", arena_name(from, need.hint),
                           "put the arena back from a copy of the store");
  }
  return std::min(places.front().arena->index().packs[places.front().ordinal].raw_bytes, kPackBytesMax);
}

/// Packs on their way, which are fetched in a pool of threads and taken in the order in which they were begun. One
/// caller at a time.
class PacksOnTheirWay {
 public:
  struct Fetching {
    Task<Result<FetchedPack>> task;
    uint64_t needed_bytes, memory_bytes;
  };

  /// Both outlive it.
  PacksOnTheirWay(const Store& from, const TransferOptions& options)
      : options_(options), fetcher_(from, options.check_chunks, options.recode), pool_(threads_of(options)) {}

  size_t thread_count() const { return pool_.thread_count(); }
  bool empty() const { return fetching_.empty(); }
  /// For a pack of so many raw bytes, beside those that were begun and not taken.
  bool has_room(uint64_t raw_bytes) const {
    const size_t fetching_max = 2 * std::max<size_t>(pool_.thread_count(), 1) + 1;
    return fetching_.empty() ||
           (fetching_.size() < fetching_max && memory_bytes_ + memory_bytes_of(raw_bytes) <= options_.memory_bytes);
  }
  /// `score` and `need` outlive it.
  void begin(const Score& score, const SetNeeds::PackNeed& need, uint64_t raw_bytes, PackShape shape) {
    auto fetch = [this, &score, &need, shape = std::move(shape)] { return fetcher_.fetch(score, need, shape); };
    fetching_.push_back({pool_.submit(std::move(fetch)), need.bytes(), memory_bytes_of(raw_bytes)});
    memory_bytes_ += fetching_.back().memory_bytes;
  }
  Fetching take_oldest() {
    Fetching oldest = std::move(fetching_.front());
    fetching_.pop_front();
    memory_bytes_ -= oldest.memory_bytes;
    return oldest;
  }

 private:
  /// The frame and what is decoded of it; and what the encoder tries, beside what is decoded of its result.
  uint64_t memory_bytes_of(uint64_t raw_bytes) const { return raw_bytes * (options_.recode ? 5 : 2); }

  const TransferOptions& options_;
  PackFetcher fetcher_;
  std::deque<Fetching> fetching_;
  uint64_t memory_bytes_ = 0;
  ThreadPool pool_;  ///< its tasks use what is above, and are over when it goes
};

/// Writes what the target lacks of a set into new arenas of its own: one for each of its places, unless it is told to
/// begin others.
class Sender {
 public:
  Sender(const Store& from, const Store& to, const WriterLease& lease, const SetNeeds& needs, const HeldFrames& held,
         const TransferOptions& options, ProgressSink& progress, TransferReport& report)
      : from_(from),
        to_(to),
        lease_(lease),
        needs_(needs),
        held_(held),
        options_(options),
        progress_(progress),
        report_(report),
        fetching_(from, options) {}

  /// Sends what is lacking of a group; says where its root is then, and how many bytes were written for the group.
  Status send_group(GroupRecord& group) {
    const uint64_t before = bytes_written();
    VARVE_ASSIGN(const Root root, read_root(from_, group.root, group.hint));
    for (const LeafLink& link : root.leaves) VARVE_TRY(send_leaf(link));
    VARVE_TRY(send_node(group.root, group.hint));
    const auto home = held_.nodes.find(group.root);
    group.hint = home == held_.nodes.end() ? node_homes_.at(group.root) : home->second;
    group.arena_bytes = bytes_written() - before;
    return {};
  }

  /// Makes what was sent durable, but for its name in the folder of arenas. What is sent next goes to another arena.
  /// Returns how much that has added.
  Result<uint64_t> seal() {
    if (!writer_) return uint64_t{0};
    const uint64_t before = writer_->bytes();
    VARVE_TRY(writer_->seal());
    const uint64_t after = writer_->bytes();
    report_.sent_bytes += after;
    writer_.reset();
    ++ordinal_;
    return after - before;
  }
  /// Raw bytes of the set that the target had not.
  uint64_t new_bytes() const { return new_bytes_; }

 private:
  uint64_t bytes_written() const { return writer_ ? writer_->bytes() : 0; }

  SpreadWriter& writer() {
    if (!writer_) {
      writer_.emplace(to_, lease_, ordinal_,
                      ArenaWriterOptions{.direct = options_.direct_io,
                                         .background = fetching_.thread_count() > 1,
                                         .buffer_bytes = kWriteBufferBytes});
    }
    return *writer_;
  }

  Status send_leaf(const LeafLink& link) {
    VARVE_ASSIGN(const Leaf leaf, read_leaf(from_, link));
    std::optional<PackShapes> shapes;
    if (options_.recode) shapes.emplace(leaf);
    for (const PackLink& pack : leaf.packs) {
      const auto need = needs_.packs.find(pack.score);
      // A leaf may list what it does not refer to.
      if (need == needs_.packs.end() || held_.packs.contains(pack.score) || !sent_.insert(pack.score).second) continue;
      VARVE_TRY(begin_fetching(need->first, need->second, shapes));
    }
    while (!fetching_.empty()) VARVE_TRY(append_oldest());
    for (const NodeLink& piece : leaf.pieces) VARVE_TRY(send_node(piece.score, piece.hint));
    return send_node(link.score, link.hint);
  }

  Status begin_fetching(const Score& score, const SetNeeds::PackNeed& need, const std::optional<PackShapes>& shapes) {
    if (progress_.cancelled()) return Status::cancelled();
    VARVE_ASSIGN(const uint64_t raw_bytes, raw_bytes_of(from_, score, need));
    while (!fetching_.has_room(raw_bytes)) VARVE_TRY(append_oldest());
    fetching_.begin(score, need, raw_bytes, shapes ? shapes->shape_of(score, raw_bytes) : PackShape());
    return {};
  }

  Status append_oldest() {
    PacksOnTheirWay::Fetching oldest = fetching_.take_oldest();
    VARVE_ASSIGN(const FetchedPack pack, oldest.task.wait());
    const uint64_t before = bytes_written();
    if (pack.anew) {
      VARVE_TRY(writer().append_pack(pack.anew->meta, pack.anew->body).status());
    } else {
      VARVE_TRY(writer().append_copy(FrameKind::pack, pack.entry, pack.frame.meta, pack.frame.body));
    }
    ++report_.sent_packs;
    new_bytes_ += oldest.needed_bytes;
    if (options_.check_chunks && !pack.checked) ++report_.unchecked_packs;
    if (pack.recoded_from_bytes > 0) {
      ++report_.recoded_packs;
      report_.recoded_from_bytes += pack.recoded_from_bytes;
      report_.recoded_to_bytes += bytes_written() - before;
    }
    progress_.advance(oldest.needed_bytes);
    return {};
  }

  Status send_node(const Score& score, const ArenaId& hint) {
    if (held_.nodes.contains(score) || !sent_.insert(score).second) return {};
    VARVE_ASSIGN(const ByteVector content, read_node(from_, score, hint));
    VARVE_TRY(writer().append_node(score, content));
    node_homes_.emplace(score, writer_->home(score));
    ++report_.sent_nodes;
    return {};
  }

  const Store& from_;
  const Store& to_;
  const WriterLease& lease_;
  const SetNeeds& needs_;
  const HeldFrames& held_;
  const TransferOptions& options_;
  ProgressSink& progress_;
  TransferReport& report_;
  uint32_t ordinal_ = 0;  ///< of what is being written, or comes next
  std::unordered_set<Score, ScoreHash> sent_;
  std::unordered_map<Score, ArenaId, ScoreHash> node_homes_;  ///< of the nodes among them
  uint64_t new_bytes_ = 0;
  PacksOnTheirWay fetching_;
  std::optional<SpreadWriter> writer_;
};

/// Adds up what a set says of its files, and the scores of all their chunks, whatever packs these lie in.
class ContentScore {
 public:
  static Result<Score> of(const Store& store, const SetRecord& record) {
    VARVE_ASSIGN(ScoreStream sum, ScoreStream::create(store.score().algorithm()));
    ContentScore content(store, std::move(sum));
    VARVE_TRY(for_each_leaf(store, record, [&](const Leaf& leaf) { return content.add(leaf); }));
    return content.sum_.finish();
  }

 private:
  ContentScore(const Store& store, ScoreStream sum) : store_(store), sum_(std::move(sum)) {}

  Status add(const Leaf& leaf) {
    for (const TreeFile& file : leaf.files) {
      Leaf alone{{}, {}, {file}};
      TreeFile& said = alone.files.front();
      for (uint32_t& key : said.class_of) {
        alone.class_keys.push_back(leaf.class_keys[key]);
        key = static_cast<uint32_t>(alone.class_keys.size() - 1);
      }
      for (std::vector<Reference>& stream : said.streams) stream.clear();
      sum_.append(encode_leaf(alone, store_.score().score_bytes()));
      for (const std::vector<Reference>& stream : file.streams) {
        for (const Reference& reference : stream) VARVE_TRY(add(leaf, reference));
      }
    }
    return {};
  }

  Status add(const Leaf& leaf, const Reference& reference) {
    if (reference.pack == Reference::kPattern) return add(Score{}, reference.offset, reference.bytes), Status();
    VARVE_ASSIGN(const std::vector<ChunkEntry>* const chunks, chunks_of(leaf.packs[reference.pack]));
    const uint64_t end = reference.offset + reference.bytes;
    uint64_t begin = 0;  // of the chunk
    for (const ChunkEntry& chunk : *chunks) {
      const uint64_t from = std::max(begin, reference.offset), to = std::min(begin + chunk.bytes, end);
      if (from < to) add(chunk.score, from - begin, to - from);
      begin += chunk.bytes;
    }
    return {};
  }

  void add(const Score& score, uint64_t offset, uint64_t bytes) {
    ByteVector raw;
    ByteWriter w(raw);
    w.bytes(score.bytes);
    w.le64(offset);
    w.le64(bytes);
    sum_.append(raw);
  }

  Result<const std::vector<ChunkEntry>*> chunks_of(const PackLink& link) {
    const auto known = chunks_.find(link.score);
    if (known != chunks_.end()) return &known->second;
    Status failure = Status::corrupt("no arena holds a pack that the set needs", arena_name(store_, link.hint));
    // The table of one copy may be damaged, and that of another whole.
    for (const bool all : {false, true}) {
      VARVE_ASSIGN(const std::vector<StoredCopy> places, find_pack_copies(store_, link.score, link.hint, all));
      for (const StoredCopy& place : places) {
        Result<PackMeta> meta = place.arena->read_pack_meta(place.ordinal);
        if (meta.ok()) return &chunks_.emplace(link.score, std::move(meta->chunks)).first->second;
        if (failure.code() == StatusCode::corrupt) failure = meta.status();
      }
    }
    return failure;
  }

  const Store& store_;
  ScoreStream sum_;
  std::unordered_map<Score, std::vector<ChunkEntry>, ScoreHash> chunks_;
};

}  // namespace

ContentComparison compare_content(const Store& from, const SetRecord& source, const Store& to, const SetRecord& there) {
  if (same_trees(source, there)) return {Sameness::same, {}, {}};
  if (source.raw_bytes != there.raw_bytes || source.file_count != there.file_count) return {Sameness::differs, {}, {}};
  // Both are read also if one cannot be: whoever is told which store is damaged has to know of the other one.
  const Result<Score> one = ContentScore::of(from, source), other = ContentScore::of(to, there);
  if (!one.ok() || !other.ok()) return {Sameness::unknown, one.status(), other.status()};
  return {*one == *other ? Sameness::same : Sameness::differs, {}, {}};
}

bool same_content(const Store& from, const SetRecord& source, const Store& to, const SetRecord& there) {
  return compare_content(from, source, to, there).sameness == Sameness::same;
}

namespace {
/// `failure` with what it is about before it, and this to be done, whatever it said itself.
Status told_of_store(const Status& failure, const std::string& what, std::string hint) {
  return Status(failure.code(), what + ": " + std::string(failure.message()), std::string(failure.subject()),
                std::move(hint));
}

/// Why the sets of this name cannot be compared, in which store that is, and which of the two is to be kept. Nobody may
/// be led to drop the whole one.
Status why_unknown(const Store& from, const Store& to, const SetName& set, const ContentComparison& comparison) {
  const Status &source = comparison.source_unread, &there = comparison.there_unread;
  const std::string name = set.to_string();
  for (const Status& failure : {source, there}) {
    // Nothing is damaged: it can only not be read now.
    if (!failure.ok() && failure.code() != StatusCode::corrupt)
      return failure.with_context("it cannot be compared with the set of this name in the target");
  }
  if (source.ok()) {
    return told_of_store(
        there, fmt::format("the target, {}, has a set of this name, which is damaged there", to.path()),
        fmt::format(
            "verify {0} deeply; if {1} is whole in it, drop the damaged one in {2}, and copy it there again, deeply",
            from.path(), name, to.path()));
  }
  if (there.ok()) {
    return told_of_store(
        source, fmt::format("it is damaged in the source, {}", from.path()),
        fmt::format(
            "keep {1} in {2}, where nothing of it is missing; verify {2} deeply, then drop the damaged one in {0}, "
            "and copy it back from there",
            from.path(), name, to.path()));
  }
  return told_of_store(source, fmt::format("it is damaged in both stores, {} and {}", from.path(), to.path()),
                       "drop neither: each may have what the other one has lost; repair them from other copies, or "
                       "restore what is whole");
}

/// The set's record in `to`; none if it is not there, or is to be replaced. already_exists: another set has its name.
/// corrupt: a set has its name, and damage keeps the two from being compared.
Result<std::optional<SetRecord>> record_there(const Store& from, const Store& to, const SetRecord& source,
                                              IfExists if_exists) {
  Result<SetRecord> there = Catalog(to).read(source.name);
  if (there.status().code() == StatusCode::not_found) return std::optional<SetRecord>();
  VARVE_TRY(there.status().with_context("the target has the set, but"));
  const ContentComparison comparison = compare_content(from, source, to, *there);
  if (comparison.sameness == Sameness::same) return std::optional(std::move(*there));
  if (if_exists == IfExists::replace) return std::optional<SetRecord>();
  if (comparison.sameness == Sameness::differs) {
    return Status::already_exists("the target has another set of this name", source.name.to_string(),
                                  {Remedy::drop_set_in_one_store, source.name.to_string()});
  }
  // One that was dropped meanwhile is not damaged.
  if (Catalog(to).read(source.name).status().code() == StatusCode::not_found) return std::optional<SetRecord>();
  return why_unknown(from, to, source.name, comparison);
}

Status check_scores(const Store& from, const Store& to) {
  const bool same =
      from.score().algorithm() == to.score().algorithm() && from.score().score_bytes() == to.score().score_bytes();
  if (same) return {};
  return Status::invalid_argument(
      "the stores name their chunks by different hashes", to.path(),
      {Remedy::create_store_with_score_bits, std::to_string(8 * from.score().score_bytes())});
}

class Transfer {
 public:
  Transfer(const Store& from, const Store& to, const TransferOptions& options, ProgressSink& progress)
      : from_(from), to_(to), options_(options), progress_(progress) {}

  Result<TransferReport> run(const SetName& name) {
    VARVE_TRY(look(name));
    // There it would be taken for the whole.
    if (!source_.has_all_ranks()) {
      return Status::invalid_argument(
          fmt::format("this is the share of one node alone, {} of {} ranks", source_.rank_count, source_.run_ranks),
          name.to_string(), "the job's next run, or a drain on each node, brings the shares of all nodes together");
    }
    VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, to_.backend().watch_power());
    VARVE_ASSIGN(there_, record_there(from_, to_, source_, options_.if_exists));
    VARVE_ASSIGN(const std::unique_ptr<WriterLease> lease, WriterLease::acquire(to_));
    // Of a set that is there, what it has lost is sent again; a tree of the same files that it does not have is not.
    if (there_ && !same_trees(source_, *there_) && options_.check_held) VARVE_TRY(check_other_trees());
    if (!there_ || same_trees(source_, *there_)) VARVE_TRY(or_lost(*lease, send(*lease)));
    VARVE_TRY(publish(*lease));
    return finished();
  }

  Result<TransferReport> run_part(const PartName& part) {
    VARVE_TRY(look(part.set));
    VARVE_ASSIGN(const bool was_there, find_part(part));
    if (was_there) return finished();
    VARVE_ASSIGN(const std::unique_ptr<WriterLease> lease, WriterLease::acquire(to_));
    VARVE_TRY(or_lost(*lease, send_part(*lease)));
    VARVE_TRY(may_publish());
    VARVE_TRY(lease->publish_part(part, report_.record));  // the commit point
    return finished();
  }

 private:
  /// Whether an earlier attempt has published the part. Removes one that is of another set, or damaged.
  Result<bool> find_part(const PartName& part) {
    VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, to_.backend().watch_power());
    Result<SetRecord> there = read_part(to_, part);
    if (there.status().code() == StatusCode::not_found) return false;
    if (there.status().code() != StatusCode::corrupt) VARVE_TRY(there.status());
    const bool is_of_set = there.ok() && there->run == source_.run && there->number == source_.number;
    const ContentComparison comparison =
        is_of_set ? compare_content(from_, source_, to_, *there) : ContentComparison{Sameness::differs, {}, {}};
    // It may be all that is left of this node's share.
    if (comparison.sameness == Sameness::unknown) {
      const bool damaged_there = comparison.source_unread.ok() && comparison.there_unread.code() == StatusCode::corrupt;
      const Status& why = comparison.source_unread.ok() ? comparison.there_unread : comparison.source_unread;
      if (!damaged_there) return why.with_context("the part that is there cannot be compared with it, and stays");
    }
    if (comparison.sameness != Sameness::same) {
      VARVE_TRY(remove_part(to_, part));
      return false;
    }
    VARVE_TRY(to_.backend().settle(parts_path(to_)));
    report_ = {};
    report_.was_there = true;
    report_.record = std::move(*there);
    return true;
  }

  Status look(const SetName& name) {
    progress_.phase("looking");
    VARVE_ASSIGN(source_, Catalog(from_).read(name));
    VARVE_ASSIGN(needs_, needs_of_set(from_, source_, progress_));
    return {};
  }

  /// Reads the set that is there, in trees and packs of its own, for which nothing can be sent. It counts as not there
  /// if it was dropped meanwhile, or is damaged and may be replaced.
  Status check_other_trees() {
    const Status read = read_other_trees();
    if (read.code() != StatusCode::corrupt) return read;
    const bool dropped = Catalog(to_).read(source_.name).status().code() == StatusCode::not_found;
    if (!dropped && options_.if_exists != IfExists::replace) {
      return told_of_store(read,
                           fmt::format("the target, {}, has it in packs of its own, which are damaged", to_.path()),
                           fmt::format("repair the store {} from {}", to_.path(), from_.path()));
    }
    there_.reset();
    return {};
  }

  Status read_other_trees() {
    VARVE_ASSIGN(const SetNeeds needs, needs_of_set(to_, *there_, progress_));
    VARVE_ASSIGN(const HeldFrames held,
                 find_held(to_, {}, needs, /*read_packs=*/true, threads_of(options_), progress_));
    for (const auto& [score, need] : needs.packs) {
      if (progress_.cancelled()) return Status::cancelled();
      // What is whole in no arena may be so in several together, as a restore reads it.
      if (!held.packs.contains(score)) VARVE_TRY(read_pack(to_, {score, need.hint}, need.ranges).status());
    }
    return {};
  }

  Status or_lost(const WriterLease& lease, const Status& sent) const {
    return !sent.ok() && lease.lost() ? WriterLease::lost_status(source_.name) : sent;
  }

  Result<TransferReport> finished() {
    if (report_.unchecked_packs > 0) {
      progress_.warning(
          Status::unsupported("packs were copied whose codec this build lacks; only their checksums were checked",
                              source_.name.to_string()));
    }
    return std::move(report_);
  }

  Result<HeldFrames> begin_sending(const WriterLease& lease) {
    std::set<ArenaId> excluded;
    // What a set that is there has in marked arenas is brought to safety by the prune that empties them.
    if (!there_) {
      VARVE_ASSIGN(excluded, lease.condemned());
    }
    VARVE_ASSIGN(HeldFrames held,
                 find_held(to_, excluded, needs_, options_.check_held, threads_of(options_), progress_));
    report_ = {};
    report_.held_packs = held.packs.size();
    report_.held_bytes = held.pack_bytes;
    report_.record = source_;
    progress_.phase("copying");
    uint64_t lacking_bytes = 0;
    for (const auto& [score, need] : needs_.packs) lacking_bytes += held.packs.contains(score) ? 0 : need.bytes();
    progress_.total(lacking_bytes);
    return held;
  }

  void end_sending(const Sender& sender) {
    report_.record.new_bytes = sender.new_bytes();
    if (report_.recoded_packs > 0) report_.record.policy = options_.recode->name();
  }

  Status send(WriterLease& lease) {
    VARVE_ASSIGN(const HeldFrames held, begin_sending(lease));
    Sender sender(from_, to_, lease, needs_, held, options_, progress_, report_);
    for (GroupRecord& group : report_.record.groups) VARVE_TRY(sender.send_group(group));
    VARVE_ASSIGN(const uint64_t index_bytes, sender.seal());
    if (!report_.record.groups.empty()) report_.record.groups.back().arena_bytes += index_bytes;
    end_sending(sender);
    return {};
  }

  /// An arena for each group, which tells a part that was written again from one that was used and removed.
  Status send_part(WriterLease& lease) {
    VARVE_ASSIGN(HeldFrames held, begin_sending(lease));
    for (const GroupRecord& group : source_.groups) held.nodes.erase(group.root);
    Sender sender(from_, to_, lease, needs_, held, options_, progress_, report_);
    for (GroupRecord& group : report_.record.groups) {
      VARVE_TRY(sender.send_group(group));
      VARVE_ASSIGN(const uint64_t index_bytes, sender.seal());
      group.arena_bytes += index_bytes;
    }
    end_sending(sender);
    return {};
  }

  Status may_publish() const { return options_.may_publish ? options_.may_publish() : Status(); }

  /// The commit point, unless the set is there.
  Status publish(WriterLease& lease) {
    if (!there_) {
      VARVE_TRY(may_publish());
      const Status committed = lease.commit(report_.record, options_.if_exists);
      if (committed.code() != StatusCode::already_exists) return committed;
      // Somebody else was faster. What was sent is there twice, and goes with the next prune of the target.
      VARVE_ASSIGN(there_, record_there(from_, to_, source_, IfExists::refuse));
      if (!there_) return committed;
    }
    // What was lost of a set that is there is needed: it stays once the lease is gone.
    VARVE_TRY(to_.backend().settle(to_.arenas_path()));
    VARVE_TRY(Catalog(to_).make_durable(source_.name.job));
    report_.was_there = true;
    report_.record = *there_;
    return {};
  }

  const Store& from_;
  const Store& to_;
  const TransferOptions& options_;
  ProgressSink& progress_;
  SetRecord source_;
  std::optional<SetRecord> there_;
  SetNeeds needs_;
  TransferReport report_;
};

/// Runs a transfer, again if a prune of the target took its writer for dead.
template <class Run>
Result<TransferReport> with_retries(const Store& from, const Store& to, const SetName& name,
                                    const TransferOptions& options, ProgressSink& progress, const Run& run) {
  VARVE_TRY(check_scores(from, to));
  const Result<TransferReport> report = start_over_if_lost(progress, [&] {
    Transfer transfer(from, to, options, progress);
    return run(transfer);
  });
  const StatusCode code = report.status().code();
  if (report.ok() || code == StatusCode::already_exists || code == StatusCode::cancelled) return report;
  return report.status().with_context("cannot copy " + name.to_string());
}
}  // namespace

Result<TransferReport> copy_set(const Store& from, const Store& to, const SetName& name, const TransferOptions& options,
                                ProgressSink& progress) {
  Result<TransferReport> report =
      with_retries(from, to, name, options, progress, [&](Transfer& transfer) { return transfer.run(name); });
  if (!report.ok()) return Catalog(from).unless_dropped(name, report.status());
  return report;
}

Result<TransferReport> copy_part(const Store& from, const Store& to, const PartName& part,
                                 const TransferOptions& options, ProgressSink& progress) {
  return with_retries(from, to, part.set, options, progress,
                      [&](Transfer& transfer) { return transfer.run_part(part); });
}

Result<std::vector<SetName>> sets_lacking(const Store& from, const Store& to, const std::string& job) {
  VARVE_ASSIGN(std::vector<SetName> names, Catalog(from).sets());
  std::erase_if(names, [&](const SetName& name) {
    if (!job.empty() && name.job != job) return true;
    const Result<SetRecord> there = Catalog(to).read(name);
    if (!there.ok()) return false;
    const Result<SetRecord> source = Catalog(from).read(name);
    return source.ok() && same_content(from, *source, to, *there);
  });
  return names;
}

}  // namespace varve
