#include "engine/save.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <set>

#include "comm/agreement.h"
#include "comm/process_share.h"
#include "core/bytes.h"
#include "core/file_system.h"
#include "core/step_text.h"
#include "core/sync.h"
#include "core/thread_pool.h"
#include "core/work_meter.h"
#include "engine/folder_source.h"
#include "engine/group_saver.h"
#include "engine/restore_target.h"
#include "engine/scheme.h"
#include "store/commit.h"
#include "store/learned.h"

namespace varve {

namespace {
/// "wave.h5" and "base.sql.bz2" tell no step; "restart.100" and "state_20.cpt" do.
std::string without_extensions(std::string name) {
  for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0; dot = name.rfind('.')) {
    if (std::all_of(name.begin() + static_cast<ptrdiff_t>(dot) + 1, name.end(),
                    [](char c) { return c >= '0' && c <= '9'; }))
      break;
    name.resize(dot);
  }
  return name;
}

bool is_beside_times(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder.parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    if (is_name_of_time(it->path().filename().string())) return true;
  }
  return false;
}
}  // namespace

Result<SetName> choose_set_name(const Store& store, const std::string& folder, const SaveOptions& options) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::weakly_canonical(folder, error);
  if (error) return Status::from_errno(error.value(), "find folder", folder);
  SetName name{options.job, options.step.value_or(0)};
  const bool is_file = std::filesystem::is_regular_file(full, error);
  const std::string own_name = full.filename().string();
  const std::string told = is_file ? without_extensions(own_name) : own_name;
  // `run/dump0007` is step 7 of the job `run`; `run` alone is the next step of the job `run`.
  const bool tells_step = step_of_name(told).has_value();
  if (name.job.empty()) name.job = tells_step ? full.parent_path().filename().string() : own_name;
  if (name.job.empty()) name.job = "job";
  VARVE_TRY(check_job_name(name.job).with_hint(Remedy::name_the_job));
  const Catalog catalog(store);
  if (!options.step) {
    VARVE_ASSIGN(const std::vector<uint64_t> steps, catalog.steps(name.job));
    const bool times = !steps.empty() && time_of_step(steps.back());
    if (tells_step) {
      name.step = *step_of_name(told, times || is_beside_times(full));
    } else if (!steps.empty()) {
      name.step = steps.back() + 1;
      if (times || steps.back() == UINT64_MAX || time_of_step(name.step))
        return Status::invalid_argument("no step comes next after the newest",
                                        SetName{name.job, steps.back()}.to_string(), Remedy::name_the_step);
    }
  }
  return name;
}

