#include "aggregate/save.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <set>

#include "aggregate/group_saver.h"
#include "aggregate/rank_order.h"
#include "core/parallel.h"

namespace varve {

namespace {
constexpr int kTriesMax = 3;
constexpr uint64_t kMemoryBytesMin = 32_MiB;

std::optional<uint64_t> last_number(std::string_view name) {
  size_t end = name.size();
  while (end > 0 && (name[end - 1] < '0' || name[end - 1] > '9')) --end;
  size_t begin = end;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  uint64_t value = 0;
  auto [parsed, error] = std::from_chars(name.data() + begin, name.data() + end, value);
  return begin < end && error == std::errc() && parsed == name.data() + end ? std::optional(value) : std::nullopt;
}

/// The files of each group: the ranks in order, `group_size` at a time. What belongs to no rank goes with the first.
std::vector<std::vector<SourceFile>> split_into_groups(std::vector<SourceFile> files, uint32_t group_size,
                                                       uint64_t& rank_count) {
  std::set<int64_t> ranks;
  for (const SourceFile& file : files) {
    if (file.rank >= 0) ranks.insert(file.rank);
  }
  rank_count = ranks.size();
  const std::vector<int64_t> ordered(ranks.begin(), ranks.end());
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

/// Runs the groups on `worker_count` threads; the first failure stops the rest.
Result<std::vector<GroupOutcome>> run_groups(const SaveContext& context, std::vector<std::vector<SourceFile>> groups,
                                             size_t worker_count) {
  std::vector<GroupOutcome> outcomes(groups.size());
  Status saved = parallel_for(groups.size(), worker_count, [&](size_t i) -> Status {
    VARVE_ASSIGN(outcomes[i], GroupSaver(context, std::move(groups[i]), static_cast<uint32_t>(i)).run());
    return {};
  });
  VARVE_TRY(saved);
  return outcomes;
}

Result<SaveReport> save_once(const Store& store, const std::string& folder, const SetName& name,
                             const SaveOptions& options, LayoutService& layouts, ProgressSink& progress) {
  progress.phase("saving");
  VARVE_ASSIGN(std::unique_ptr<WriterLease> lease, WriterLease::acquire(store));
  VARVE_ASSIGN(std::vector<SourceFile> files, scan_source_tree(folder, progress));
  VARVE_TRY(assign_ranks(files, options.rank_regex));
  uint64_t raw_bytes = 0;
  for (const SourceFile& file : files) raw_bytes += file.bytes;
  progress.total(raw_bytes);

  SaveReport report;
  report.record.name = name;
  report.record.file_count = files.size();
  report.record.raw_bytes = raw_bytes;
  std::vector<std::vector<SourceFile>> groups =
      split_into_groups(std::move(files), options.group_size, report.record.rank_count);

  VARVE_ASSIGN(std::unique_ptr<Chunker> chunker, make_chunker(options.chunker));
  const uint64_t memory_bytes = std::max(options.memory_bytes, kMemoryBytesMin);
  const std::vector<ArenaId>& condemned = lease->condemned();
  ThreadPool pool(options.thread_count);
  const size_t worker_count = std::min(groups.size(), std::max<size_t>(pool.thread_count(), 1));
  Result<std::unique_ptr<ChunkIndex>> opened =
      ChunkIndex::open(store, {condemned.begin(), condemned.end()}, memory_bytes / 8 / worker_count);
  if (!opened.ok() && lease->lost()) return WriterLease::lost_status(name);
  VARVE_ASSIGN(std::unique_ptr<ChunkIndex> index, std::move(opened));
  const SaveContext context{store,    *lease,  *index, folder,   options,
                            *chunker, layouts, pool,   progress, memory_bytes / worker_count};
  Result<std::vector<GroupOutcome>> saved = run_groups(context, std::move(groups), worker_count);
  if (!saved.ok() && lease->lost()) return WriterLease::lost_status(name);
  VARVE_ASSIGN(std::vector<GroupOutcome> outcomes, std::move(saved));

  std::vector<ArenaId> arenas;
  std::vector<ChunkIndexEntry> entries;
  for (GroupOutcome& outcome : outcomes) {
    report.record.groups.push_back(outcome.record);
    report.record.new_bytes += outcome.new_bytes;
    report.known_bytes += outcome.known_bytes;
    report.pattern_bytes += outcome.pattern_bytes;
    report.variable_count += outcome.variable_count;
    for (ChunkIndexEntry& entry : outcome.entries) entry.arena = static_cast<uint32_t>(arenas.size());
    entries.insert(entries.end(), outcome.entries.begin(), outcome.entries.end());
    // An arena whose entries were too many to hold is indexed by the next save that looks into the index.
    if (!outcome.entries.empty() || outcome.new_bytes == 0) arenas.push_back(outcome.arena);
  }
  report.record.created_s =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  report.record.scheme = scheme_name(options.scheme);
  report.record.policy = options.codec.name();
  report.record.chunker = chunker_name(options.chunker);
  report.record.match = options.match.text();
  VARVE_TRY(lease->commit(report.record));
  if (Status indexed = index->add(arenas, std::move(entries)); !indexed.ok()) {
    progress.warning(
        indexed.with_context("the set is saved, but its chunks could not be indexed; the next save tries again"));
  }
  return report;
}
}  // namespace

Result<SetName> choose_set_name(const Store& store, const std::string& folder, const SaveOptions& options) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::weakly_canonical(folder, error);
  if (error) return Status::from_errno(error.value(), "find folder", folder);
  SetName name{options.job, options.step.value_or(0)};
  const std::optional<uint64_t> number = last_number(full.filename().string());
  // `run/dump0007` is step 7 of the job `run`; `run` alone is the next step of the job `run`.
  if (name.job.empty()) name.job = number ? full.parent_path().filename().string() : full.filename().string();
  if (name.job.empty()) name.job = "job";
  VARVE_TRY(check_job_name(name.job).with_hint("name the job with --job"));
  if (options.step) return name;
  VARVE_ASSIGN(std::vector<uint64_t> steps, Catalog(store).steps(name.job));
  name.step = number ? *number : steps.empty() ? 0 : steps.back() + 1;
  return name;
}

Result<SaveReport> save_folder(const Store& store, const std::string& folder, const SaveOptions& options,
                               LayoutService& layouts, ProgressSink& progress) {
  if (options.group_size == 0) return Status::invalid_argument("a group has at least one rank", "--group-size 0");
  if (options.pack_bytes < 64_KiB || options.pack_bytes > kPackBytesMax / 4) {
    return Status::invalid_argument("packs have 64 KiB to 16 MiB", std::to_string(options.pack_bytes));
  }
  VARVE_ASSIGN(SetName name, choose_set_name(store, folder, options));
  if (store.fs().stat(Catalog(store).record_path(name)).ok()) {
    return Status::already_exists("the set is in the store already", name.to_string(),
                                  "choose another step with --step, or `varve drop` the old set first");
  }
  Result<SaveReport> report = Status::internal("no attempt was made");
  for (int attempt = 0; attempt < kTriesMax; ++attempt) {
    report = save_once(store, folder, name, options, layouts, progress);
    const bool lease_lost =
        !report.ok() && report.status().code() == StatusCode::busy && report.status().subject() == name.to_string();
    if (!lease_lost) break;
    progress.warning(report.status().with_context("starting over"));
  }
  return report;
}

}  // namespace varve
