#include "aggregate/save_groups.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "aggregate/group_saver.h"
#include "aggregate/rank_order.h"
#include "aggregate/source_tree.h"
#include "core/parallel.h"
#include "core/sync.h"

namespace varve {

namespace {
constexpr int kTriesMax = 3;
constexpr uint64_t kMemoryBytesMin = 32_MiB;

/// Runs the groups on `worker_count` threads; the first failure stops the rest.
Result<std::vector<GroupOutcome>> run_groups(const SaveContext& context, const std::vector<Source*>& sources,
                                             size_t worker_count) {
  std::vector<GroupOutcome> outcomes(sources.size());
  Status saved = parallel_for(sources.size(), worker_count, [&](size_t i) -> Status {
    VARVE_ASSIGN(outcomes[i], GroupSaver(context, *sources[i], static_cast<uint32_t>(i)).run());
    return {};
  });
  VARVE_TRY(saved);
  return outcomes;
}

/// The record of all groups, but for what they have written.
SetRecord describe(const std::vector<Source*>& sources, const SetName& name, const SaveOptions& options) {
  SetRecord record;
  record.name = name;
  record.scheme = scheme_name(options.scheme);
  record.policy = options.codec.name();
  record.chunker = chunker_name(options.chunker);
  record.match = options.match.text();
  record.run = options.run;
  record.run_ranks = options.run_ranks;
  std::set<int64_t> ranks;
  for (const Source* source : sources) {
    for (const SourceFile& file : source->files()) {
      ++record.file_count;
      record.raw_bytes += file.bytes;
      if (file.rank >= 0) ranks.insert(file.rank);
    }
  }
  record.rank_count = ranks.size();
  return record;
}

/// What a group adds to the report, and to the index.
void add_outcome(SaveReport& report, GroupOutcome& outcome, std::vector<ArenaId>& arenas,
                 std::vector<ChunkIndexEntry>& entries) {
  report.record.groups.push_back(outcome.record);
  report.record.new_bytes += outcome.new_bytes;
  report.known_bytes += outcome.known_bytes;
  report.pattern_bytes += outcome.pattern_bytes;
  report.variable_count += outcome.variable_count;
  for (ChunkIndexEntry& entry : outcome.entries) entry.arena += static_cast<uint32_t>(arenas.size());
  entries.insert(entries.end(), outcome.entries.begin(), outcome.entries.end());
  // Arenas whose entries were too many to hold are indexed by the next save that looks into the index.
  if (!outcome.entries.empty() || outcome.new_bytes == 0)
    arenas.insert(arenas.end(), outcome.arenas.begin(), outcome.arenas.end());
}

Result<SaveReport> save_once(const Store& store, const std::vector<Source*>& sources, const SetName& name,
                             const SaveOptions& options, ProgressSink& progress, const PublishRecord& publish) {
  VARVE_ASSIGN(std::unique_ptr<WriterLease> lease, WriterLease::acquire(store));
  SaveReport report;
  report.record = describe(sources, name, options);
  VARVE_ASSIGN(report.record.number, options.number ? *options.number : Catalog(store).next_number(name.job));
  progress.total(report.record.raw_bytes);

  VARVE_ASSIGN(std::unique_ptr<Chunker> chunker, make_chunker(options.chunker));
  const uint64_t memory_bytes = std::max(options.memory_bytes, kMemoryBytesMin);
  std::set<ArenaId> excluded = options.avoided_arenas;
  excluded.insert(lease->condemned().begin(), lease->condemned().end());
  ThreadPool pool(options.thread_count);
  const size_t thread_count = std::max<size_t>(pool.thread_count(), 1);
  const size_t worker_count = std::min(sources.size(), thread_count);
  Result<std::unique_ptr<ChunkIndex>> opened =
      ChunkIndex::open(store, std::move(excluded), memory_bytes / 8 / worker_count);
  if (!opened.ok() && lease->lost()) return WriterLease::lost_status(name);
  VARVE_ASSIGN(std::unique_ptr<ChunkIndex> index, std::move(opened));
  if (!index->incomplete().ok()) {
    progress.warning(
        index->incomplete().with_context("what is in the store may be stored again, as its index is not whole"));
  }
  const SaveContext context{.store = store,
                            .lease = *lease,
                            .index = *index,
                            .options = options,
                            .chunker = *chunker,
                            .pool = pool,
                            .progress = progress,
                            .group_memory_bytes = memory_bytes / worker_count,
                            .tasks_max = 2 * thread_count / worker_count + 1};
  Result<std::vector<GroupOutcome>> saved = run_groups(context, sources, worker_count);
  if (!saved.ok() && lease->lost()) return WriterLease::lost_status(name);
  VARVE_ASSIGN(std::vector<GroupOutcome> outcomes, std::move(saved));

  std::vector<ArenaId> arenas;
  std::vector<ChunkIndexEntry> entries;
  for (GroupOutcome& outcome : outcomes) add_outcome(report, outcome, arenas, entries);
  report.record.created_s = calendar_seconds();
  VARVE_TRY(publish(*lease, report.record));
  if (Status indexed = index->add(arenas, std::move(entries)); !indexed.ok()) {
    progress.warning(
        indexed.with_context("the set is saved, but its chunks could not be indexed; the next save tries again"));
  }
  return report;
}
}  // namespace

Status check_save_options(const SaveOptions& options) {
  if (options.group_size == 0) return Status::invalid_argument("a group has at least one rank", "--group-size 0");
  if (options.pack_bytes < 64_KiB || options.pack_bytes > kPackBytesMax / 4) {
    return Status::invalid_argument("packs have 64 KiB to 16 MiB", std::to_string(options.pack_bytes));
  }
  return {};
}

Result<std::vector<SourceFile>> find_files(const std::string& folder, const std::string& rank_regex,
                                           ProgressSink& progress) {
  VARVE_ASSIGN(std::vector<SourceFile> files, scan_source_tree(folder, progress));
  VARVE_TRY(assign_ranks(files, rank_regex));
  return files;
}

std::vector<std::vector<SourceFile>> split_into_groups(std::vector<SourceFile> files, const SaveOptions& options,
                                                       uint32_t group_count_wanted) {
  std::set<int64_t> ranks;
  for (const SourceFile& file : files) {
    if (file.rank >= 0) ranks.insert(file.rank);
  }
  const std::vector<int64_t> ordered(ranks.begin(), ranks.end());
  size_t group_size = options.group_size;
  if (options.smaller_groups)
    group_size = std::min(group_size, std::max<size_t>(ordered.size() / group_count_wanted, 1));
  std::vector<std::vector<SourceFile>> groups(std::max<size_t>((ordered.size() + group_size - 1) / group_size, 1));
  for (SourceFile& file : files) {
    const size_t position =
        file.rank < 0
            ? 0
            : static_cast<size_t>(std::lower_bound(ordered.begin(), ordered.end(), file.rank) - ordered.begin());
    groups[position / group_size].push_back(std::move(file));
  }
  return groups;
}

Result<SaveReport> save_groups(const Store& store, const std::vector<Source*>& sources, const SetName& name,
                               const SaveOptions& options, ProgressSink& progress, const PublishRecord& publish) {
  Result<SaveReport> report = Status::internal("no attempt was made");
  for (int attempt = 0; attempt < kTriesMax; ++attempt) {
    report = save_once(store, sources, name, options, progress, publish);
    const bool lease_lost =
        !report.ok() && report.status().code() == StatusCode::busy && report.status().subject() == name.to_string();
    if (!lease_lost) break;
    progress.warning(report.status().with_context("starting over"));
  }
  return report;
}

}  // namespace varve