namespace {
/// What is left of a set is not saved as if it were all.
Status check_is_whole(const std::vector<SourceFile>& files) {
  for (const SourceFile& file : files) {
    const std::string name = base_name(file.path);
    if (is_removal_note(name))
      return Status::busy("files of a set are being removed, as it is saved", file.path,
                          "have the watcher finish that, or remove this note to save what is left");
    if (name == kRestoringNote)
      return Status::busy("a set is being restored there, or a restore was stopped", file.path,
                          "restore the set that it names over it once more, or remove this note to save what is there");
  }
  return {};
}

/// Nor what a restore that was stopped has brought so far into a folder above: what it brought has its own times, and
/// got its name after the note did.
Status check_nothing_is_restored_above(const std::string& folder, const std::vector<SourceFile>& files) {
  std::error_code error;
  std::filesystem::path above = std::filesystem::canonical(folder, error);
  while (!error && above.has_relative_path()) {
    above = above.parent_path();
    const std::string path = (above / kRestoringNote).string();
    const Result<FileStatus> note = posix_file_system().stat(path);
    if (!note.ok()) continue;
    const int64_t note_s = note->modified_ns / 1'000'000'000;
    for (const SourceFile& file : files) {
      if (file.type == FileType::regular && file.changed_s >= note_s && file.modified_s <= note_s + 1) {
        return Status::busy(
            "a set is being restored there, or a restore was stopped", path,
            "if these files are not of the set that it names, remove this note; else restore that set over "
            "them once more");
      }
    }
  }
  return {};
}

Status check_sizes(const std::vector<SourceFile>& files) {
  uint64_t sum = 0;
  for (const SourceFile& file : files) {
    sum += file.bytes;
    if (file.bytes > kTreeFileBytesMax || sum > kTreeFileBytesMax)
      return Status::resource_limit("files have more bytes than a set can have, 4 EiB", file.path);
  }
  return {};
}

/// find_files(); the named folder itself gets its names_sum.
Result<std::vector<SourceFile>> find_files_of(NamedSource& source, const SaveOptions& options, ProgressSink& progress) {
  std::vector<SourceFile> files;
  if (source.is_file()) {
    if (!options.choice.all())
      return Status::invalid_argument("one file is saved as it is; patterns choose from a folder", source.self.path);
    files.push_back(source.self);
  } else {
    VARVE_ASSIGN(ChosenFiles chosen, scan_chosen_files(source.folder, options.choice, progress));
    files = std::move(chosen.files);
    source.self.names_sum = chosen.names_sum;
    VARVE_TRY(check_is_whole(files));
    if (files.empty()) {
      if (chosen.some_left_out) return Status::not_found("nothing in the folder is to be saved", source.folder);
      progress.warning(Status::not_found("the folder is empty", source.folder));
    }
    VARVE_TRY(check_nothing_is_restored_above(source.folder, files));
  }
  VARVE_TRY(check_sizes(files));
  let_times_pass(files);
  VARVE_TRY(assign_ranks(files, options.ranks.rank_regex));
  const auto has_rank = [](const SourceFile& file) { return file.rank >= 0; };
  if (!options.ranks.rank_regex.empty() && !files.empty() && std::none_of(files.begin(), files.end(), has_rank))
    progress.warning(Status::not_found("the rank expression fits no file: none has a rank", options.ranks.rank_regex));
  return files;
}
}  // namespace

Result<std::vector<SourceFile>> find_files(const NamedSource& source, const SaveOptions& options,
                                           ProgressSink& progress) {
  NamedSource found = source;
  return find_files_of(found, options, progress);
}

namespace {
/// What fewer bytes of a set teach is found out again as fast.
constexpr uint64_t kLearnedFromBytesMin = 1_MiB;

/// With what the job's last save has learned.
Result<SaveReport> save_new(const Store& store, const std::string& folder, std::vector<SourceFile> files,
                            const SetName& name, const SaveOptions& options, LayoutService& layouts,
                            ProgressSink& progress, const PublishRecord& publish) {
  VARVE_TRY(check_save_options(options));
  VARVE_TRY(check_job_name(name.job));
  progress.phase("saving");
  std::deque<FolderSource> folders;
  std::vector<Source*> sources;
  for (std::vector<SourceFile>& group : split_into_groups(std::move(files), options)) {
    sources.push_back(
        &folders.emplace_back(folder, std::move(group), layouts, options.variables.layouts, options.choice));
  }
  if (options.encoders != nullptr || options.codec.kind != CodecPolicy::Kind::automatic)
    return save_groups(store, sources, name, options, progress, publish);
  KeptEncoders encoders;
  const ByteVector learned = read_learned(store, name.job);
  if (!learned.empty()) encoders.learn(learned).ignore("what suits the job is found out anew");
  SaveOptions with_encoders = options;
  with_encoders.encoders = &encoders;
  VARVE_ASSIGN(SaveReport report, save_groups(store, sources, name, with_encoders, progress, publish));
  // What was taken over counts how many sets it has served.
  if (!learned.empty() || report.record.new_bytes >= kLearnedFromBytesMin)
    write_learned(store, name.job, encoders.learned());
  return report;
}

uint64_t doubted_in(const std::vector<SourceFile>& files, const SaveOptions& options) {
  return options.ranks.rank_regex.empty() ? count_doubted_ranks(files) : 0;
}
}  // namespace

Result<SaveReport> save_folder(const Store& store, const std::string& folder, const SaveOptions& options,
                               LayoutService& layouts, ProgressSink& progress) {
  VARVE_ASSIGN(const SetName name, choose_set_name(store, folder, options));
  // Before the folder is gone through.
  VARVE_TRY(Catalog(store).check_is_new(name, {Remedy::choose_another_step, name.to_string()}));
  VARVE_ASSIGN(NamedSource source, look_at_source(folder));
  VARVE_ASSIGN(std::vector<SourceFile> files, find_files_of(source, options, progress));
  const uint64_t doubted_ranks = doubted_in(files, options);
  const auto commit = [&](WriterLease& lease, const SetRecord& record) -> Status {
    VARVE_TRY(check_unchanged(source.folder, source.self, options.choice));
    return lease.commit(record);
  };
  VARVE_ASSIGN(SaveReport report,
               save_new(store, source.folder, std::move(files), name, options, layouts, progress, commit));
  report.doubted_ranks = doubted_ranks;
  return report;
}

Result<SaveReport> save_files(const Store& store, const std::string& folder, std::vector<SourceFile> files,
                              const SetName& name, const SaveOptions& options, LayoutService& layouts,
                              ProgressSink& progress, const std::function<Status()>& check) {
  return save_files_as(store, folder, std::move(files), name, options, layouts, progress,
                       [&check](WriterLease& lease, const SetRecord& record) -> Status {
                         if (check) VARVE_TRY(check());
                         return lease.commit(record);
                       });
}

Result<SaveReport> save_files_as(const Store& store, const std::string& folder, std::vector<SourceFile> files,
                                 const SetName& name, const SaveOptions& options, LayoutService& layouts,
                                 ProgressSink& progress, const PublishRecord& publish) {
  VARVE_TRY(Catalog(store).check_is_new(name, {Remedy::choose_another_step, name.to_string()}));
  return save_new(store, folder, std::move(files), name, options, layouts, progress, publish);
}

namespace {
constexpr int kTriesMax = 3;
constexpr uint64_t kMemoryBytesMin = 32_MiB;

/// Runs the groups on `worker_count` threads; the first failure stops the rest.
Result<std::vector<GroupOutcome>> run_groups(const SaveContext& context, const std::vector<Source*>& sources,
                                             size_t worker_count) {
  std::vector<GroupOutcome> outcomes(sources.size());
  Status saved = parallel_for(sources.size(), worker_count, [&](size_t i) -> Status {
    VARVE_ASSIGN(outcomes[i], save_group(context, *sources[i], static_cast<uint32_t>(i)));
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
  record.match = options.variables.match.text();
  record.run = options.made_by.run;
  record.run_ranks = options.made_by.run_ranks;
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
void add_outcome(SaveReport& report, GroupOutcome& outcome, std::vector<ArenaId>& arenas, ChunkIndexEntries& entries) {
  report.record.groups.push_back(outcome.record);
  report.record.new_bytes += outcome.new_bytes;
  report.known_bytes += outcome.known_bytes;
  report.pattern_bytes += outcome.pattern_bytes;
  report.variable_count += outcome.variable_count;
  for (ChunkIndexEntry& entry : outcome.entries) entry.arena += static_cast<uint32_t>(arenas.size());
  // Arenas whose entries were too many to hold are indexed by the next save that looks into the index.
  if (!outcome.entries.empty() || outcome.new_bytes == 0)
    arenas.insert(arenas.end(), outcome.arenas.begin(), outcome.arenas.end());
  if (entries.empty()) {
    entries = std::move(outcome.entries);  // they may be many: of one group they are not copied
  } else {
    entries.insert(entries.end(), outcome.entries.begin(), outcome.entries.end());
    outcome.entries = ChunkIndexEntries();  // `= {}` would keep the memory
  }
}

Result<uint64_t> number_of_next(const Store& store, const std::string& job, const SaveOptions& options) {
  if (options.made_by.number) return *options.made_by.number;
  return options.next_number ? options.next_number(job) : Catalog(store).next_number(job);
}

Result<SaveReport> save_once(const Store& store, const std::vector<Source*>& sources, const SetName& name,
                             const SaveOptions& options, ProgressSink& progress, const PublishRecord& publish,
                             KeptIndex* kept) {
  SaveReport report;
  report.record = describe(sources, name, options);
  std::unique_ptr<WriterLease> lease;
  VARVE_TRY(parallel_for(2, store.backend().operations_at_once(), [&](size_t i) -> Status {
    if (i == 0) {
      VARVE_ASSIGN(lease, WriterLease::acquire(store));
    } else {
      VARVE_ASSIGN(report.record.number, number_of_next(store, name.job, options));
    }
    return {};
  }));
  progress.total(report.record.raw_bytes);

  VARVE_ASSIGN(std::unique_ptr<Chunker> chunker, make_chunker(options.chunker));
  const uint64_t memory_bytes = std::max(options.memory_bytes, kMemoryBytesMin);
  ThreadPool pool(options.thread_count);
  const size_t thread_count = std::max<size_t>(pool.thread_count(), 1);
  const size_t worker_count = std::min(sources.size(), thread_count);
  KeptIndex of_this_save(store, ChunkIndex::Upkeep::here);
  KeptIndex& known = kept != nullptr ? *kept : of_this_save;
  const Result<ChunkIndex*> index = known.open(memory_bytes / 8 / worker_count);
  if (!index.ok() && lease->lost()) return WriterLease::lost_status(name);
  VARVE_TRY(index.status());
  if (!(*index)->finds_nothing()) {
    VARVE_ASSIGN(std::set<ArenaId> excluded, lease->condemned());
    excluded.insert(options.avoided_arenas.begin(), options.avoided_arenas.end());
    (*index)->exclude(std::move(excluded));
  }
  if (!(*index)->incomplete().ok()) {
    progress.warning(
        (*index)->incomplete().with_context("what is in the store may be stored again, as its index is not whole"));
  }
  const SaveContext context{.store = store,
                            .lease = *lease,
                            .index = **index,
                            .options = options,
                            .chunker = *chunker,
                            .pool = pool,
                            .progress = progress,
                            .group_memory_bytes = memory_bytes / worker_count,
                            .tasks_max = 2 * thread_count / worker_count + 1};
  if (options.encoders != nullptr) options.encoders->begin_set();
  Result<std::vector<GroupOutcome>> saved = run_groups(context, sources, worker_count);
  if (!saved.ok() && lease->lost()) return WriterLease::lost_status(name);
  VARVE_ASSIGN(std::vector<GroupOutcome> outcomes, std::move(saved));

  std::vector<ArenaId> arenas;
  ChunkIndexEntries entries;
  for (GroupOutcome& outcome : outcomes) add_outcome(report, outcome, arenas, entries);
  report.record.created_s = calendar_seconds();
  {
    const WorkMeter::Timer timer(WorkKind::sync, 0);
    VARVE_TRY(publish(*lease, report.record));
  }
  Status indexed = known.add(arenas, std::move(entries));
  if (indexed.ok()) indexed = of_this_save.share();
  if (!indexed.ok()) {
    progress.warning(
        indexed.with_context("the set is saved, but its chunks could not be indexed; the next save tries again"));
  }
  return report;
}
}  // namespace

Status check_save_options(const SaveOptions& options) {
  if (options.ranks.group_size == 0) return Status::invalid_argument("a group has at least one rank", "group_size 0");
  if (options.pack_bytes < 64_KiB || options.pack_bytes > kPackBytesMax / 4) {
    return Status::invalid_argument("packs have 64 KiB to 16 MiB", std::to_string(options.pack_bytes));
  }
  return {};
}

namespace {
uint64_t total_bytes(const std::vector<SourceFile>& files) {
  uint64_t bytes = 0;
  for (const SourceFile& file : files) bytes += file.bytes;
  return bytes;
}
}  // namespace

std::vector<std::vector<SourceFile>> split_into_groups(std::vector<SourceFile> files, const SaveOptions& options,
                                                       uint32_t group_count_wanted) {
  std::map<int64_t, uint64_t> rank_bytes;
  for (const SourceFile& file : files) {
    if (file.rank >= 0) rank_bytes[file.rank] += file.bytes;
  }
  const RankGrouping& grouping = options.ranks;
  size_t ranks_max = grouping.group_size;
  uint64_t bytes_min = grouping.group_bytes_min;
  if (grouping.smaller_groups) {
    ranks_max = std::min(ranks_max, std::max<size_t>(rank_bytes.size() / group_count_wanted, 1));
    bytes_min = std::min(bytes_min, total_bytes(files) / group_count_wanted);
  }
  std::map<int64_t, size_t> group_of;
  size_t group = 0, ranks_in_group = 0;
  uint64_t bytes_in_group = 0;
  for (const auto& [rank, bytes] : rank_bytes) {
    if (ranks_in_group >= ranks_max && bytes_in_group >= bytes_min) {
      ++group;
      ranks_in_group = 0;
      bytes_in_group = 0;
    }
    group_of[rank] = group;
    ++ranks_in_group;
    bytes_in_group += bytes;
  }
  std::vector<std::vector<SourceFile>> groups(group + 1);
  for (SourceFile& file : files) groups[file.rank < 0 ? 0 : group_of.at(file.rank)].push_back(std::move(file));
  return groups;
}

Result<SaveReport> save_groups(const Store& store, const std::vector<Source*>& sources, const SetName& name,
                               const SaveOptions& options, ProgressSink& progress, const PublishRecord& publish,
                               KeptIndex* index) {
  return start_over_if_lost(progress,
                            [&] { return save_once(store, sources, name, options, progress, publish, index); });
}

Result<SetRecord> save_part(const Store& store, Source& source, const PartName& name, const SaveOptions& options,
                            ProgressSink& progress, KeptIndex* index) {
  VARVE_TRY(check_save_options(options));
  VARVE_TRY(check_job_name(name.set.job));
  const auto publish = [&](WriterLease& lease, const SetRecord& record) -> Status {
    if (options.may_publish) VARVE_TRY(options.may_publish());
    return lease.publish_part(name, record, PartSync::with_its_set);
  };
  VARVE_ASSIGN(SaveReport report, save_groups(store, {&source}, name.set, options, progress, publish, index));
  return std::move(report.record);
}

namespace {
void write_file(ByteWriter& w, const SourceFile& file) {
  w.text(file.path);
  w.u8(static_cast<uint8_t>(file.type));
  w.varint(file.mode);
  w.signed_varint(file.modified_s);
  w.varint(file.modified_ns);
  w.text(file.link_target);
  w.varint(file.bytes);
  w.u8(file.sparse ? 1 : 0);
  w.signed_varint(file.changed_s);
  w.varint(file.changed_ns);
  w.signed_varint(file.rank);
  w.varint(file.names_sum);
}

Result<SourceFile> read_file(ByteReader& reader) {
  SourceFile file;
  VARVE_ASSIGN(file.path, reader.text());
  VARVE_ASSIGN(const uint8_t type, reader.u8());
  if (type > static_cast<uint8_t>(FileType::symlink)) return Status::corrupt("an impossible type of file", file.path);
  file.type = static_cast<FileType>(type);
  VARVE_ASSIGN(const uint64_t mode, reader.varint());
  file.mode = static_cast<uint32_t>(mode);
  VARVE_ASSIGN(file.modified_s, reader.signed_varint());
  VARVE_ASSIGN(const uint64_t modified_ns, reader.varint());
  file.modified_ns = static_cast<uint32_t>(modified_ns);
  VARVE_ASSIGN(file.link_target, reader.text());
  VARVE_ASSIGN(file.bytes, reader.varint());
  VARVE_ASSIGN(const uint8_t sparse, reader.u8());
  file.sparse = sparse != 0;
  VARVE_ASSIGN(file.changed_s, reader.signed_varint());
  VARVE_ASSIGN(const uint64_t changed_ns, reader.varint());
  file.changed_ns = static_cast<uint32_t>(changed_ns);
  VARVE_ASSIGN(file.rank, reader.signed_varint());
  VARVE_ASSIGN(file.names_sum, reader.varint());
  return file;
}
}  // namespace

ByteVector encode_save_plan(const SavePlan& plan) {
  ByteVector raw;
  ByteWriter w(raw);
  w.text(plan.name.job);
  w.varint(plan.name.step);
  w.text(plan.folder);
  w.bytes(plan.run.bytes);
  w.varint(plan.number);
  w.varint(plan.groups.size());
  for (const std::vector<SourceFile>& files : plan.groups) {
    w.varint(files.size());
    for (const SourceFile& file : files) write_file(w, file);
  }
  return raw;
}

Result<SavePlan> decode_save_plan(ByteSpan raw) {
  ByteReader reader(raw);
  SavePlan plan;
  VARVE_ASSIGN(plan.name.job, reader.text());
  VARVE_ASSIGN(plan.name.step, reader.varint());
  VARVE_ASSIGN(plan.folder, reader.text());
  VARVE_ASSIGN(plan.run, UniqueId::read(reader));
  VARVE_ASSIGN(plan.number, reader.varint());
  VARVE_ASSIGN(const uint64_t group_count, reader.count(1));
  for (uint64_t i = 0; i < group_count; ++i) {
    VARVE_ASSIGN(const uint64_t file_count, reader.count(1));
    std::vector<SourceFile>& files = plan.groups.emplace_back();
    for (uint64_t k = 0; k < file_count; ++k) {
      VARVE_ASSIGN(SourceFile file, read_file(reader));
      files.push_back(std::move(file));
    }
  }
  if (!reader.at_end()) return Status::corrupt("a plan is longer than its fields");
  return plan;
}

namespace {

class TogetherSaver {
 public:
  TogetherSaver(const Store& store, const std::string& folder, SaveOptions options, LayoutService& layouts,
                Communicator& ranks, SharedProgress& progress)
      : store_(store),
        named_(folder),
        options_(std::move(options)),
        layouts_(layouts),
        ranks_(ranks),
        progress_(progress) {}

  Result<SaveReport> run() {
    VARVE_TRY(share_plan());
    VARVE_TRY(take_share());
    const Status saved = agree(ranks_, save_share());
    const Status completed = saved.ok() ? complete() : saved;
    if (!completed.ok()) {
      withdraw_part();
      return completed;
    }
    return gather_report();
  }

 private:
  /// The first process finds out what there is to be saved; all others believe it.
  Status share_plan() {
    progress_.phase("saving");
    VARVE_ASSIGN(const ByteVector told, told_by_first(ranks_, [this]() -> Result<ByteVector> {
                   VARVE_TRY(make_plan());
                   return encode_save_plan(plan_);
                 }));
    Result<SavePlan> plan = decode_save_plan(told);
    VARVE_TRY(agree(ranks_, plan.status()));
    plan_ = std::move(*plan);
    options_.made_by.number = plan_.number;
    return {};
  }

  Status make_plan() {
    VARVE_TRY(check_save_options(options_));
    VARVE_ASSIGN(plan_.name, choose_set_name(store_, named_, options_));
    VARVE_TRY(Catalog(store_).check_is_new(plan_.name, {Remedy::choose_another_step, plan_.name.to_string()}));
    VARVE_ASSIGN(plan_.run, UniqueId::random());
    VARVE_ASSIGN(plan_.number, number_of_next(store_, plan_.name.job, options_));
    VARVE_ASSIGN(source_, look_at_source(named_));
    plan_.folder = source_.folder;
    VARVE_ASSIGN(std::vector<SourceFile> files, find_files_of(source_, options_, progress_));
    doubted_ranks_ = doubted_in(files, options_);
    plan_.groups = split_into_groups(std::move(files), options_, ranks_.rank_count());
    return {};
  }

  /// Which groups are this process's, and which part of the set they are.
  Status take_share() {
    // Also where this process has been told how many: another one may not have been.
    VARVE_ASSIGN(const unsigned threads, threads_of_process(ranks_));
    if (options_.thread_count == 0) options_.thread_count = threads;
    uint64_t all_bytes = 0;
    for (const std::vector<SourceFile>& files : plan_.groups) all_bytes += total_bytes(files);
    ProcessShares shares(all_bytes, ranks_.rank_count());
    std::vector<bool> has_part(ranks_.rank_count(), false);
    for (std::vector<SourceFile>& files : plan_.groups) {
      const uint32_t process = shares.take(total_bytes(files));
      has_part[process] = true;
      if (process != ranks_.rank()) continue;
      sources_.push_back(&folders_.emplace_back(plan_.folder, std::move(files), layouts_, options_.variables.layouts,
                                                options_.choice));
    }
    const auto own = has_part.begin() + static_cast<ptrdiff_t>(ranks_.rank());
    part_ = {plan_.name, plan_.run, static_cast<uint32_t>(std::count(has_part.begin(), own, true)),
             static_cast<uint32_t>(std::count(has_part.begin(), has_part.end(), true))};
    return {};
  }

  Status save_share() {
    if (sources_.empty()) return {};
    VARVE_ASSIGN(report_, save_groups(store_, sources_, plan_.name, options_, progress_,
                                      [&](WriterLease& lease, const SetRecord& record) {
                                        return lease.publish_part(part_, record);
                                      }));
    return {};
  }

  /// All parts are there: the first process makes the set of them.
  Status complete() {
    VARVE_ASSIGN(const ByteVector told, told_by_first(ranks_, [this]() -> Result<ByteVector> {
                   VARVE_TRY(check_unchanged(source_.folder, source_.self, options_.choice));
                   Result<SetRecord> set = Status::internal("no attempt was made");
                   for (int attempt = 0; attempt < kTriesMax; ++attempt) {
                     set = complete_set(store_, plan_.run, plan_.name, part_.count);
                     if (set.ok() || set.status().code() != StatusCode::busy) break;
                   }
                   VARVE_TRY(set.status());
                   return encode_set_record(*set, store_.score());
                 }));
    VARVE_ASSIGN(report_.record, decode_set_record(told, store_.score()));
    return {};
  }

  /// Nothing appears if it does not appear as a whole. A set that is there after all, but was not made durable, keeps
  /// its parts.
  void withdraw_part() const {
    if (sources_.empty()) return;
    const Result<bool> is_there = Catalog(store_).has(plan_.name);
    if (!is_there.ok() || *is_there) return;
    remove_part(store_, part_).ignore("a prune gives it up after a while");
  }

  Result<SaveReport> gather_report() {
    ByteVector mine;
    ByteWriter w(mine);
    for (uint64_t number : {report_.variable_count, report_.pattern_bytes, report_.known_bytes, doubted_ranks_})
      w.varint(number);
    VARVE_ASSIGN(const auto all, ranks_.all_gather(mine));
    SaveReport report;
    report.record = report_.record;
    for (const std::vector<std::byte>& of_one : all) {
      ByteReader reader(of_one);
      for (uint64_t* sum :
           {&report.variable_count, &report.pattern_bytes, &report.known_bytes, &report.doubted_ranks}) {
        VARVE_ASSIGN(const uint64_t number, reader.varint());
        *sum += number;
      }
    }
    return report;
  }

  const Store& store_;
  const std::string& named_;  ///< what is to be saved
  SaveOptions options_;
  LayoutService& layouts_;
  Communicator& ranks_;
  SharedProgress& progress_;
  NamedSource source_;  ///< of the first process
  SavePlan plan_;
  std::deque<FolderSource> folders_;
  std::vector<Source*> sources_;
  PartName part_;
  SaveReport report_;           ///< of this process, until it is gathered
  uint64_t doubted_ranks_ = 0;  ///< of the first process
};
}  // namespace

Result<SaveReport> save_folder_together(const Store& store, const std::string& folder, SaveOptions options,
                                        LayoutService& layouts, Communicator& ranks, ProgressSink& progress) {
  if (ranks.rank_count() == 1) return save_folder(store, folder, options, layouts, progress);
  SharedProgress shared(ranks, progress);
  Result<SaveReport> report = TogetherSaver(store, folder, std::move(options), layouts, ranks, shared).run();
  const Status told = shared.tell_warnings();
  if (report.ok() && !told.ok()) return told;
  return report;
}

}  // namespace varve
